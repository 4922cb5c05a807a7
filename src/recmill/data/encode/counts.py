"""Counting category values out of core: how often each occurs, and where first.

1. A part of the input is counted into one table per column and written down, grouped by the high bits of a hash.
2. For each column those groups are merged over all parts, as many at a time as memory allows, rare values are dropped,
   and what is left is sorted into the order in which the vocabulary gives out rows.
3. Sorted runs that did not fit into memory together are merged on their way into the vocabulary.

Sums and minima do not depend on the order of the parts, and no two values occur first at the same place (of several in
one field each has its own): so the result depends on neither the number of threads nor the memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY, RawColumns
from recmill.files import write_atomic
from recmill.jit import njit, uint64
from recmill.seeds import mix64

ENTRY = np.dtype([("value", np.uint64), ("count", np.int64), ("first", np.int64)])
KEPT = np.dtype([("rank", np.int64), ("first", np.int64), ("value", np.uint64)])
NUM_GROUPS = 64
_GROUP_SHIFT = np.uint64(64 - 6)
_FREE = MISSING_CATEGORY
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SMALLEST = 1 << 10
# An entry in a table at most half full, while a table twice as large takes its place.
_TABLE_BYTES_PER_ENTRY = 6 * ENTRY.itemsize


def _new_slots(num_slots: int) -> NDArray[np.void]:
    """An open-addressing table of entries; free slots hold the value that no value equals."""
    return np.full(num_slots, np.array((_FREE, 0, np.iinfo(np.int64).max), ENTRY))


@njit(nogil=True, cache=True)
def _note(slots: NDArray[np.void], value: np.uint64, count: int, first: int) -> bool:
    """Add to a value's count; whether it is new."""
    mask = uint64(len(slots) - 1)
    slot = (((value ^ (value >> uint64(32))) * _GOLDEN) >> uint64(32)) & mask
    found = slots[slot].value
    while found != value and found != _FREE:
        slot = (slot + uint64(1)) & mask
        found = slots[slot].value
    slots[slot].value = value
    slots[slot].count += count
    slots[slot].first = min(first, slots[slot].first)
    return found == _FREE


class Reading(NamedTuple):
    """How the values of a column are to be understood."""

    missing_is_zero: bool
    may_be_absent: bool  # the column has several slots, and a row may leave some of them empty


@njit(nogil=True, cache=True)
def _note_values(
    values: NDArray[np.uint64], first: int, step: int, reading: Reading, slots: NDArray[np.void], room: int
) -> tuple[int, int]:
    """Count values until `room` new ones are met; how many were taken, and how many of them are new."""
    num_new = 0
    for row in range(len(values)):
        if num_new == room:
            return row, num_new
        value = values[row]
        if value == ABSENT_CATEGORY and reading.may_be_absent:
            continue
        if value == MISSING_CATEGORY:
            if not reading.missing_is_zero:
                continue
            value = uint64(0)
        num_new += _note(slots, value, 1, first + row * step)
    return len(values), num_new


@njit(nogil=True, cache=True)
def _note_entries(entries: NDArray[np.void], slots: NDArray[np.void]) -> int:
    """Add what was counted elsewhere; how many values are new."""
    num_new = 0
    for i in range(len(entries)):
        if entries[i].value != _FREE:
            num_new += _note(slots, entries[i].value, entries[i].count, entries[i].first)
    return num_new


@njit(nogil=True, cache=True)
def _gather_groups(slots: NDArray[np.void], entries: NDArray[np.void], bounds: NDArray[np.int64]) -> None:
    """Copy what the table holds, group beside group; where each group begins and the last one ends."""
    for slot in range(len(slots)):
        if slots[slot].value != _FREE:
            bounds[np.int64(mix64(slots[slot].value) >> _GROUP_SHIFT) + 1] += 1
    for group in range(NUM_GROUPS):
        bounds[group + 1] += bounds[group]
    places = bounds[:NUM_GROUPS].copy()
    for slot in range(len(slots)):
        if slots[slot].value != _FREE:
            own_group = np.int64(mix64(slots[slot].value) >> _GROUP_SHIFT)
            entries[places[own_group]] = slots[slot]
            places[own_group] += 1


