"""Raw or prepared rows to shuffled batches, in an order that depends on the seed, the epoch and the files alone.

1. All segments, laid end to end, are cut into blocks of equal extent: of text, a block is the lines that begin in so
   many bytes; of prepared rows, so many rows.
2. A seeded permutation distributes the blocks over a fixed number of lanes, the same number of bytes to each.
3. A lane shuffles the rows within each of its blocks and hands them out one after the other.
4. A global batch takes an equal share of every lane. A lane at the end of an epoch goes on to the next one without
   waiting for the others, and lanes know nothing of each other: a process of several reads the lanes rank,
   rank + size, …, and whatever their number, all together see the same global batches while each reads only its part
   of the files. Batches are full until the first lane comes to the end of the last epoch; then those behind are short,
   and few, because lanes hold as many bytes and so about as many rows. To fill short batches from the lanes that
   have rows left, a process would have to know how many rows the lanes of others hold, which nobody knows who has not
   read them.
5. Blocks are parsed by threads, ahead of time or between batches (`ahead.py`). A batch carries the position behind
   it, and a stream opened at that position yields exactly the rest.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, count
from types import TracebackType
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Batch, Columns, Cursor, Position
from recmill.data.stream.ahead import Background, Coming, EagerPool, LazyPool, Pool, ReadAhead
from recmill.data.stream.block import Block, Reader, StreamSegment
from recmill.data.stream.lanes import Lanes, compile_deal
from recmill.errors import DataError
from recmill.jit import njit, uint64
from recmill.seeds import mix64, rng, stream_key
from recmill.settings.data import lanes_in_use


@dataclass(frozen=True)
class Order:
    """How rows are put into batches; `seed` None keeps the order of the files, `epochs` None never ends."""

    global_batch: int
    seed: int | None = None
    epochs: int | None = 1
    num_lanes: int = 1
    block_extent: int = 1 << 20  # bytes of text, or prepared rows

    @property
    def lanes(self) -> range:
        """The lanes in use: each gives some rows to every batch."""
        return range(lanes_in_use(self.global_batch, self.num_lanes))

    def share(self, lane: int) -> int:
        """How many rows of a global batch come from a lane; the shares add up to the batch."""
        return self.global_batch * (lane + 1) // len(self.lanes) - self.global_batch * lane // len(self.lanes)


@dataclass(frozen=True)
class Part:
    """The lanes that this process, one of `size`, reads."""

    rank: int = 0
    size: int = 1


S = TypeVar("S", bound=StreamSegment)


class Blocks(Generic[S]):
    """Segments cut into blocks, as many for every lane."""

    def __init__(self, segments: Sequence[S], order: Order) -> None:
        self._segments = segments
        self._starts = [0, *accumulate(segment.extent for segment in segments)]
        self.extent = self._starts[-1]
        self._num_lanes = len(order.lanes)
        self.per_lane = max(1, round(self.extent / (self._num_lanes * order.block_extent)))
        self.num_blocks = self.per_lane * self._num_lanes
        self._seed = order.seed
        self.deal = lru_cache(maxsize=2)(self._deal)  # lanes are in one epoch or at the seam of two

    def _deal(self, epoch: int) -> NDArray[np.int64]:
        """The numbers of the blocks in an epoch's order, (lane, ordinal)."""
        numbers = np.arange(self.num_blocks)
        if self._seed is not None:
            numbers = rng(self._seed, "blocks", epoch).permutation(numbers)
        return numbers.reshape(self.per_lane, self._num_lanes).T

    def sequence(self, lane: int, start: Cursor, epochs: int | None) -> Iterator[tuple[int, int]]:
        """Epoch and number of a lane's blocks, from the one in which a cursor stands to the end of the last epoch."""
        first = start.ordinal
        for epoch in count(start.epoch) if epochs is None else range(start.epoch, epochs):
            for number in self.deal(epoch)[lane, first:].tolist():
                yield epoch, number
            first = 0

    def describe(self) -> str:
        """The first file and how many follow it, for messages."""
        names = [str(segment.source.path) for segment in self._segments] or ["no files"]
        return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")

    def pieces(self, number: int) -> list[S]:
        """The lines of a block, which may lie in several files."""
        start = number * self.extent // self.num_blocks
        stop = (number + 1) * self.extent // self.num_blocks
        first = max(0, bisect_right(self._starts, start) - 1)
        last = bisect_right(self._starts, stop - 1) - 1
        return [
            self._segments[i].part(max(0, start - self._starts[i]), stop - self._starts[i])
            for i in range(first, min(last + 1, len(self._segments)))
        ]


@njit(nogil=True, cache=True)
def _copy_shuffled(source: Columns, key: np.uint64, epoch: int, number: int, out: Columns) -> None:
    """The rows of a block in an order that depends on the key, the epoch and the number of the block."""
    row_order = np.arange(len(source.labels))
    key = mix64(mix64(key ^ uint64(epoch)) ^ uint64(number))
    for i in range(len(row_order) - 1, 0, -1):
        j = np.int64(mix64(key ^ uint64(i)) % uint64(i + 1))
        row_order[i], row_order[j] = row_order[j], row_order[i]
    for i in range(len(row_order)):
        row = row_order[i]
        out.labels[i] = source.labels[row]
        if len(source.weights):
            out.weights[i] = source.weights[row]
        for column in range(source.dense.shape[1]):
            out.dense[i, column] = source.dense[row, column]
        for column in range(source.ids.shape[1]):
            out.ids[i, column] = source.ids[row, column]


