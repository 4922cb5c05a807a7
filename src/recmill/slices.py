"""How good click predictions are for parts of the rows: by value, within groups and at the top, with 95 % intervals.

All functions are pure. Intervals: AUROC by DeLong's variance; logloss, calibration and GAUC by the normal approximation
(calibration and GAUC are ratios, so by the delta method; GAUC over users, whose rows are not independent); recall by
Wilson's interval of a share, and lift by the same, since it is recall over the share of rows taken.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.uncertainty import auroc_parts

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Weights = NDArray[Any] | None  # None: every row counts once

_Z = 1.959963984540054  # 95 % of a normal distribution lie within so many standard deviations
MISSING, OTHERS = "(missing)", "({:,} other values)"


class Estimate(NamedTuple):
    """A metric and its 95 % confidence interval; None where the rows do not define them."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, float | None]:
        """Plain numbers for JSON."""
        return self._asdict()

    def __str__(self) -> str:
        if self.value is None:
            return "-"
        return f"{self.value:.4f}" + ("" if self.low is None else f" [{self.low:.4f}, {self.high:.4f}]")


UNDEFINED = Estimate(None)


class SliceMetrics(NamedTuple):
    """The metrics of some rows."""

    num_rows: int
    num_clicks: int
    auroc: Estimate
    logloss: Estimate
    calibration: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        estimates = {name: getattr(self, name).as_dict() for name in ("auroc", "logloss", "calibration")}
        return {"num_rows": self.num_rows, "num_clicks": self.num_clicks, **estimates}


class GroupMetrics(NamedTuple):
    """GAUC: the AUROC within each group that has both labels, averaged by the rows of the group."""

    gauc: Estimate
    num_groups: int
    num_groups_used: int  # those with both labels
    rows_frac: float  # the share of all rows that is in them

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {**self._asdict(), "gauc": self.gauc.as_dict()}


class TopMetrics(NamedTuple):
    """Of the rows with the highest scores: recall, their share of all clicks, and lift, its ratio to chance."""

    percent: float
    num_rows: int
    recall: Estimate
    lift: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {**self._asdict(), "recall": self.recall.as_dict(), "lift": self.lift.as_dict()}


def slice_metrics(
    scores: NDArray[Any], probabilities: Floats, labels: NDArray[Any], weights: Weights = None
) -> SliceMetrics:
    """All metrics of some rows: `scores` put them into an order, `probabilities` are of a click.

    With weights a row of weight 2 counts as two in the metrics; the numbers of rows and clicks stay plain counts.
    """
    is_click = labels > 0.5
    return SliceMetrics(
        len(labels),
        int(is_click.sum()),
        auroc(scores, is_click, weights),
        logloss(probabilities, is_click, weights),
        calibration(probabilities, is_click, weights),
    )


def _counted(labels: NDArray[Any], weights: Weights) -> Floats:
    """What each row counts for."""
    return np.ones(len(labels)) if weights is None else weights.astype(np.float64)


def auroc(scores: NDArray[Any], is_click: NDArray[np.bool_], weights: Weights = None) -> Estimate:
    """The area under the ROC curve, with the variance of DeLong, DeLong and Clarke-Pearson (1988)."""
    counted = _counted(is_click, weights)
    of_clicks, of_others = counted[is_click], counted[~is_click]
    if not of_clicks.sum() or not of_others.sum():
        return UNDEFINED
    wins, losses = auroc_parts(scores, is_click, counted)
    value = float(wins @ of_clicks / of_clicks.sum())
    if min(len(of_clicks), len(of_others)) < 2:
        return Estimate(value)
    variance = _variance_of_mean(wins, of_clicks) + _variance_of_mean(losses, of_others)
    return _normal(value, variance, lowest=0.0, highest=1.0)


def _variance_of_mean(values: Floats, counted: Floats) -> float:
    """Of the weighted mean of two values or more."""
    total, num = float(counted.sum()), len(values)
    residuals = counted * (values - float(values @ counted) / total)
    return float(residuals @ residuals) / total**2 * num / (num - 1)


def logloss(probabilities: Floats, is_click: NDArray[np.bool_], weights: Weights = None) -> Estimate:
    """The mean cross entropy."""
    counted = _counted(is_click, weights)
    if not counted.sum():
        return UNDEFINED
    with np.errstate(divide="ignore"):
        losses = -np.log(np.where(is_click, probabilities, 1.0 - probabilities))
    is_counted = counted > 0  # an infinite loss that counts for nothing is none
    losses, counted = losses[is_counted], counted[is_counted]
    value = float(losses @ counted / counted.sum())
    if len(losses) < 2 or not math.isfinite(value):
        return Estimate(value if math.isfinite(value) else None)
    return _normal(value, _variance_of_mean(losses, counted), lowest=0.0)


def calibration(probabilities: Floats, is_click: NDArray[np.bool_], weights: Weights = None) -> Estimate:
    """The mean prediction over the mean label."""
    counted = _counted(is_click, weights)
    clicks, num_rows = float(counted[is_click].sum()), len(is_click)
    if not clicks:
        return UNDEFINED
    value = float(probabilities @ counted / clicks)
    if num_rows < 2:
        return Estimate(value)
    residuals = counted * (probabilities - value * is_click)
    variance = float(residuals @ residuals) / (num_rows - 1) * num_rows / clicks**2
    return _normal(value, variance, lowest=0.0)