class Counter:
    """The values of one column: a table that doubles whenever it is half full."""

    def __init__(self) -> None:
        self._slots = _new_slots(_SMALLEST)
        self.num_values = 0

    def note_values(self, values: NDArray[np.uint64], first: int, step: int, reading: Reading) -> None:
        """Count the values of rows, the first of which stands at position `first`, the others `step` behind another."""
        row = 0
        while row < len(values):
            room = len(self._slots) // 2 - self.num_values
            taken, num_new = _note_values(values[row:], first + row * step, step, reading, self._slots, room)
            row += taken
            self.num_values += num_new
            self._reserve(1)

    def note_entries(self, entries: NDArray[np.void]) -> None:
        """Add what was counted elsewhere."""
        self._reserve(len(entries))
        self.num_values += _note_entries(np.ascontiguousarray(entries), self._slots)

    def _reserve(self, num_more: int) -> None:
        needed = 2 * (self.num_values + num_more)
        if needed > len(self._slots):
            larger = _new_slots(1 << (needed - 1).bit_length())
            _note_entries(self._slots, larger)
            self._slots = larger

    def entries(self) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """All values, group beside group, and where each group begins and the last one ends."""
        entries, bounds = np.empty(self.num_values, ENTRY), np.zeros(NUM_GROUPS + 1, np.int64)
        _gather_groups(self._slots, entries, bounds)
        return entries, bounds


class PartCensus:
    """What is counted while one part of the input is read: rows, clicks, the smallest number, and all values."""

    def __init__(self, slot_columns: Sequence[int], first_position: int, *, missing_is_zero: bool) -> None:
        """The column of each slot of a row is given; none leaves the values alone."""
        self._slot_columns = slot_columns
        self._counters = [Counter() for _ in range(max(slot_columns, default=-1) + 1)]
        self._readings = [Reading(missing_is_zero, slot_columns.count(column) > 1) for column in slot_columns]
        self._position = first_position
        self.num_rows = 0
        self.num_clicks = 0
        self.smallest = 0.0

    def add(self, raw: RawColumns) -> None:
        """Count some rows: column by column, so that one table at a time is in the cache."""
        num_slots = len(self._slot_columns)
        for slot, column in enumerate(self._slot_columns):
            values, first = np.ascontiguousarray(raw.values[:, slot]), self._position * num_slots + slot
            self._counters[column].note_values(values, first, num_slots, self._readings[slot])
        self._position += len(raw.labels)
        self.num_rows += len(raw.labels)
        self.num_clicks += int(raw.labels.sum(dtype=np.float64))
        self.smallest = float(np.fmin.reduce(raw.numbers, axis=None, initial=self.smallest))  # ignores NaN

    def write(self, path: Path) -> None:
        """One file: where the groups of all columns lie, then the entries."""
        pieces, bounds, start = [], np.zeros((len(self._counters), NUM_GROUPS + 1), np.int64), 0
        for column, counter in enumerate(self._counters):
            entries, column_bounds = counter.entries()
            bounds[column] = column_bounds + start
            start += len(entries)
            pieces.append(entries.tobytes())
        write_atomic(path, b"".join([bounds.tobytes(), *pieces]), durable=False)


@dataclass(frozen=True)
class CensusFile:
    """What a PartCensus wrote."""

    path: Path
    num_columns: int

    def bounds(self) -> NDArray[np.int64]:
        """(column, group): where each group begins among the entries; the last of a column is its end."""
        shape = (self.num_columns, NUM_GROUPS + 1)
        return np.fromfile(self.path, np.int64, shape[0] * shape[1]).reshape(shape)

    def read(self, start: int, stop: int) -> NDArray[np.void]:
        """Some of the entries."""
        offset = self.num_columns * (NUM_GROUPS + 1) * 8 + start * ENTRY.itemsize
        return np.fromfile(self.path, ENTRY, stop - start, offset=offset)


