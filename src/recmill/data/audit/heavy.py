"""The most frequent values of a long column, in fixed memory: Misra and Gries, with purges by the median."""

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.fields import MISSING_CATEGORY
from recmill.jit import njit, uint64
from recmill.seeds import mix64

Words = NDArray[np.uint64]

EMPTY = MISSING_CATEGORY
MAX_VALUES = 1 << 12
_CAPACITY = 2 * MAX_VALUES


@njit(inline="always")
def _slot_of(keys: Words, key: np.uint64) -> np.uint64:
    at = mix64(key) & uint64(_CAPACITY - 1)
    while keys[at] != key and keys[at] != EMPTY:
        at = (at + uint64(1)) & uint64(_CAPACITY - 1)
    return at


@njit(nogil=True, cache=True)
def _fill(keys: Words, counts: NDArray[np.int64], some_keys: Words, some_counts: NDArray[np.int64]) -> None:
    """Put values that are not there yet into the table."""
    for i in range(len(some_keys)):
        at = _slot_of(keys, some_keys[i])
        keys[at] = some_keys[i]
        counts[at] = some_counts[i]


@njit(nogil=True, cache=True)
def _purge(keys: Words, counts: NDArray[np.int64]) -> tuple[int, int]:
    """Take about the median count off all values and let go of those it leaves nothing of: it, and the values left."""
    used = np.flatnonzero(keys != EMPTY)
    old_keys, old_counts = keys[used], counts[used]
    some_counts = np.sort(old_counts[::8])  # a purge comes every few thousand rows: sorting all of them would show
    median = some_counts[len(some_counts) // 2]
    keys[:] = EMPTY
    counts[:] = 0
    left = np.flatnonzero(old_counts > median)
    _fill(keys, counts, old_keys[left], old_counts[left] - median)
    return median, len(left)


@njit(nogil=True, cache=True)
def _add(keys: Words, counts: NDArray[np.int64], inputs: Words, num_values: int) -> tuple[int, int]:
    """Count rows: how many values there are now, and how much was taken off each on the way."""
    taken = 0
    for row in range(len(inputs)):
        key = inputs[row]
        if key == EMPTY:
            continue
        at = _slot_of(keys, key)
        if keys[at] == EMPTY:
            if num_values == MAX_VALUES:
                median, num_values = _purge(keys, counts)
                taken += median
                at = _slot_of(keys, key)
            keys[at] = key
            num_values += 1
        counts[at] += 1
    return num_values, taken


class HeavyValues:
    """Counts that are too low by at most `error`; every value with more than `error` rows is among them."""

    def __init__(self) -> None:
        self._keys = np.full(_CAPACITY, EMPTY)
        self._counts = np.zeros(_CAPACITY, np.int64)
        self._num_values, self.error = 0, 0

    def seed(self, keys: Words, counts: NDArray[np.int64]) -> None:
        """Begin with the most frequent of values counted so far."""
        order = np.lexsort((keys, -counts))
        head, tail = order[: MAX_VALUES // 2], order[MAX_VALUES // 2 :]
        _fill(self._keys, self._counts, keys[head], counts[head])
        self._num_values = len(head)
        self.error = int(counts[tail].max(initial=0))

    def add(self, inputs: Words) -> None:
        """Count some rows."""
        self._num_values, taken = _add(self._keys, self._counts, inputs, self._num_values)
        self.error += taken

    def entries(self) -> tuple[Words, NDArray[np.int64]]:
        """The values, ascending, and their counts."""
        used = np.flatnonzero(self._keys != EMPTY)
        used = used[np.argsort(self._keys[used])]
        return self._keys[used], self._counts[used]
