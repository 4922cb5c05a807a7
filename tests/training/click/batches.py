"""Batches of the tiny log."""

from recmill.data.batch import Batch
from recmill.training.click.inputs import Inputs
from recmill.training.click.step import ClickState


def first_batch(parts: ClickState) -> Batch:
    """The first one that these settings train on."""
    with Inputs(parts.config) as inputs, inputs.open_training(None) as stream:
        return next(stream)