@dataclass(frozen=True)
class Selection:
    """Which values get a row, and in which order: as first seen, or the most frequent first (ties as first seen)."""

    by_frequency: bool
    min_count: int = 1
    max_values: int | None = None

    def keep(self, entries: NDArray[np.void]) -> NDArray[np.void]:
        """Those that are frequent enough, in their order."""
        entries = entries[entries["count"] >= self.min_count]
        kept = np.empty(len(entries), KEPT)
        kept["rank"] = -entries["count"] if self.by_frequency else 0
        kept["first"], kept["value"] = entries["first"], entries["value"]
        return _in_order(kept)


def _in_order(kept: NDArray[np.void]) -> NDArray[np.void]:
    if not kept["rank"].any():
        return kept[np.argsort(kept["first"])]
    return kept[np.lexsort((kept["first"], kept["rank"]))]


def merge_column(
    censuses: Sequence[CensusFile], column: int, selection: Selection, memory_bytes: int, run_path: Path
) -> list[int]:
    """Merge a column over all parts into sorted runs, written behind one another; the length of each run.

    Each run holds whole groups, as many as fit into memory.
    """
    bounds = np.stack([census.bounds()[column] for census in censuses])
    sizes = np.diff(bounds, axis=1).sum(axis=0)
    run_lengths = list[int]()
    with run_path.open("wb") as file:
        for first, end in _spans(sizes, max(1, memory_bytes // _TABLE_BYTES_PER_ENTRY)):
            counter = Counter()
            for census, places in zip(censuses, bounds, strict=True):
                counter.note_entries(census.read(int(places[first]), int(places[end])))
            run = selection.keep(counter.entries()[0])
            run.tofile(file)
            run_lengths.append(len(run))
    return run_lengths


def _spans(sizes: NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Neighbouring groups that together stay below the limit; a group that is larger stands alone."""
    first, total = 0, 0
    for group, size in enumerate(sizes.tolist()):
        if total and total + size > limit:
            yield first, group
            first, total = group, 0
        total += size
    yield first, len(sizes)


def merge_runs(run_path: Path, run_lengths: Sequence[int], memory_bytes: int) -> Iterator[NDArray[np.uint64]]:
    """The values of all runs in one order, some at a time."""
    starts = np.concatenate([[0], np.cumsum(run_lengths, dtype=np.int64)])
    places, ends = starts[:-1].tolist(), starts[1:].tolist()
    step = max(1, memory_bytes // (4 * KEPT.itemsize * max(1, len(run_lengths))))
    while any(place < end for place, end in zip(places, ends, strict=True)):
        heads = [
            np.fromfile(run_path, KEPT, min(step, end - place), offset=place * KEPT.itemsize)
            for place, end in zip(places, ends, strict=True)
        ]
        # what lies behind a head is not smaller than its last element: nothing up to the least of those is missing
        unfinished = [head[-1] for head, place, end in zip(heads, places, ends, strict=True) if place + step < end]
        limit = min(((last["rank"], last["first"]) for last in unfinished), default=None)
        taken = [head if limit is None else head[: _count_upto(head, limit)] for head in heads]
        places = [place + len(head) for place, head in zip(places, taken, strict=True)]
        merged = taken[0] if len(taken) == 1 else _in_order(np.concatenate(taken))
        yield np.ascontiguousarray(merged["value"])


def _count_upto(head: NDArray[np.void], limit: tuple[int, int]) -> int:
    rank, first = limit
    return int(np.count_nonzero((head["rank"] < rank) | ((head["rank"] == rank) & (head["first"] <= first))))


def take_values(chunks: Iterable[NDArray[np.uint64]], num_values: int) -> Iterator[NDArray[np.uint64]]:
    """The first so many values of a sequence of chunks."""
    for chunk in chunks:
        if num_values <= 0:
            return
        yield chunk[:num_values]
        num_values -= len(chunk)
