"""Batches of several processes: each reads its own lanes, and all know what the others have read.

Everyone learns, one batch ahead, how many rows the others bring and where their lanes stand behind them. So all take
the same steps though their rows may end at different moments, and each knows the position of the whole run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns, Cursor, Position
from recmill.data.stream.stream import Part, Stream
from recmill.world import Group, World


@dataclass(frozen=True)
class GlobalBatch:
    """This process's rows of a batch, and what all processes together know of it."""

    columns: Columns
    rows_of_ranks: tuple[int, ...]
    num_skipped: int
    position: Position  # of all lanes

    @property
    def num_rows(self) -> int:
        """All processes together."""
        return sum(self.rows_of_ranks)

    @property
    def padded_rows(self) -> int:
        """Of the process that has most; all others are filled up to it."""
        return max(1, *self.rows_of_ranks)


def part_of(world: World) -> Part:
    """The lanes a process reads."""
    return Part(world.rank, world.size)


class GlobalBatches:
    """A stream's batches, agreed with all processes; every process has to ask for each of them."""

    def __init__(
        self, stream: Stream, group: Group, num_lanes: int, start: Position | None = None, *, full_rows: int = 0
    ) -> None:
        self._stream = stream
        self._full_rows = full_rows  # of a batch; shorter ones are distributed evenly
        self._group = group
        self._num_lanes = num_lanes
        size = group.world.size
        self._room = -(-num_lanes // size)  # lanes of the process that has most
        whole = start or Position((Cursor(),) * num_lanes)
        self._own = np.zeros((self._room, 3), np.int64)
        mine = whole.part(group.world.rank, size).cursors
        self._own[: len(mine)] = np.array(mine, np.int64).reshape(len(mine), 3)
        self.trailing_skipped = 0

    def __iter__(self) -> Iterator[GlobalBatch]:
        return self

    def __next__(self) -> GlobalBatch:
        batch = next(self._stream, None)
        if batch is not None:
            self._own[: len(batch.position.cursors)] = np.array(batch.position.cursors, np.int64)
        counts = [batch.num_rows, batch.num_skipped, 1] if batch else [0, 0, 0]
        known = self._group.stack(np.concatenate([np.array(counts, np.int64), self._own.ravel()]))
        if not known[:, 2].any():
            self.trailing_skipped = int(self._group.add_up(np.array([self._stream.trailing_skipped], float))[0])
            raise StopIteration
        columns = batch.columns if batch else self._stream.room_for(0)
        if known[:, 0].sum() < self._full_rows and np.ptp(known[:, 0]) > 1:
            columns, known[:, 0] = self._balanced(columns, int(known[:, 0].sum()))
        rows_of_ranks = tuple(known[:, 0].tolist())
        return GlobalBatch(columns, rows_of_ranks, int(known[:, 1].sum()), self._whole(known[:, 3:]))

    def _balanced(self, columns: Columns, num_rows: int) -> tuple[Columns, NDArray[np.int64]]:
        """The rows of a short batch, of which some processes have read more than others, distributed evenly."""
        size, rank = self._group.world.size, self._group.world.rank
        ends = num_rows * np.arange(size + 1) // size
        everyones = Columns(*(self._group.join_rows(column) for column in columns))
        return everyones.rows(int(ends[rank]), int(ends[rank + 1])), np.diff(ends)

    def _whole(self, cursors: NDArray[np.int64]) -> Position:
        """Lane i stands with process i mod size."""
        by_lane = cursors.reshape(self._group.world.size, self._room, 3).transpose(1, 0, 2).reshape(-1, 3)
        return Position(tuple(map(Cursor._make, by_lane[: self._num_lanes].tolist())))


def cut_batches(stream: Stream, group: Group, max_batches: int) -> Iterator[GlobalBatch]:
    """The first batches of a stream that every process reads whole, each of which keeps its share of the rows."""
    world = group.world
    for batch in islice(stream, max_batches):
        ends = [batch.num_rows * rank // world.size for rank in range(world.size + 1)]
        rows_of_ranks = tuple(end - start for start, end in pairwise(ends))
        columns = batch.columns.rows(ends[world.rank], ends[world.rank + 1])
        yield GlobalBatch(columns, rows_of_ranks, batch.num_skipped, batch.position)
