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


def slice_metrics(scores: NDArray[Any], probabilities: Floats, labels: NDArray[Any]) -> SliceMetrics:
    """All metrics of some rows: `scores` put them into an order, `probabilities` are of a click."""
    is_click = labels > 0.5
    return SliceMetrics(
        len(labels),
        int(is_click.sum()),
        auroc(scores, is_click),
        logloss(probabilities, is_click),
        calibration(probabilities, is_click),
    )


def auroc(scores: NDArray[Any], is_click: NDArray[np.bool_]) -> Estimate:
    """The area under the ROC curve, with the variance of DeLong, DeLong and Clarke-Pearson (1988)."""
    clicks, others = scores[is_click], scores[~is_click]
    if not len(clicks) or not len(others):
        return UNDEFINED
    wins, losses = auroc_parts(scores, is_click)
    value = float(wins.mean())
    if min(len(clicks), len(others)) < 2:
        return Estimate(value)
    variance = float(wins.var(ddof=1) / len(clicks) + losses.var(ddof=1) / len(others))
    return _normal(value, variance, lowest=0.0, highest=1.0)


def logloss(probabilities: Floats, is_click: NDArray[np.bool_]) -> Estimate:
    """The mean cross entropy."""
    if not len(is_click):
        return UNDEFINED
    with np.errstate(divide="ignore"):
        losses = -np.log(np.where(is_click, probabilities, 1.0 - probabilities))
    value = float(losses.mean())
    if len(losses) < 2 or not math.isfinite(value):
        return Estimate(value if math.isfinite(value) else None)
    return _normal(value, float(losses.var(ddof=1)) / len(losses), lowest=0.0)


def calibration(probabilities: Floats, is_click: NDArray[np.bool_]) -> Estimate:
    """The mean prediction over the mean label."""
    num_clicks, num_rows = int(is_click.sum()), len(is_click)
    if not num_clicks:
        return UNDEFINED
    value = float(probabilities.sum() / num_clicks)
    if num_rows < 2:
        return Estimate(value)
    residuals = probabilities - value * is_click
    variance = float((residuals**2).sum()) / (num_rows - 1) * num_rows / num_clicks**2
    return _normal(value, variance, lowest=0.0)


def group_metrics(groups: Codes, scores: NDArray[Any], labels: NDArray[Any]) -> GroupMetrics:
    """GAUC over groups such as users; groups whose labels are all the same count only in `rows_frac`."""
    num_groups = int(groups.max(initial=-1)) + 1
    is_click = labels > 0.5
    sizes = np.bincount(groups, minlength=num_groups)
    clicks = np.bincount(groups[is_click], minlength=num_groups)
    has_both = (clicks > 0) & (clicks < sizes)
    num_used = int(has_both.sum())
    rows_frac = float(sizes[has_both].sum() / max(1, len(groups)))
    if not num_used:
        return GroupMetrics(UNDEFINED, int((sizes > 0).sum()), 0, rows_frac)
    ranks = ranks_in_groups(groups, scores, sizes)
    rank_sums = np.bincount(groups[is_click], ranks[is_click], minlength=num_groups)[has_both]
    n, m = sizes[has_both].astype(np.float64), clicks[has_both].astype(np.float64)
    areas = (rank_sums - m * (m + 1) / 2) / (m * (n - m))
    value = float((n * areas).sum() / n.sum())
    gauc = Estimate(value)
    if num_used > 1:
        variance = float(((n * (areas - value)) ** 2).sum() / n.sum() ** 2) * num_used / (num_used - 1)
        gauc = _normal(value, variance, lowest=0.0, highest=1.0)
    return GroupMetrics(gauc, int((sizes > 0).sum()), num_used, rows_frac)


def ranks_in_groups(groups: Codes, scores: NDArray[Any], sizes: Codes) -> Floats:
    """For each row its rank among the rows of its group, from 1 on; equal scores share the mean of their ranks."""
    order = np.lexsort((scores, groups))
    sorted_groups, sorted_scores = groups[order], scores[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (sorted_groups[1:] != sorted_groups[:-1]) | (sorted_scores[1:] != sorted_scores[:-1])
    firsts = np.flatnonzero(is_new)
    counts = np.diff(np.append(firsts, len(order)))
    shared = (firsts + 1 + (counts - 1) / 2)[np.cumsum(is_new) - 1]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    ranks = np.empty(len(order))
    ranks[order] = shared - starts[sorted_groups]
    return ranks


def top_metrics(scores: NDArray[Any], labels: NDArray[Any], percents: Sequence[float]) -> list[TopMetrics]:
    """Recall and lift of the rows with the highest scores; of equal scores at the edge each counts for a share."""
    is_click = labels > 0.5
    num_clicks, num_rows = int(is_click.sum()), len(labels)
    descending = np.argsort(-scores, kind="stable")
    found = list[TopMetrics]()
    for percent in percents:
        num_taken = min(num_rows, math.ceil(num_rows * percent / 100))
        if not num_clicks:
            found.append(TopMetrics(percent, num_taken, UNDEFINED, UNDEFINED))
            continue
        edge = scores[descending[num_taken - 1]]
        above, at_edge = scores > edge, scores == edge
        share = (num_taken - int(above.sum())) / int(at_edge.sum())
        taken_clicks = int((is_click & above).sum()) + share * int((is_click & at_edge).sum())
        recall = _wilson(taken_clicks / num_clicks, num_clicks)
        scale = num_rows / num_taken
        found.append(TopMetrics(percent, num_taken, recall, Estimate(*(each and each * scale for each in recall))))
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


def _wilson(share: float, num: int) -> Estimate:
    """Wilson's interval of a share of `num`, which stays within 0 … 1 and has a width at the ends too."""
    centre = (share + _Z**2 / (2 * num)) / (1 + _Z**2 / num)
    half = _Z / (1 + _Z**2 / num) * math.sqrt(share * (1 - share) / num + _Z**2 / (4 * num**2))
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half))