def compile_kernels(reader: Reader) -> None:
    """Have what shuffles and batches rows compiled now rather than while someone waits for a batch."""
    nothing = reader.room_for(0)
    _copy_shuffled(nothing, np.uint64(0), 0, 0, nothing)
    compile_deal(nothing)


class Stream:
    """Batches of some segments, read ahead in the background; close it, or use it in a `with` statement."""

    def __init__(
        self,
        reader: Reader,
        segments: Sequence[StreamSegment],
        order: Order,
        *,
        start: Position | None = None,
        part: Part = Part(),  # noqa: B008 frozen
        ahead: ReadAhead = ReadAhead(),  # noqa: B008 frozen
    ) -> None:
        self._reader = reader
        self._order = order
        self._rows_key = 0 if order.seed is None else stream_key(order.seed, "rows")
        self._blocks = Blocks(segments, order)
        self._lanes = order.lanes[part.rank :: part.size]
        self._is_alone = part.size == 1
        self._start = start or Position((Cursor(),) * len(self._lanes))
        self._refuse_misfit(self._start)
        self._lookahead = max(1, 2 * ahead.threads // len(order.lanes))
        self.trailing_skipped = 0  # bad lines behind the last batch
        self._is_closed = False
        self._pool: Pool = EagerPool(ahead.threads) if ahead.batches else LazyPool(ahead.threads)
        batches = self._deal_batches()
        self._batches = Background(batches, ahead.batches) if ahead.batches else batches

    def _refuse_misfit(self, start: Position) -> None:
        """Complain about a position in which no stream of these lanes and blocks can stand."""
        if len(start.cursors) != len(self._lanes):
            raise start.misfit(f"position has {len(start.cursors)} lanes, expected {len(self._lanes)}")
        per_lane = self._blocks.per_lane
        for lane, (epoch, ordinal, row) in enumerate(start.cursors):
            if not (epoch >= 0 and 0 <= ordinal < per_lane and row >= 0):
                place = f"epoch {epoch:,}, block {ordinal:,}, row {row:,}"
                raise start.misfit(f"position[{lane}] is {place}, and an epoch has {per_lane:,} blocks there")

    @property
    def extent(self) -> int:
        """How much an epoch reads, all processes together: bytes of text, or prepared rows."""
        return self._blocks.extent

    def room_for(self, num_rows: int) -> Columns:
        """Columns like those of its batches, not yet filled."""
        return self._reader.room_for(num_rows)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if self._is_closed:
            raise StopIteration
        try:
            return next(self._batches)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the background threads and let go of what they read."""
        self._is_closed = True
        self._pool.cancel()
        self._batches.close()
        self._pool.close()

    def _deal_batches(self) -> Generator[Batch]:
        lanes = self._open_lanes()
        num_batches, num_empty, pending_skipped = 0, 0, 0
        while not lanes.is_exhausted:
            room = self._reader.room_for(lanes.batch_rows)
            num_rows, num_skipped = lanes.deal(room)
            columns, position = room.rows(0, num_rows), lanes.position
            pending_skipped += num_skipped
            if columns.num_rows or not self._is_alone:  # of several processes, each keeps step with the others
                yield Batch(columns, position, pending_skipped)
                num_batches, num_empty, pending_skipped = num_batches + 1, 0, 0
                continue
            # No lane found a row in an epoch of its blocks. Once all are past one and the same epoch, there is none.
            num_empty += 1
            if num_empty > 2 + max(cursor.epoch for cursor in position.cursors) - position.epoch:
                break
        self.trailing_skipped = pending_skipped
        began_at_start = self._start.cursors == (Cursor(),) * len(self._lanes)
        if num_batches == 0 and began_at_start and self._is_alone:
            why = "all lines are bad, and were ignored" if pending_skipped else "the files hold no line"
            raise DataError(f"there is no row to read in {self._blocks.describe()}: {why}")

    def _open_lanes(self) -> Lanes:
        return Lanes(
            [self._read_ahead(lane, cursor) for lane, cursor in zip(self._lanes, self._start.cursors, strict=True)],
            [self._order.share(lane) for lane in self._lanes],
            self._start,
            per_epoch=self._blocks.per_lane,
            lookahead=self._lookahead,
        )

    def _read_ahead(self, lane: int, start: Cursor) -> Iterator[Coming[Block]]:
        """A lane's blocks from a cursor on; one that was asked for will be parsed, and until then comes nearer."""
        for epoch, number in self._blocks.sequence(lane, start, self._order.epochs):
            pieces = self._blocks.pieces(number)
            for piece in pieces:
                piece.fetch()
            yield self._pool.submit(self._read_block, epoch, number, pieces)

    def _read_block(self, epoch: int, number: int, pieces: Sequence[StreamSegment]) -> Block:
        """The rows of a block in the order in which they are handed out: shuffled here, while they are in the cache."""
        block = self._reader.read(pieces)
        if self._order.seed is None:
            return block
        shuffled = self._reader.room_for(block.columns.num_rows)
        _copy_shuffled(block.columns, np.uint64(self._rows_key), epoch, number, shuffled)
        return Block(shuffled, block.num_skipped)