def group_metrics(groups: Codes, scores: NDArray[Any], labels: NDArray[Any], weights: Weights = None) -> GroupMetrics:
    """GAUC over groups such as users; groups whose labels are all the same count only in `rows_frac`."""
    num_groups = int(groups.max(initial=-1)) + 1
    is_click, counted = labels > 0.5, _counted(labels, weights)
    sizes = np.bincount(groups, counted, minlength=num_groups)
    clicks = np.bincount(groups[is_click], counted[is_click], minlength=num_groups)
    others = np.bincount(groups[~is_click], counted[~is_click], minlength=num_groups)
    has_both = (clicks > 0) & (others > 0)
    num_used, num_all = int(has_both.sum()), len(np.unique(groups))
    rows_frac = float(sizes[has_both].sum() / max(float(counted.sum()), 1e-300))
    if not num_used:
        return GroupMetrics(UNDEFINED, num_all, 0, rows_frac)
    won = _pairs_won(groups, scores, is_click, counted)
    n, areas = sizes[has_both], won[has_both] / (clicks * others)[has_both]
    value = float((n * areas).sum() / n.sum())
    gauc = Estimate(value)
    if num_used > 1:
        variance = float(((n * (areas - value)) ** 2).sum() / n.sum() ** 2) * num_used / (num_used - 1)
        gauc = _normal(value, variance, lowest=0.0, highest=1.0)
    return GroupMetrics(gauc, num_all, num_used, rows_frac)


def _pairs_won(groups: Codes, scores: NDArray[Any], is_click: NDArray[np.bool_], counted: Floats) -> Floats:
    """For each group the pairs whose click has the higher score, each by the product of its weights; ties half."""
    order = np.lexsort((scores, groups))
    sorted_groups, sorted_scores = groups[order], scores[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (sorted_groups[1:] != sorted_groups[:-1]) | (sorted_scores[1:] != sorted_scores[:-1])
    run = np.cumsum(is_new) - 1  # rows of a group with the same score
    clicks, others = (np.bincount(run, np.where(kind, counted, 0.0)[order]) for kind in (is_click, ~is_click))
    group_of_run = sorted_groups[is_new]
    up_to = np.cumsum(others)
    starts = np.searchsorted(group_of_run, np.arange(group_of_run[-1] + 1))
    before = np.concatenate([[0.0], up_to])[starts][group_of_run]  # others of the groups before
    return np.bincount(group_of_run, clicks * (up_to - before - others / 2)).astype(np.float64)


def top_metrics(
    scores: NDArray[Any], labels: NDArray[Any], percents: Sequence[float], weights: Weights = None
) -> list[TopMetrics]:
    """Recall and lift of the rows with the highest scores; of equal scores at the edge each counts for a share."""
    is_click, counted = labels > 0.5, _counted(labels, weights)
    descending = np.argsort(-scores, kind="stable")
    up_to = np.cumsum(counted[descending])
    total, clicks = float(counted.sum()), float(counted[is_click].sum())
    squares = float((counted[is_click] ** 2).sum())
    found = list[TopMetrics]()
    for percent in percents:
        # whole rows, if each counts once
        wanted = total * percent / 100 if weights is not None else min(total, math.ceil(total * percent / 100 - 1e-9))
        place = min(int(np.searchsorted(up_to, wanted * (1 - 1e-12))), len(up_to) - 1)
        if not clicks:
            found.append(TopMetrics(percent, place + 1, UNDEFINED, UNDEFINED))
            continue
        edge = scores[descending[place]]
        above, at_edge = scores > edge, scores == edge
        share = (wanted - float(counted[above].sum())) / float(counted[at_edge].sum())
        taken = float(counted[is_click & above].sum()) + share * float(counted[is_click & at_edge].sum())
        recall = _wilson(min(1.0, taken / clicks), clicks**2 / squares)  # as many rows of one weight are as certain
        scale = total / wanted
        found.append(TopMetrics(percent, place + 1, recall, Estimate(*(each and each * scale for each in recall))))
    return found


def rows_by_value(codes: Codes, texts: Sequence[str], max_values: int) -> list[tuple[str, Codes]]:
    """For each of the most frequent values of a column its text and its rows; other values are taken together."""
    counts = np.bincount(codes, minlength=len(texts))
    by_count = sorted(np.flatnonzero(counts).tolist(), key=lambda code: (-int(counts[code]), texts[code]))
    shown, num_others = by_count[:max_values], max(0, len(by_count) - max_values)
    place_of = np.full(len(texts), len(shown))
    place_of[shown] = np.arange(len(shown))
    places = place_of[codes]
    names = [texts[code] for code in shown] + ([OTHERS.format(num_others)] if num_others else [])
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(len(names) + 1)).tolist()
    return [(name, order[start:stop]) for name, start, stop in zip(names, bounds[:-1], bounds[1:], strict=True)]


def _normal(value: float, variance: float, *, lowest: float, highest: float = math.inf) -> Estimate:
    half = _Z * math.sqrt(max(0.0, variance))
    return Estimate(value, max(lowest, value - half), min(highest, value + half))


def _wilson(share: float, num: float) -> Estimate:
    """Wilson's interval of a share of `num`, which stays within 0 … 1 and has a width at the ends too."""
    centre = (share + _Z**2 / (2 * num)) / (1 + _Z**2 / num)
    half = _Z / (1 + _Z**2 / num) * math.sqrt(share * (1 - share) / num + _Z**2 / (4 * num**2))
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half))
