"""How many rows other caches would have to read: where the least recently used leaves, or the one that is used last."""

import heapq
from collections.abc import Sequence

import numba as nb
import numpy as np
from numpy.typing import NDArray

Trace = Sequence[NDArray[np.int32]]
_NEVER = 1 << 30


def count_lru(trace: Trace, num_slots: int, num_rows: int, first_counted: int) -> int:
    """Rows that are read from a batch on, when the one leaves that was used longest ago."""
    rows, ends = _laid_out(trace)
    return int(_count(rows, ends, np.empty(0, np.int32), num_rows, num_slots, first_counted))


def count_belady(trace: Trace, num_slots: int, num_rows: int, first_counted: int) -> int:
    """The same when the one leaves that is used again last, as nobody can know who does not know all batches."""
    rows, ends = _laid_out(trace)
    return int(_count(rows, ends, _next_uses(rows, ends, num_rows), num_rows, num_slots, first_counted))


def _laid_out(trace: Trace) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return np.concatenate(trace), np.cumsum([0, *(len(rows) for rows in trace)])


@nb.njit(cache=True)
def _next_uses(rows: NDArray[np.int32], ends: NDArray[np.int64], num_rows: int) -> NDArray[np.int32]:
    found, latest = np.full(len(rows), _NEVER, np.int32), np.full(num_rows, _NEVER, np.int32)
    for batch in range(len(ends) - 2, -1, -1):
        for i in range(ends[batch], ends[batch + 1]):
            found[i] = latest[rows[i]]
            latest[rows[i]] = batch
    return found


@nb.njit(cache=True)
def _count(
    rows: NDArray[np.int32],
    ends: NDArray[np.int64],
    next_uses: NDArray[np.int32],
    num_rows: int,
    num_slots: int,
    first_counted: int,
) -> int:
    is_here, keys = np.zeros(num_rows, np.bool_), np.zeros(num_rows, np.int64)
    leaving = [(np.int64(0), np.int64(0))]
    leaving.pop()
    num_here = num_read = 0
    for batch in range(len(ends) - 1):
        for i in range(ends[batch], ends[batch + 1]):
            row = np.int64(rows[i])
            if not is_here[row]:
                is_here[row] = True
                num_here += 1
                num_read += batch >= first_counted
            keys[row] = -np.int64(next_uses[i]) if len(next_uses) else batch
            heapq.heappush(leaving, (keys[row], row))
        while num_here > num_slots:
            key, row = heapq.heappop(leaving)
            if is_here[row] and keys[row] == key:
                is_here[row] = False
                num_here -= 1
    return num_read
