"""How good click predictions are: sums that merge, and an exact AUROC in bounded memory.

1. A float32 logit becomes a uint32 key of the same order: 4 bytes per row, clicks and non-clicks apart.
2. Both kinds share one buffer, growing towards each other. When they meet, each is sorted and put down as a run.
3. The rank statistic compares sorted clicks with sorted non-clicks, one range of keys after the other, each range
   small enough for the buffer. All counts are integers, so neither order nor partition of the rows can change it.
"""

import math
import os
import sys
import tempfile
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit
from recmill.weighted_metrics import WeightedRows

Keys = NDArray[np.uint32]

_SIGN = np.uint32(0x80000000)


class _Sums(NamedTuple):
    """What the kernel learns of some rows besides their keys."""

    num_rows: int = 0
    num_clicks: int = 0
    num_right: int = 0
    loss: float = 0.0
    predicted: float = 0.0

    def plus(self, other: "_Sums") -> "_Sums":
        return _Sums(
            self.num_rows + other.num_rows,
            self.num_clicks + other.num_clicks,
            self.num_right + other.num_right,
            self.loss + other.loss,
            self.predicted + other.predicted,
        )


@dataclass(frozen=True)
class ClickResult:
    """The metrics of some predictions; None where the rows do not define one."""

    auroc: float | None
    logloss: float | None
    normalised_entropy: float | None  # logloss over the entropy of the mean label: 1 is knowing the mean only
    calibration: float | None  # mean prediction over mean label
    accuracy: float | None  # at probability ½
    num_rows: int
    num_clicks: int

    def as_dict(self) -> dict[str, float | int | None]:
        """Plain numbers for JSON, which has no infinities: None stands for them too."""
        return {
            name: value if value is not None and math.isfinite(value) else None for name, value in asdict(self).items()
        }


