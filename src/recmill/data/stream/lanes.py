"""The lanes of a stream: each a sequence of blocks and a place within it, and rows taken from all into one batch.

Most lanes have the rows a batch asks of them in the block they have open. Those are copied by one kernel for all lanes
together, which leaves the interpreter to the trainer; a lane that comes to the end of its block is seen to by hand.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns, Cursor, Position
from recmill.data.stream.ahead import Coming
from recmill.data.stream.block import Block
from recmill.data.text.swar import copy_rows
from recmill.jit import njit


@njit(nogil=True, cache=True)
def _deal(
    first_lane: int,
    shares: NDArray[np.int64],
    cursors: NDArray[np.int64],
    num_rows: NDArray[np.int64],
    addresses: NDArray[np.uint64],
    out: Columns,
    at: int,
) -> tuple[int, int]:
    """Copy the shares of lanes, up to one whose block does not outlast its share; that lane, and the row reached."""
    for lane in range(first_lane, len(shares)):
        row, share = cursors[lane, 2], shares[lane]
        if row + share >= num_rows[lane]:
            return lane, at
        copy_rows(addresses[lane, 0], row, out.dense, at, share)
        copy_rows(addresses[lane, 1], row, out.ids, at, share)
        copy_rows(addresses[lane, 2], row, out.labels, at, share)
        if len(out.weights):
            copy_rows(addresses[lane, 3], row, out.weights, at, share)
        cursors[lane, 2] = row + share
        at += share
    return len(shares), at


def compile_deal(nothing: Columns) -> None:
    """Have the kernel compiled, or loaded from its cache, for columns like these, which hold no row."""
    no_lanes = np.empty(0, np.int64)
    _deal(0, no_lanes, no_lanes.reshape(0, 3), no_lanes, np.empty((0, 4), np.uint64), nothing, 0)


class Lanes:
    """What a process reads: for every lane its blocks, parsed ahead, the one it has open, and a cursor."""

    def __init__(
        self,
        sequences: Sequence[Iterator[Coming[Block]]],
        shares: Sequence[int],
        start: Position,
        *,
        per_epoch: int,
        lookahead: int,
    ) -> None:
        num_lanes = len(sequences)
        self._start = start
        self._sequences = sequences  # asked for the next block, each has it parsed, sooner or later
        self._ahead = [deque(islice(sequence, lookahead)) for sequence in sequences]
        self._shares = np.array(shares, np.int64)
        self.batch_rows = sum(shares)  # what a full batch takes of these lanes
        self._per_epoch = per_epoch
        self._open = list[Block | None]([None] * num_lanes)
        self._cursors = np.array(start.cursors, np.int64).reshape(num_lanes, 3)
        self._num_rows = np.zeros(num_lanes, np.int64)  # in the open block; 0 if there is none
        self._addresses = np.zeros((num_lanes, 4), np.uint64)  # of the columns of the open block

    @property
    def is_exhausted(self) -> bool:
        """Whether all lanes have spent the last block of their last epoch."""
        return not any(self._open) and not any(self._ahead)

    @property
    def position(self) -> Position:
        """A cursor for every lane."""
        return Position(tuple(map(Cursor._make, self._cursors.tolist())))

    def deal(self, out: Columns) -> tuple[int, int]:
        """Fill `out` with every lane's share; how many rows there were, and how many bad lines were ignored.

        Fewer than all come at the end, and when a whole epoch of a lane holds no row.
        """
        lane, num_rows, num_skipped = 0, 0, 0
        while lane < len(self._shares):
            lane, num_rows = _deal(lane, self._shares, self._cursors, self._num_rows, self._addresses, out, num_rows)
            if lane < len(self._shares):
                num_rows, skipped = self._take(lane, out, num_rows)
                num_skipped += skipped
                lane += 1
        return num_rows, num_skipped

    def _take(self, lane: int, out: Columns, at: int) -> tuple[int, int]:
        """Deal the share of one lane, which may reach over several blocks."""
        wanted_end, num_skipped, num_barren = at + int(self._shares[lane]), 0, 0
        while at < wanted_end and num_barren < self._per_epoch and (opened := self._open_block(lane)) is not None:
            epoch, ordinal, row = self._cursors[lane].tolist()
            if row == 0:
                num_skipped += opened.num_skipped
            rows_left = opened.columns.num_rows - row
            count = min(wanted_end - at, rows_left)
            dense, ids, labels, weights = opened.columns.rows(row, row + count)
            out.dense[at : at + count], out.ids[at : at + count], out.labels[at : at + count] = dense, ids, labels
            out.weights[at : at + count] = weights  # of none, none
            at += count
            num_barren = 0 if count else num_barren + 1
            if count < rows_left:
                self._cursors[lane, 2] = row + count
            else:
                finished_epochs, next_ordinal = divmod(ordinal + 1, self._per_epoch)
                self._cursors[lane] = epoch + finished_epochs, next_ordinal, 0
                self._open[lane], self._num_rows[lane] = None, 0
        return at, num_skipped

    def _open_block(self, lane: int) -> Block | None:
        """The block in which a lane's cursor stands, or None behind the last one."""
        ahead = self._ahead[lane]
        if self._open[lane] is None and ahead:
            opened = ahead.popleft().result()
            row, num_rows = int(self._cursors[lane, 2]), opened.columns.num_rows
            if row and row >= num_rows:  # only a saved position can say so; behind the last row is the next block
                raise self._start.misfit(f"position[{lane}] is row {row:,} of a block of {num_rows:,} rows")
            ahead.extend(islice(self._sequences[lane], 1))
            self._open[lane], self._num_rows[lane] = opened, opened.columns.num_rows
            self._addresses[lane] = [column.ctypes.data for column in opened.columns]
        return self._open[lane]
