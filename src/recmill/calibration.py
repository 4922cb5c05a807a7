"""Maps from a model's logits to probabilities, fitted on rows with labels: Platt's sigmoid, or an isotonic function."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit

CalibrationKind = Literal["isotonic", "platt"]
Floats = NDArray[np.float64]

_MAX_NEWTON_STEPS = 100


@dataclass(frozen=True)
class Calibrator:
    """A function that never decreases, from logits to probabilities.

    Isotonic: straight lines between `points` (logits) with `values` (probabilities), constant beyond the ends.
    Platt: the sigmoid of values[0] · logit + values[1]; no points.
    """

    kind: CalibrationKind
    points: tuple[float, ...]
    values: tuple[float, ...]

    def probabilities(self, logits: NDArray[Any]) -> Floats:
        """Of a click; NaN stays NaN."""
        z = logits.astype(np.float64)
        if self.kind == "isotonic":
            found: Floats = np.interp(z, self.points, self.values)
            return found
        return _sigmoid(self.values[0] * z + self.values[1])

    def logits(self, logits: NDArray[Any]) -> NDArray[np.float32]:
        """The same as logits."""
        p = self.probabilities(logits)
        with np.errstate(divide="ignore"):
            return (np.log(p) - np.log1p(-p)).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": self.kind, "points": list(self.points), "values": list(self.values)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Calibrator":
        """What `to_json` wrote."""
        return Calibrator(data["kind"], tuple(data["points"]), tuple(data["values"]))


def fit_isotonic(logits: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None = None) -> Calibrator:
    """The function that never decreases and has the least squared error: pool adjacent violators.

    A row of weight 2 counts as two, one of weight 0 as none.
    Values stay 1 / (rows + 2) away from 0 and 1, or a single click where none was seen would cost an infinite loss.
    """
    z, is_click, counted = _counted_rows(logits, labels, weights)
    points, inverse = np.unique(z, return_inverse=True)
    clicks = np.bincount(inverse, counted * is_click, minlength=len(points))
    values = _pool(clicks, np.bincount(inverse, counted, minlength=len(points)))
    margin = 1.0 / (len(labels) + 2)
    values = values.clip(margin, 1.0 - margin)
    is_end = np.ones(len(points), bool)  # of a level piece only the ends are needed
    is_end[1:-1] = (values[1:-1] != values[:-2]) | (values[1:-1] != values[2:])
    return Calibrator("isotonic", tuple(points[is_end].tolist()), tuple(values[is_end].tolist()))


def _counted_rows(
    logits: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None
) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Logits, clicks and weights of the rows that count; without weights, all of them once."""
    z, is_click = logits.astype(np.float64), labels > 0.5
    if weights is None:
        return z, is_click, np.ones(len(z))
    counts = weights > 0
    return z[counts], is_click[counts], weights[counts].astype(np.float64)


@njit(nogil=True, cache=True)
def _pool(clicks: Floats, counts: Floats) -> Floats:
    """For each place the share of clicks of its pool; neighbours are pooled while a share is not above the last."""
    num = len(clicks)
    pool_clicks, pool_counts, starts = np.empty(num), np.empty(num), np.empty(num, np.int64)
    size = 0
    for place in range(num):
        pool_clicks[size], pool_counts[size], starts[size] = clicks[place], counts[place], place
        size += 1
        # a / b <= c / d without dividing, so that equal shares are equal
        while (
            size > 1 and pool_clicks[size - 1] * pool_counts[size - 2] <= pool_clicks[size - 2] * pool_counts[size - 1]
        ):
            pool_clicks[size - 2] += pool_clicks[size - 1]
            pool_counts[size - 2] += pool_counts[size - 1]
            size -= 1
    values = np.empty(num)
    for pool in range(size):
        stop = starts[pool + 1] if pool + 1 < size else num
        values[starts[pool] : stop] = pool_clicks[pool] / pool_counts[pool]
    return values


def fit_platt(logits: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None = None) -> Calibrator:
    """Slope and intercept of the most likely sigmoid, by Newton's method; the slope is at least 0.

    The targets are Platt's, (clicks + 1) / (clicks + 2) and 1 / (others + 2), so that separable rows have a finite fit.
    """
    z, is_click, counted = _counted_rows(logits, labels, weights)
    num_clicks, num_others = float(counted[is_click].sum()), float(counted[~is_click].sum())
    targets = np.where(is_click, (num_clicks + 1) / (num_clicks + 2), 1 / (num_others + 2))
    slope, intercept = 0.0, math.log((num_clicks + 1) / (num_others + 1))
    loss = _platt_loss(z, targets, counted, slope, intercept)
    for _ in range(_MAX_NEWTON_STEPS):
        p = _sigmoid(slope * z + intercept)
        errors, curvature = counted * (p - targets), counted * p * (1 - p)
        gradient = np.array([errors @ z, errors.sum()])
        hessian = np.array([[curvature @ z**2, curvature @ z], [curvature @ z, curvature.sum()]])
        step = np.linalg.solve(hessian + 1e-12 * np.eye(2), gradient)
        scale = 1.0
        while scale > 1e-10:
            after = _platt_loss(z, targets, counted, slope - scale * step[0], intercept - scale * step[1])
            if after <= loss:
                break
            scale /= 2
        slope, intercept = float(slope - scale * step[0]), float(intercept - scale * step[1])
        is_done, loss = loss - after <= 1e-12 * abs(loss), after
        if is_done:
            break
    if slope < 0:  # a model worse than chance: its order is kept all the same, as the mean alone
        slope, intercept = 0.0, math.log((num_clicks + 1) / (num_others + 1))
    return Calibrator("platt", (), (slope, intercept))


def _platt_loss(z: Floats, targets: Floats, counted: Floats, slope: float, intercept: float) -> float:
    t = slope * z + intercept
    return float((counted * (np.maximum(t, 0) + np.log1p(np.exp(-np.abs(t))) - targets * t)).sum())


def _sigmoid(z: Floats) -> Floats:
    tail = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, tail) / (1.0 + tail)


FITS = {"isotonic": fit_isotonic, "platt": fit_platt}
