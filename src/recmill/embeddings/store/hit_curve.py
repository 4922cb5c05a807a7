"""How many rows a cache of any size would have had at hand: measured while training, on a sample of the rows.

For each use of a row it is counted how many other rows were used since its last use. A cache that lets go of the least
recently used row has it if these are fewer than its slots. One row in 2ᵏ is looked at, at equal distances, and a cache
is smaller by as much (Waldspurger et al. 2015, "Efficient MRC construction with SHARDS").
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.store.residency import Numbering
from recmill.jit import njit

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # of all rows, that a cache could hold
_MOST_SAMPLED = 1 << 16
_TIMES = 1 << 18  # uses that are numbered, before the numbers begin again


class _Uses(NamedTuple):
    """What is known of the sampled rows and their uses."""

    latest: NDArray[np.int64]  # the number of a row's last use
    batch: NDArray[np.int64]  # and of the batch that it was in
    tree: NDArray[np.int32]  # sums over numbers of uses: 1 where it is a row's last one
    clock: NDArray[np.int64]  # (1) the number of the next use
    sizes: NDArray[np.int64]  # of the caches
    counts: NDArray[np.int64]  # the uses that each of them would have had, and all that were not a row's first


class HitCurve:
    """The uses of a sample of rows."""

    def __init__(self, num_rows: int) -> None:
        self._shift = max(0, (num_rows // _MOST_SAMPLED).bit_length())
        num_sampled = (num_rows >> self._shift) + 1
        self._state = _Uses(
            latest=np.full(num_sampled, -1, np.int64),
            batch=np.full(num_sampled, -1, np.int64),
            tree=np.zeros(_TIMES + 1, np.int32),
            clock=np.zeros(1, np.int64),
            sizes=np.array([max(1, round(share * num_sampled)) for share in SHARES]),
            counts=np.zeros(len(SHARES) + 1, np.int64),
        )

    def note(self, ids: NDArray[np.int64], numbering: Numbering, number: int) -> None:
        """One more batch (B, S): its rows are used, each once."""
        first = 0
        while first < len(ids):
            first = _note(ids, numbering, self._shift, number, first, self._state)
            if first < len(ids):
                self._renumber()

    def _renumber(self) -> None:
        """Give the last uses the first numbers, in their order."""
        latest, tree = self._state.latest, self._state.tree
        rows = np.flatnonzero(latest >= 0)
        rows = rows[np.argsort(latest[rows], kind="stable")]
        latest[rows] = np.arange(len(rows))
        self._state.clock[0] = len(rows)
        tree[:] = 0
        _fill(tree, len(rows))

    def hit_rates(self) -> dict[str, float]:
        """The share of uses, without first ones, that caches would have had, by their share of all rows."""
        *hits, uses = self._state.counts.tolist()
        return {f"{share:.0%}": round(count / max(1, uses), 4) for share, count in zip(SHARES, hits, strict=True)}


@njit(inline="always")
def _add(tree: NDArray[np.int32], place: int, change: int) -> None:
    place += 1
    while place < len(tree):
        tree[place] += change
        place += place & -place


@njit(inline="always")
def _sum_up_to(tree: NDArray[np.int32], place: int) -> int:
    place, total = place + 1, 0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@njit(nogil=True, cache=True)
def _fill(tree: NDArray[np.int32], count: int) -> None:
    for place in range(count):
        _add(tree, place, 1)


@njit(nogil=True, cache=True)
def _note(
    ids: NDArray[np.int64],
    numbering: Numbering,
    shift: int,
    number: int,
    first: int,
    state: _Uses,
) -> int:
    """Note the rows of a batch from one of its lines on; the line at which the numbers of uses ran out."""
    latest, batch, tree, clock, sizes, counts = state
    mask, num_rows = (1 << shift) - 1, len(latest)
    for line in range(first, len(ids)):
        if clock[0] + ids.shape[1] >= len(tree) - 1:
            return line
        for column in range(ids.shape[1]):
            row = numbering.first_row[numbering.table_of[column]] + ids[line, column]
            if ids[line, column] < 0 or row & mask:
                continue
            row >>= shift
            if row >= num_rows or batch[row] == number:
                continue
            batch[row] = number
            if latest[row] >= 0:
                distance = _sum_up_to(tree, clock[0]) - _sum_up_to(tree, latest[row])
                for size in range(len(sizes)):
                    counts[size] += distance < sizes[size]
                counts[-1] += 1
                _add(tree, latest[row], -1)
            latest[row] = clock[0]
            _add(tree, clock[0], 1)
            clock[0] += 1
    return len(ids)
