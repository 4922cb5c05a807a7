"""Counting out of core against a Counter in memory, whatever the parts, the memory and the order of merging."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.encode.counts import CensusFile, PartCensus, Selection, merge_column, merge_runs, take_values
from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY, RawColumns

MISSING = int(MISSING_CATEGORY)
ABSENT = int(ABSENT_CATEGORY)
# in a column of one value the mark of an empty slot is a number like any other, and counted
values = st.integers(0, 30) | st.integers(2**63 + 1, 2**64 - 1) | st.just(MISSING) | st.just(ABSENT)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("census")


def _census(
    directory: Path, rows: list[tuple[int, int]], cuts: list[int], *, missing_is_zero: bool
) -> list[CensusFile]:
    """Count parts of the rows, as separate readers would."""
    bounds = [0, *sorted(cuts), len(rows)]
    files = list[CensusFile]()
    for part, (start, stop) in enumerate(pairwise(bounds)):
        census = PartCensus((0, 1), part << 40, missing_is_zero=missing_is_zero)
        array = np.array(rows[start:stop], np.uint64).reshape(-1, 2)
        for piece in np.array_split(array, 3):
            count = len(piece)
            census.add(RawColumns(np.zeros(count, np.float32), np.zeros((count, 0)), piece))
        path = directory / f"part-{part}"
        census.write(path)
        files.append(CensusFile(path, 2))
    return files


def _expected(column: list[int], selection: Selection, *, missing_is_zero: bool) -> list[int]:
    seen = [0 if value == MISSING else value for value in column if missing_is_zero or value != MISSING]
    counts = Counter(seen)  # keeps the order in which values came first
    kept = [value for value, count in counts.items() if count >= selection.min_count]
    if selection.by_frequency:
        kept.sort(key=lambda value: -counts[value])
    return kept[: selection.max_values]


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.tuples(values, values), max_size=80),
    cuts=st.lists(st.integers(0, 80), max_size=4),
    by_frequency=st.booleans(),
    min_count=st.integers(1, 3),
    max_values=st.none() | st.integers(1, 10),
    memory_bytes=st.sampled_from([1, 600, 1 << 20]),
    missing_is_zero=st.booleans(),
)
def test_counting_in_parts_is_counting(
    directory: Path,
    rows: list[tuple[int, int]],
    cuts: list[int],
    by_frequency: bool,
    min_count: int,
    max_values: int | None,
    memory_bytes: int,
    missing_is_zero: bool,
) -> None:
    selection = Selection(by_frequency, min_count, max_values)
    files = _census(directory, rows, [min(cut, len(rows)) for cut in cuts], missing_is_zero=missing_is_zero)
    for column in range(2):
        run_path = directory / "runs"
        lengths = merge_column(files, column, selection, memory_bytes, run_path)
        num_values = min(sum(lengths), max_values or sum(lengths))
        chunks = take_values(merge_runs(run_path, lengths, memory_bytes), num_values)
        actual = [int(value) for chunk in chunks for value in chunk]
        assert actual == _expected([row[column] for row in rows], selection, missing_is_zero=missing_is_zero)


def test_little_memory_makes_many_runs(directory: Path) -> None:
    """What the property above relies on: the small budgets really merge several runs."""
    rows = [(value, 0) for value in range(500)]
    files = _census(directory, rows, [250], missing_is_zero=False)
    assert len(merge_column(files, 0, Selection(by_frequency=False), 600, directory / "runs")) > 20
    assert len(merge_column(files, 0, Selection(by_frequency=False), 1 << 20, directory / "runs")) == 1


def test_more_values_than_a_table_begins_with(directory: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [(int(a), int(b)) for a, b in rng.integers(0, 2**40, (20_000, 2))]
    files = _census(directory, rows, [7_000, 9_000], missing_is_zero=False)
    selection = Selection(by_frequency=False)
    lengths = merge_column(files, 1, selection, 1 << 16, directory / "runs")
    actual = np.concatenate(list(merge_runs(directory / "runs", lengths, 1 << 19)))
    assert actual.tolist() == list(dict.fromkeys(b for _, b in rows))


@pytest.mark.parametrize("missing_is_zero", [False, True])
def test_empty_slots_are_passed_over_only_where_a_column_has_several(directory: Path, missing_is_zero: bool) -> None:
    """Three slots, the last two of them of one column."""
    census = PartCensus((0, 1, 1), 0, missing_is_zero=missing_is_zero)
    values = np.array([[ABSENT, 5, ABSENT], [7, MISSING, ABSENT], [ABSENT, 6, 5]], np.uint64)
    census.add(RawColumns(np.zeros(3, np.float32), np.zeros((3, 0)), values))
    census.write(directory / "several")
    counted = list[list[int]]()
    for column in range(2):
        files = [CensusFile(directory / "several", 2)]
        lengths = merge_column(files, column, Selection(by_frequency=False), 1 << 20, directory / "runs")
        counted.append([int(v) for chunk in merge_runs(directory / "runs", lengths, 1 << 20) for v in chunk])
    assert counted == [[ABSENT, 7], [5, 0, 6] if missing_is_zero else [5, 6]]


def test_labels_and_numbers_are_counted_too() -> None:
    census = PartCensus((), 0, missing_is_zero=False)
    numbers = np.array([[np.nan, 4.0], [-7.0, np.nan], [2.0, np.nan]])
    census.add(RawColumns(np.array([1, 0, 1], np.float32), numbers, np.zeros((3, 2), np.uint64)))
    assert (census.num_rows, census.num_clicks, census.smallest) == (3, 2, -7.0)
