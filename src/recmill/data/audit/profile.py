"""What a column holds: counted row by row, summed up as a profile, in memory that does not grow with the rows.

Rows come with codes: 2 · half + label. Which half a row belongs to is decided by a hash of its place, so that click
rates learnt on one half can be measured on the other and a value that occurs once says nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recmill.data.audit.heavy import HeavyValues
from recmill.data.audit.tally import EMPTY, HashTally, Words, keys_of_numbers, numbers_of_keys
from recmill.data.values.known import decoded
from recmill.jit import njit, uint64
from recmill.seeds import mix64

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
NUM_TOP_VALUES = 5
MAX_NUMBERS = 1 << 16  # distinct numbers, or ranges of them, per dense column: 5 MiB
MAX_VALUES = 1 << 17  # distinct values per category column: 10 MiB
MIN_ROWS_PER_LABEL = 20  # chance separates fewer too often to call it a leak
RESERVED_TABLE_ROWS = 2  # missing values, and all values that are too rare for a row of their own

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class DenseProfile:
    """A number column over the training rows; None where no row has a number."""

    name: str
    missing_frac: float
    minimum: float | None
    maximum: float | None
    quantiles: dict[str, float] | None
    quantile_method: str  # "exact", or "histogram" of rounded values
    quantile_error_frac: float  # at most, relative to the value
    is_constant: bool
    auroc: float | None  # of the column alone as a predictor, in the better direction


@dataclass(frozen=True)
class TopValue:
    """A frequent value, as it is written in the file."""

    value: str
    rows: int
    frac: float
    is_hash: bool = False  # of a string whose text was not found


@dataclass(frozen=True)
class CategoryProfile:
    """A category column over the training rows."""

    name: str
    missing_frac: float
    num_distinct: int
    distinct_method: str  # "exact", or "sample" of the values
    distinct_error_frac: float  # the standard error
    top_values: tuple[TopValue, ...]
    top_error_rows: int  # the rows of a top value may be more by so many
    covering_values: int  # how many of the most frequent values make up the wanted share of the present ones
    table_rows: int  # these, and the reserved rows
    is_constant: bool
    auroc: float | None  # of the click rate per value, learnt on one half of the rows and measured on the other


@njit(nogil=True, cache=True)
def sum_places(inputs: Words, places: Words) -> np.uint64:
    """A sum over rows that two columns share if, and but for chance only if, they are equal in every row."""
    total = uint64(0)
    for row in range(len(inputs)):
        total += mix64(inputs[row] ^ places[row])
    return total


@njit(nogil=True, cache=True)
def _extremes(inputs: Words, low: np.int64, high: np.int64) -> tuple[np.int64, np.int64]:
    """The least and the greatest key, as signed integers."""
    for row in range(len(inputs)):
        if inputs[row] != EMPTY:
            key = np.int64(inputs[row])
            low = key if key < low else low
            high = key if key > high else high
    return low, high


class DenseColumn:
    """Counts the numbers of one column."""

    def __init__(self, name: str, *, max_numbers: int = MAX_NUMBERS) -> None:
        self.name = name
        self.fingerprint = 0
        self._tally = HashTally(max_numbers, "round")
        self._low, self._high = np.int64(2**63 - 1), np.int64(-(2**63))

    def add(self, numbers: NDArray[np.float64], codes: NDArray[np.uint8], places: Words) -> None:
        """Take some rows."""
        inputs = keys_of_numbers(np.ascontiguousarray(numbers))
        self.fingerprint = (self.fingerprint + int(sum_places(inputs, places))) % 2**64
        self._low, self._high = _extremes(inputs, self._low, self._high)
        self._tally.add(inputs, codes)

    def profile(self) -> DenseProfile:
        """All that is known of the column."""
        keys, counts = self._tally.entries()
        order = np.argsort(keys.view(np.int64))
        keys, counts = keys[order], counts[order]
        missing, level = self._tally.missing, self._tally.level
        num_missing, num_present = int(missing.sum()), int(counts.sum())
        low, high = (float(n) for n in numbers_of_keys(np.array([self._low, self._high]).view(np.uint64)))
        middles = keys | np.uint64((1 << level) >> 1)
        values = np.clip(numbers_of_keys(middles), low, high) if num_present else np.empty(0)
        return DenseProfile(
            name=self.name,
            missing_frac=_share(num_missing, num_missing + num_present),
            minimum=low if num_present else None,
            maximum=high if num_present else None,
            quantiles=_quantiles(values, counts.sum(axis=1)) if num_present else None,
            quantile_method="exact" if level == 0 else "histogram",
            quantile_error_frac=0.0 if level == 0 else 2.0 ** (level - 53),
            is_constant=num_present == 0 or (num_missing == 0 and self._low == self._high),
            auroc=_best(ranked_auroc(counts, missing), held_out_auroc(np.vstack([counts, missing]))),
        )


class CategoryColumn:
    """Counts the values of one column."""

    def __init__(self, name: str, kind: str | None, column: str | None = None, *, max_values: int = MAX_VALUES) -> None:
        self.name, self._kind = name, kind
        self._column = name if column is None else column  # of a list, `name` is one of its places
        self.fingerprint = 0
        self._heavy = HeavyValues()
        self._tally = HashTally(max_values, "sample", heavy=self._heavy)

    def add(self, values: Words, codes: NDArray[np.uint8], places: Words) -> None:
        """Take some rows."""
        inputs = np.ascontiguousarray(values)
        self.fingerprint = (self.fingerprint + int(sum_places(inputs, places))) % 2**64
        self._tally.add(inputs, codes)

    def profile(
        self, coverage_frac: float, num_rows: int, texts: Mapping[str, Mapping[int, bytes]] | None = None
    ) -> CategoryProfile:
        """All that is known of the column after so many rows; `texts` of strings are by column and hash."""
        tally = self._tally
        _, counts = tally.entries()
        num_missing = int(tally.missing.sum())
        covering = self._count_covering(coverage_frac, num_rows - num_missing)
        sampled_missing = tally.missing / 2**tally.level  # as thinly as the values
        return CategoryProfile(
            name=self.name,
            missing_frac=_share(num_missing, num_rows),
            num_distinct=tally.num_distinct,
            distinct_method="exact" if tally.is_exact else "sample",
            distinct_error_frac=tally.distinct_error_frac,
            top_values=self._top_values(num_rows, (texts or {}).get(self._column, {})),
            top_error_rows=0 if tally.is_exact else self._heavy.error,
            covering_values=covering,
            table_rows=covering + RESERVED_TABLE_ROWS,
            is_constant=num_missing == num_rows or (num_missing == 0 and tally.num_distinct == 1),
            auroc=held_out_auroc(np.vstack([counts, sampled_missing])),
        )

    def _top_values(self, num_rows: int, texts: Mapping[int, bytes]) -> tuple[TopValue, ...]:
        keys, rows = self._heavy.entries()
        if self._tally.is_exact:
            keys, counts = self._tally.entries()
            rows = counts.sum(axis=1)
        top = np.lexsort((keys, -rows))[:NUM_TOP_VALUES]
        found = list[TopValue]()
        for i in top:
            text = texts.get(int(keys[i])) if self._kind == "string" else None
            value = _written(int(keys[i]), self._kind) if text is None else decoded(text)
            is_hash = self._kind == "string" and text is None
            found.append(TopValue(value, int(rows[i]), _share(int(rows[i]), num_rows), is_hash))
        return tuple(found)

    def _count_covering(self, coverage_frac: float, num_present: int) -> int:
        """How many values have the wanted share of rows. Beyond the bound: the heavy ones, then the sample's tail."""
        keys, counts = self._tally.entries()
        rows = counts.sum(axis=1)
        if self._tally.is_exact:
            return count_covering(rows.astype(np.float64), np.ones(len(rows)), coverage_frac * num_present)
        heavy_keys, heavy_rows = self._heavy.entries()
        is_heavy = heavy_rows > self._heavy.error  # the others' counts are mostly error
        heavy_keys, heavy_rows = heavy_keys[is_heavy], heavy_rows[is_heavy]
        tail_rows = rows[~np.isin(keys, heavy_keys)]
        scale = (num_present - heavy_rows.sum()) / max(int(tail_rows.sum()), 1)
        copies = np.concatenate([np.ones(len(heavy_rows)), np.full(len(tail_rows), float(1 << self._tally.level))])
        per_value = np.concatenate([heavy_rows, tail_rows * scale / (1 << self._tally.level)])
        return count_covering(per_value, copies, coverage_frac * num_present)


