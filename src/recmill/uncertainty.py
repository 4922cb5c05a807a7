"""How sure a difference between two predictors is, measured on the same rows."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """Of a metric, the first predictor's minus the second's, and its standard error over rows drawn anew."""

    difference: float
    standard_error: float

    def as_dict(self) -> dict[str, float]:
        """Plain numbers for JSON."""
        return asdict(self)


def row_losses(logits: NDArray[np.float32], labels: NDArray[np.float32]) -> Floats:
    """The cross entropy of each row."""
    signed = np.where(labels == 1, -logits, logits).astype(np.float64)
    return np.logaddexp(0.0, signed)


def compare_losses(first: Floats, second: Floats) -> Difference:
    """Of two mean losses of the same rows."""
    differences = first - second
    return Difference(float(differences.mean()), float(differences.std(ddof=1) / math.sqrt(len(differences))))


def compare_aurocs(
    first: NDArray[np.float32], second: NDArray[np.float32], labels: NDArray[np.float32]
) -> Difference | None:
    """Of the AUROCs of two scores of the same rows, by DeLong's method; None with fewer than two rows of a class."""
    is_click = labels == 1
    if is_click.sum() < 2 or (~is_click).sum() < 2:
        return None
    first_parts, second_parts = auroc_parts(first, is_click), auroc_parts(second, is_click)
    of_clicks, of_others = (a - b for a, b in zip(first_parts, second_parts, strict=True))
    variance = of_clicks.var(ddof=1) / len(of_clicks) + of_others.var(ddof=1) / len(of_others)
    return Difference(float(of_clicks.mean()), math.sqrt(max(0.0, float(variance))))


def auroc_parts(
    scores: NDArray[Any], is_click: NDArray[np.bool_], weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """For each click the share of others that score lower, for each other row the share of clicks that score higher.

    A tie counts one half. The mean of either, by the weights of its rows if they have any, is the AUROC.
    """
    counted = np.ones(len(scores)) if weights is None else weights
    clicks, others = (scores[is_click], counted[is_click]), (scores[~is_click], counted[~is_click])
    return _share_below(clicks[0], *others), 1.0 - _share_below(others[0], *clicks)


def _share_below(scores: NDArray[Any], among: NDArray[Any], counted: Floats) -> Floats:
    order = np.argsort(among, kind="stable")
    ordered, up_to = among[order], np.concatenate([[0.0], np.cumsum(counted[order])])
    lower, upper = np.searchsorted(ordered, scores, "left"), np.searchsorted(ordered, scores, "right")
    share: Floats = (up_to[lower] + up_to[upper]) / (2.0 * up_to[-1])
    return share
