"""A global shuffle in two passes of bounded memory.

1. A row goes to a bucket that depends on the seed and its number alone, so how many rows of any range go to which
   bucket is known before one is read: every range has its own place in every bucket, whoever gets there first.
2. Each bucket fits into memory, is shuffled there, and written to its place in the result.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import NO_WEIGHTS, Columns
from recmill.data.prepared.npy import NpyLayout
from recmill.files import write_at
from recmill.jit import njit, uint64
from recmill.seeds import mix64, rng, stream_key


@njit(nogil=True, cache=True)
def _buckets_of(key: np.uint64, first_row: int, num_buckets: int, buckets: NDArray[np.int64]) -> None:
    for i in range(len(buckets)):
        buckets[i] = np.int64(mix64(key ^ uint64(first_row + i)) % uint64(num_buckets))


def buckets_of(seed: int, first_row: int, num_rows: int, num_buckets: int) -> NDArray[np.int64]:
    """The bucket of each of some rows."""
    buckets = np.empty(num_rows, np.int64)
    _buckets_of(np.uint64(stream_key(seed, "buckets")), first_row, num_buckets, buckets)
    return buckets


def place_ranges(seed: int, lengths: Sequence[int], num_buckets: int) -> NDArray[np.int64]:
    """(range, bucket): where a range's rows begin in each bucket; the last line holds the sizes of the buckets."""
    places = np.zeros((len(lengths) + 1, num_buckets), np.int64)
    first_row = 0
    for i, length in enumerate(lengths):
        buckets = buckets_of(seed, first_row, length, num_buckets)
        places[i + 1] = places[i] + np.bincount(buckets, minlength=num_buckets)
        first_row += length
    return places


def row_dtype(layout: NpyLayout) -> np.dtype[np.void]:
    """A row in a bucket file."""
    weight = [("weight", "<f4")] if layout.has_weight else []
    ids = ("ids", layout.dtype("sparse"), (layout.num_slots,))
    return np.dtype([("dense", "<f4", (layout.num_dense,)), ids, ("label", "<f4"), *weight])


def pack(columns: Columns, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Columns as rows."""
    rows = np.empty(columns.num_rows, dtype)
    rows["dense"], rows["ids"], rows["label"] = columns.dense, columns.ids, columns.labels
    if "weight" in (dtype.names or ()):
        rows["weight"] = columns.weights
    return rows


def unpack(rows: NDArray[np.void]) -> Columns:
    """Rows as columns."""
    weights = np.ascontiguousarray(rows["weight"]) if "weight" in (rows.dtype.names or ()) else NO_WEIGHTS
    labels = np.ascontiguousarray(rows["label"])
    return Columns(np.ascontiguousarray(rows["dense"]), rows["ids"].astype(np.int64), labels, weights)


class Scatter:
    """Deals the rows of one range to the bucket files."""

    def __init__(
        self, directory: Path, seed: int, first_row: int, places: NDArray[np.int64], dtype: np.dtype[np.void]
    ) -> None:
        self._dtype = dtype
        self._directory = directory
        self._seed = seed
        self._next_row = first_row
        self._places = places.copy()

    def write(self, columns: Columns) -> None:
        """Deal some rows."""
        buckets = buckets_of(self._seed, self._next_row, columns.num_rows, len(self._places))
        self._next_row += columns.num_rows
        order = np.argsort(buckets, kind="stable")
        rows, counts = pack(columns, self._dtype)[order], np.bincount(buckets, minlength=len(self._places))
        ends = np.cumsum(counts)
        for bucket in np.flatnonzero(counts).tolist():
            piece = rows[ends[bucket] - counts[bucket] : ends[bucket]]
            _write_rows(bucket_path(self._directory, bucket), piece, int(self._places[bucket]))
        self._places += counts


def bucket_path(directory: Path, bucket: int) -> Path:
    """The file of a bucket."""
    return directory / f"bucket-{bucket:05d}"


def _write_rows(path: Path, rows: NDArray[np.void], first_row: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        write_at(descriptor, np.ascontiguousarray(rows).view(np.uint8).data, first_row * rows.dtype.itemsize)
    finally:
        os.close(descriptor)


def read_bucket(directory: Path, bucket: int, seed: int, dtype: np.dtype[np.void], num_rows: int) -> Columns:
    """The rows of a bucket in their final order."""
    rows = np.fromfile(bucket_path(directory, bucket), dtype, num_rows) if num_rows else np.empty(0, dtype)
    return unpack(rows[rng(seed, "bucket", bucket).permutation(len(rows))])