def count_covering(rows_per_value: NDArray[np.float64], copies: NDArray[np.float64], wanted_rows: float) -> int:
    """How many values, the most frequent first, have so many rows; entry i stands for `copies[i]` equal values."""
    wanted_rows = round(wanted_rows, 6)  # 0.07 · 100 is a little more than 7
    if wanted_rows <= 0 or len(rows_per_value) == 0:
        return 0
    order = np.argsort(-rows_per_value, kind="stable")
    rows = rows_per_value[order] * copies[order]
    covered = np.cumsum(rows)
    last = min(int(np.searchsorted(covered, wanted_rows)), len(order) - 1)
    before = covered[last] - rows[last]
    of_last = min(math.ceil((wanted_rows - before) / rows_per_value[order[last]]), int(copies[order[last]]))
    return int(copies[order[:last]].sum()) + of_last


def auroc_of_groups(scores: NDArray[np.float64], clicks: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """The AUROC of groups of rows that share a score, from their numbers of clicks and others."""
    _, group = np.unique(scores, return_inverse=True)
    group_clicks = np.bincount(group, clicks)
    group_others = np.bincount(group, others)
    below = np.cumsum(group_others) - group_others
    return float((group_clicks * (below + group_others / 2)).sum() / (clicks.sum() * others.sum()))


def held_out_auroc(counts: NDArray[np.int64] | NDArray[np.float64]) -> float | None:
    """Of click rates per value (R, codes) learnt on the first half of the rows, on the second; None if rows are few."""
    others_a, clicks_a, others_b, clicks_b = counts.astype(np.float64).T
    if min(clicks_a.sum(), others_a.sum(), clicks_b.sum(), others_b.sum()) < MIN_ROWS_PER_LABEL:
        return None
    prior = clicks_a.sum() / (clicks_a.sum() + others_a.sum())
    # one imagined row of the mean keeps a single click from counting as much as a hundred
    rates = (clicks_a + prior) / (clicks_a + others_a + 1)
    return auroc_of_groups(rates, clicks_b, others_b)


def ranked_auroc(counts: Counts, missing: Counts) -> float | None:
    """Of values in their order (V, codes), up or down, with the missing ones at either end; None if rows are few."""
    with_missing = np.vstack([missing, counts])
    others, clicks = (with_missing[:, label::2].sum(axis=1).astype(np.float64) for label in (0, 1))
    if min(clicks.sum(), others.sum()) < MIN_ROWS_PER_LABEL:
        return None
    ranks = np.arange(len(with_missing), dtype=np.float64)
    found = list[float]()
    for missing_rank in (-1.0, float(len(ranks))):
        ranks[0] = missing_rank
        auroc = auroc_of_groups(ranks, clicks, others)
        found += [auroc, 1 - auroc]
    return max(found)


def _best(*aurocs: float | None) -> float | None:
    return max((auroc for auroc in aurocs if auroc is not None), default=None)


def _quantiles(values: NDArray[np.float64], rows: Counts) -> dict[str, float]:
    """The smallest value that so many rows do not exceed, of ascending values."""
    upto = np.cumsum(rows)
    total = int(upto[-1])
    return {str(q): float(values[np.searchsorted(upto, max(math.ceil(round(q * total, 6)), 1))]) for q in QUANTILES}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _written(value: int, kind: str | None) -> str:
    if kind == "hex":
        return f"{value:08x}"
    if kind == "int":
        return str(value - 2**64 if value >= 2**63 else value)
    return f"xxh64:{value:016x}"
