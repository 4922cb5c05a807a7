"""A model judged on a split it was not trained on."""

import numpy as np
import torch

from recmill.data.split import SplitName
from recmill.metrics import ClickMetrics, ClickResult
from recmill.train.inputs import Inputs
from recmill.train.step import Parts, forward


def evaluate(parts: Parts, inputs: Inputs, split: SplitName) -> ClickResult:
    """The metrics of all rows of a split, in the order of the files."""
    metrics = ClickMetrics()
    with inputs.open_evaluation(split) as stream, torch.inference_mode():
        for batch in stream:
            metrics.update(forward(parts, batch).numpy().astype(np.float32, copy=False), batch.columns.labels)
    return metrics.result()
