"""The shuffle in two passes is a permutation that depends on the seed alone."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from recmill.data.batch import Columns
from recmill.data.prepared.npy import NpyLayout
from recmill.data.prepared.shuffle import Scatter, place_ranges, read_bucket, row_dtype

LAYOUT = NpyLayout(2, 3, has_weight=True)
ROWS = 500


def _rows(start: int, stop: int) -> Columns:
    numbers = np.arange(start, stop)
    return Columns(
        np.stack([numbers, -numbers], 1).astype(np.float32),
        np.stack([numbers * 3, numbers * 5, numbers * 7], 1),
        (numbers % 2).astype(np.float32),
        (numbers / 8).astype(np.float32),
    )


def _shuffle(directory: Path, seed: int, cuts: list[int], num_buckets: int, chunk: int = 60) -> Columns:
    bounds = [0, *cuts, ROWS]
    ranges = list(pairwise(bounds))
    places = place_ranges(seed, [stop - start for start, stop in ranges], num_buckets)
    for i in reversed(range(len(ranges))):  # whoever comes first
        start, stop = ranges[i]
        scatter = Scatter(directory, seed, start, places[i], row_dtype(LAYOUT))
        for at in range(start, stop, chunk):
            scatter.write(_rows(at, min(at + chunk, stop)))
    buckets = [read_bucket(directory, b, seed, row_dtype(LAYOUT), int(places[-1, b])) for b in range(num_buckets)]
    return Columns(*(np.concatenate(arrays) for arrays in zip(*buckets, strict=True)))


@pytest.mark.parametrize("num_buckets", [1, 4, 700])
def test_every_row_comes_once_and_whole(tmp_path: Path, num_buckets: int) -> None:
    shuffled = _shuffle(tmp_path, 3, [100, 130], num_buckets)
    order = (shuffled.ids[:, 0] // 3).astype(int)
    assert sorted(order.tolist()) == list(range(ROWS))
    assert order.tolist() != list(range(ROWS))
    in_place = _rows(0, ROWS)
    for name in Columns._fields:
        np.testing.assert_array_equal(getattr(shuffled, name), getattr(in_place, name)[order])


def test_the_cut_into_ranges_changes_nothing(tmp_path: Path) -> None:
    orders = []
    for i, (cuts, chunk) in enumerate([([], 500), ([1, 2, 400], 60), ([250], 7)]):
        directory = tmp_path / str(i)
        directory.mkdir()
        orders.append(_shuffle(directory, 8, cuts, 5, chunk).ids[:, 0].tolist())
    assert orders[0] == orders[1] == orders[2]


def test_another_seed_is_another_order(tmp_path: Path) -> None:
    orders = []
    for seed in (1, 2):
        directory = tmp_path / str(seed)
        directory.mkdir()
        orders.append(_shuffle(directory, seed, [], 3).ids[:, 0].tolist())
    assert orders[0] != orders[1]


def test_rows_go_everywhere(tmp_path: Path) -> None:
    """No row keeps to its neighbourhood: the ranks of old and new places are as good as uncorrelated."""
    shuffled = _shuffle(tmp_path, 5, [100], 4)
    correlation = np.corrcoef(np.arange(ROWS), shuffled.ids[:, 0])[0, 1]
    assert abs(correlation) < 0.15
