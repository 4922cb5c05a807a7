"""A model judged on a split it was not trained on."""

from dataclasses import dataclass
from typing import Any

import torch

from recmill.data.split import SplitName
from recmill.metrics import ClickMetrics, ClickResult
from recmill.train.inputs import Inputs
from recmill.train.step import Parts, forward


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a split, and how many of its lines could not be rows."""

    split: SplitName
    result: ClickResult
    num_skipped: int

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {**self.result.as_dict(), "skipped_rows": self.num_skipped}

    def describe(self) -> str:
        """The metrics in a line."""
        names = ("auroc", "logloss", "normalised_entropy", "calibration", "accuracy")
        values = [(name, getattr(self.result, name)) for name in names]
        numbers = "  ".join(f"{name} {value:.5f}" for name, value in values if value is not None)
        skipped = f", {self.num_skipped:,} bad lines passed over" if self.num_skipped else ""
        return f"{self.split:<10}  {numbers}  ({self.result.num_rows:,} rows{skipped})"


def evaluate(parts: Parts, inputs: Inputs, split: SplitName) -> Evaluation:
    """Score all rows of a split, in the order of the files."""
    metrics, num_skipped = ClickMetrics(), 0
    with inputs.open_evaluation(split) as stream, torch.inference_mode():
        for batch in stream:
            metrics.update(forward(parts, batch).numpy(), batch.columns.labels)
            num_skipped += batch.num_skipped
        num_skipped += stream.trailing_skipped
    return Evaluation(split, metrics.result(), num_skipped)
