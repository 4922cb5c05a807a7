"""A model evaluated on a split it was not trained on."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.errors import FailureError
from recmill.metrics import ClickMetrics, ClickResult
from recmill.settings.data import DataConfig, SplitName
from recmill.training.click.inputs import Inputs
from recmill.training.click.step import ClickState, score_columns

Score = Callable[[Columns], NDArray[np.float32]]


@dataclass(frozen=True)
class ClickEvaluation:
    """The metrics of a split, or of its first batches, and how many of the lines read could not be rows."""

    split: SplitName
    result: ClickResult
    num_skipped: int
    is_whole: bool = True  # False: a limit left rows out

    @property
    def score(self) -> float | None:
        """The AUROC, unless all labels are the same."""
        return self.result.auroc

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return plain_metrics(self.result, self.num_skipped, is_whole=self.is_whole)

    def describe(self) -> str:
        """The metrics in a line."""
        return describe_metrics(self.split, self.result, self.num_skipped, is_whole=self.is_whole)


def plain_metrics(result: ClickResult, num_skipped: int, *, is_whole: bool) -> dict[str, Any]:
    """Metrics of some rows as plain numbers for JSON."""
    return {**result.as_dict(), "skipped_rows": num_skipped, "whole_split": is_whole}


def describe_metrics(name: str, result: ClickResult, num_skipped: int, *, is_whole: bool) -> str:
    """Metrics of some rows in a line."""
    names = ("auroc", "logloss", "normalised_entropy", "calibration", "accuracy")
    values = [(name, getattr(result, name)) for name in names]
    numbers = "  ".join(f"{name} {value:.5f}" for name, value in values if value is not None)
    skipped = f", {num_skipped:,} bad lines ignored" if num_skipped else ""
    only = "" if is_whole else "only the first "
    return f"{name:<10}  {numbers}  ({only}{result.num_rows:,} rows{skipped})"


def batch_limit(data: DataConfig, split: SplitName) -> int:
    """How many batches of a split are scored; 0: all."""
    return {"train": 0, "validation": data.max_validation_batches, "test": data.max_test_batches}[split]


def refuse_no_numbers(logits: NDArray[np.float32], of_what: str) -> None:
    """Complain about scores that are none: the weights have grown too large to be multiplied."""
    if np.isnan(logits).any():
        raise FailureError(
            f"the model scores rows of {of_what} as nan: its weights have grown beyond all measure; "
            "lower the learning rates or look at the data"
        )


def scored_with(state: ClickState, inputs: Inputs, split: SplitName, rival: Score) -> Iterator[NDArray[np.float32]]:
    """Blocks of rows of a split: the model's logit, the label, the rival's logit and, if rows have one, the weight."""
    state.model.eval()
    averaged = state.average.in_place() if state.average else nullcontext()
    with averaged, inputs.open_evaluation(split) as stream, torch.inference_mode():
        for batch in islice(stream, batch_limit(state.config.data, split) or None):
            columns = batch.columns
            weights = [columns.weights] if len(columns.weights) else []
            yield np.stack([score_columns(state, columns).numpy(), columns.labels, rival(columns), *weights], axis=1)


def evaluate(state: ClickState, inputs: Inputs, split: SplitName) -> ClickEvaluation:
    """Score the rows of a split in the order of the files: all, or as many batches as the settings allow."""
    max_batches = batch_limit(state.config.data, split)
    metrics, num_skipped, has_weight = ClickMetrics(), 0, state.config.data.schema_of_rows.has_weight
    state.model.eval()
    weights = state.average.in_place() if state.average else nullcontext()
    with weights, inputs.open_evaluation(split) as stream, torch.inference_mode():
        for batch in islice(stream, max_batches or None):
            logits = score_columns(state, batch.columns).numpy()
            refuse_no_numbers(logits, split)
            metrics.update(logits, batch.columns.labels, batch.columns.weights if has_weight else None)
            num_skipped += batch.num_skipped
        is_whole = next(stream, None) is None
        if is_whole:
            num_skipped += stream.trailing_skipped
    return ClickEvaluation(split, metrics.result(), num_skipped, is_whole)