class ClickMetrics:
    """Takes logits and labels in any number of pieces and gives their metrics.

    Holds one buffer of at most `memory_bytes`, of which the system hands out only what has been filled: 4 bytes per
    row. Rows beyond it go to a temporary file without a name, also 4 bytes per row, which vanishes with the process.
    Not for use by several threads at once: give each its own and merge them.
    """

    def __init__(self, memory_bytes: int = 512 * 2**20) -> None:
        if memory_bytes < 4:
            raise ValueError(f"memory_bytes is {memory_bytes}; one row takes 4")
        self._keys: Keys = np.empty(memory_bytes // 4, np.uint32)
        self._clicks_end = 0
        self._others_start = len(self._keys)
        self._sums = _Sums()
        self._file: _SpillFile | None = None
        self._click_runs: list[_Run] = []
        self._other_runs: list[_Run] = []
        self._weighted: WeightedRows | None = None

    def update(
        self, logits: NDArray[np.float32], labels: NDArray[np.float32], weights: NDArray[np.float32] | None = None
    ) -> None:
        """Take some rows: logits, labels of 0 or 1, and how much each counts, of all rows or of none."""
        if logits.ndim != 1 or logits.shape != labels.shape:
            raise ValueError(
                f"logits of shape {logits.shape} and labels of shape {labels.shape} are not equally long rows"
            )
        logits, labels = np.ascontiguousarray(logits, np.float32), np.ascontiguousarray(labels, np.float32)
        rejected = _find_rejected(logits, labels)
        if rejected >= 0:
            raise ValueError(
                f"row {rejected} has logit {logits[rejected]} and label {labels[rejected]}; "
                "a logit is a number or an infinity, a label 0 or 1"
            )
        if weights is not None:
            self._weighted = self._weighted or WeightedRows()
            self._weighted.add(logits, labels, weights)
        start = 0
        while start < len(logits):
            stop = start + self._make_room(len(logits) - start)
            rows = slice(start, stop)
            sums = _Sums(*_take(logits[rows], labels[rows], self._keys, self._clicks_end, self._others_start))
            self._clicks_end += sums.num_clicks
            self._others_start -= sums.num_rows - sums.num_clicks
            self._sums = self._sums.plus(sums)
            start = stop

    def merge(self, other: "ClickMetrics") -> None:
        """Take all rows of another accumulator, which stays as it was."""
        assert other is not self
        for keys, are_clicks in ((other._clicks, True), (other._others, False)):
            start = 0
            while start < len(keys):
                stop = start + self._make_room(len(keys) - start)
                self._append(keys[start:stop], are_clicks)
                start = stop
        self._click_runs += other._click_runs
        self._other_runs += other._other_runs
        self._sums = self._sums.plus(other._sums)
        if other._weighted:
            self._weighted = self._weighted or WeightedRows()
            self._weighted.merge(other._weighted)

    def result(self) -> ClickResult:
        """The metrics of all rows so far; more may follow."""
        rows, clicks, right, loss, predicted = map(float, self._sums)
        if (weighted := self._weighted) is not None:
            rows, clicks, right = weighted.total, weighted.clicks, weighted.right
            loss, predicted = weighted.loss, weighted.predicted
        entropy = _entropy(clicks / rows) if rows else 0.0
        return ClickResult(
            auroc=weighted.auroc() if weighted else self._auroc(),
            logloss=loss / rows if rows else None,
            normalised_entropy=loss / rows / entropy if entropy else None,
            calibration=predicted / clicks if clicks else None,
            accuracy=right / rows if rows else None,
            num_rows=self._sums.num_rows,
            num_clicks=self._sums.num_clicks,
        )

    @property
    def _clicks(self) -> Keys:
        return self._keys[: self._clicks_end]

    @property
    def _others(self) -> Keys:
        return self._keys[self._others_start :]

    def _append(self, keys: Keys, are_clicks: bool) -> None:
        if are_clicks:
            self._keys[self._clicks_end : self._clicks_end + len(keys)] = keys
            self._clicks_end += len(keys)
        else:
            self._keys[self._others_start - len(keys) : self._others_start] = keys
            self._others_start -= len(keys)

    def _make_room(self, num_wanted: int) -> int:
        """For how many more keys there is room, at least one and at most `num_wanted`."""
        if self._clicks_end == self._others_start:
            self._spill()
        return min(num_wanted, self._others_start - self._clicks_end)

    def _spill(self) -> None:
        """Put the buffered keys down as runs."""
        self._file = self._file or _SpillFile()
        for keys, runs in ((self._clicks, self._click_runs), (self._others, self._other_runs)):
            if len(keys):
                keys.sort()
                runs.append(self._file.append(keys))
        self._clicks_end, self._others_start = 0, len(self._keys)

    def _auroc(self) -> float | None:
        num_clicks = self._sums.num_clicks
        num_others = self._sums.num_rows - num_clicks
        if num_clicks == 0 or num_others == 0:
            return None
        if self._click_runs or self._other_runs:
            self._spill()  # so that the buffer is free to hold one range of keys after the other
            wins = _count_spilled_wins(_whole(self._click_runs), _whole(self._other_runs), self._keys)
        else:
            self._clicks.sort()
            self._others.sort()
            wins = int(_count_wins(self._clicks, self._others))
        return wins / (2 * num_clicks * num_others)


class _SpillFile:
    """A temporary file without a name, closed with the last run in it."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="recmill-metrics-") as file:
            self._descriptor = os.dup(file.fileno())
        self._num_keys = 0
        weakref.finalize(self, os.close, self._descriptor)

    def append(self, keys: Keys) -> "_Run":
        """Put sorted keys down as a run."""
        run = _Run(self, self._num_keys, len(keys))
        left, offset = keys.data.cast("B"), self._num_keys * 4
        while left:
            num_written = os.pwrite(self._descriptor, left, offset)
            left, offset = left[num_written:], offset + num_written
        self._num_keys += len(keys)
        return run

    def read(self, first: int, keys: Keys) -> None:
        """Fill `keys` with those from `first` on."""
        left, offset = keys.data.cast("B"), first * 4
        while left:
            num_read = os.preadv(self._descriptor, [left], offset)
            assert num_read > 0
            left, offset = left[num_read:], offset + num_read

    def key(self, index: int) -> int:
        """One key."""
        return int.from_bytes(os.pread(self._descriptor, 4, index * 4), sys.byteorder)


class _Run:
    """Sorted keys in a file: what `bisect` needs of a sequence, and no more."""

    def __init__(self, file: _SpillFile, first: int, length: int) -> None:
        self._file, self._first, self._length = file, first, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        return self._file.key(self._first + index)

    def read(self, start: int, keys: Keys) -> None:
        """Fill `keys` with those from `start` on."""
        self._file.read(self._first + start, keys)


class _RunRange(NamedTuple):
    """A part of a run."""

    run: _Run
    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


def _whole(runs: Iterable[_Run]) -> list[_RunRange]:
    return [_RunRange(run, 0, len(run)) for run in runs]


def _filled(ranges: Iterable[_RunRange]) -> list[_RunRange]:
    return [part for part in ranges if part.length]


def _length(ranges: Iterable[_RunRange]) -> int:
    return sum(part.length for part in ranges)


def _count_spilled_wins(clicks: list[_RunRange], others: list[_RunRange], room: Keys) -> int:
    """What `_count_wins` gives, of keys in files, with no more memory than `room`."""
    wins, others_below = 0, 0
    waiting = [(clicks, others)]  # a stack with the lowest keys on top
    while waiting:
        clicks, others = waiting.pop()
        num_clicks, num_others = _length(clicks), _length(others)
        if num_clicks and num_others and num_clicks + num_others > len(room):
            fullest = max(clicks + others, key=lambda part: part.length)
            pivot = fullest.run[(fullest.start + fullest.stop) // 2]
            click_parts, other_parts = _split(clicks, pivot), _split(others, pivot)
            # the keys that equal the pivot need not be read: they may be more than the memory holds
            below, equal, above = zip(click_parts, other_parts, strict=True)
            waiting += [above, ([], other_parts[1]), (equal[0], []), below]
            wins += _length(equal[0]) * _length(equal[1])
        else:
            wins += 2 * others_below * num_clicks
            others_below += num_others
            if num_clicks and num_others:
                wins += int(
                    _count_wins(_load(clicks, room[:num_clicks]), _load(others, room[len(room) - num_others :]))
                )
    return wins


def _split(ranges: list[_RunRange], pivot: int) -> tuple[list[_RunRange], list[_RunRange], list[_RunRange]]:
    """The parts with keys below, at and above the pivot."""
    below, equal, above = [], [], []
    for run, start, stop in ranges:
        low = bisect_left(run, pivot, start, stop)
        high = bisect_right(run, pivot, low, stop)
        below.append(_RunRange(run, start, low))
        equal.append(_RunRange(run, low, high))
        above.append(_RunRange(run, high, stop))
    return _filled(below), _filled(equal), _filled(above)


def _load(ranges: list[_RunRange], room: Keys) -> Keys:
    """Fill `room` with the keys of some ranges, sorted."""
    at = 0
    for run, start, stop in ranges:
        run.read(start, room[at : at + stop - start])
        at += stop - start
    room.sort()
    return room


def _entropy(p: float) -> float:
    return -sum(q * math.log(q) for q in (p, 1.0 - p) if q > 0.0)


@njit(nogil=True, cache=True)
def _find_rejected(logits: NDArray[np.float32], labels: NDArray[np.float32]) -> int:
    """The first row with a logit of NaN or a label that is neither 0 nor 1; −1 if there is none."""
    for row in range(len(logits)):
        if logits[row] != logits[row] or (labels[row] != 0.0 and labels[row] != 1.0):
            return row
    return -1


@njit(nogil=True, cache=True)
def _take(
    logits: NDArray[np.float32], labels: NDArray[np.float32], keys: Keys, clicks_end: int, others_start: int
) -> tuple[int, int, int, float, float]:
    """Write the keys of rows for which there is room, and give what makes their `_Sums`."""
    num_clicks, num_right = 0, 0
    loss, predicted = 0.0, 0.0
    bits_of = logits.view(np.uint32)
    for row in range(len(logits)):
        # the bits of negative floats count downwards; both zeros are one number and must have one key
        bits = bits_of[row] if logits[row] != 0.0 else np.uint32(0)
        key = ~bits if bits & _SIGN else bits | _SIGN
        logit = np.float64(logits[row])
        is_click = labels[row] == 1.0
        # written at both ends and kept at one: a branch on the label would be guessed wrong too often
        keys[clicks_end + num_clicks] = key
        keys[others_start - 1 - (row - num_clicks)] = key
        num_clicks += is_click
        tail = math.exp(-abs(logit))
        loss += max(-logit if is_click else logit, 0.0) + math.log1p(tail)
        predicted += (1.0 if logit >= 0.0 else tail) / (1.0 + tail)
        num_right += (logit > 0.0) == is_click
    return len(logits), num_clicks, num_right, loss, predicted


@njit(nogil=True, cache=True)
def _count_wins(clicks: Keys, others: Keys) -> np.uint64:
    """Twice the pairs in which the click has the larger key, plus the pairs in which both are equal; keys are sorted.

    At most 2 · clicks · others, which 64 bits hold for six billion keys: more than any buffer.
    """
    wins = np.uint64(0)
    below, not_above = 0, 0
    for key in clicks:
        while below < len(others) and others[below] < key:
            below += 1
        while not_above < len(others) and others[not_above] <= key:
            not_above += 1
        wins += np.uint64(below + not_above)
    return wins
