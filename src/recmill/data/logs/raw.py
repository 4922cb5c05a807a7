"""Segments of text or Parquet to raw columns, chunk by chunk and in their order, parsed ahead by a pool of threads."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.parquet_file import ParquetSegment, RawSegment
from recmill.data.logs.text_file import Segment
from recmill.data.stream.text_reader import WORKSPACE_ROWS
from recmill.data.text.cells import compile_cells
from recmill.data.text.fields import RawColumns, Workspace
from recmill.data.text.kernel import FULL, ODD_LINE, Layout, count_lines, new_workspace, parse_rows
from recmill.data.text.layout import layout_of
from recmill.data.text.reference import BadRow, Row, read_row
from recmill.jit import njit
from recmill.settings.columns import Schema

T = TypeVar("T")

CHUNK_BYTES = 8 << 20
MAX_BAD_LINES = 10  # kept with their text, per chunk


@dataclass(frozen=True)
class BadLine:
    """A line that is no row, and where it stands: the file, and its number there, from 1."""

    place: str
    bad: BadRow

    def describe(self) -> str:
        """The place and the complaint."""
        return f"{self.place}: {self.bad.describe()}"


@dataclass(frozen=True)
class RawChunk:
    """Parsed rows, column by column in memory, and the bad lines between them."""

    raw: RawColumns
    num_lines: int
    bad: tuple[tuple[int, BadRow], ...]  # lines of the chunk before it, and what is wrong; the first few only

    @property
    def num_bad(self) -> int:
        """How many lines are not rows."""
        return self.num_lines - len(self.raw.labels)


def empty_raw(num_rows: int, schema: Schema) -> RawColumns:
    """Room for rows, each column in one piece."""
    return RawColumns(
        np.zeros(num_rows, np.float32),
        np.empty((num_rows, len(schema.dense_names)), order="F"),
        np.empty((num_rows, schema.num_slots), np.uint64, order="F"),
    )


@njit(nogil=True, cache=True)
def _copy_rows(raw: RawColumns, num_rows: int, out: RawColumns, at: int) -> None:
    out.labels[at : at + num_rows] = raw.labels[:num_rows]
    for column in range(out.numbers.shape[1]):
        for row in range(num_rows):
            out.numbers[at + row, column] = raw.numbers[row, column]
    for column in range(out.values.shape[1]):
        for row in range(num_rows):
            out.values[at + row, column] = raw.values[row, column]


@njit(nogil=True, cache=True)
def _read_range(
    buffer: NDArray[np.uint8], start: int, stop: int, layout: Layout, work: Workspace, out: RawColumns, first_row: int
) -> tuple[int, int, int]:
    """Fill `out` from `first_row` on: the row reached, where the next line begins, and why it stopped there."""
    at, row, status = start, first_row, FULL
    while status == FULL:
        count, at, status = parse_rows(buffer, at, stop, layout, work)
        _copy_rows(work.raw, count, out, row)
        row += count
    return row, at, status


def read_raw(segment: RawSegment, schema: Schema) -> RawChunk:
    """The rows of a segment, and the first of its bad lines."""
    return _read_parquet(segment) if isinstance(segment, ParquetSegment) else _read_text(segment, schema)


def _read_parquet(segment: ParquetSegment) -> RawChunk:
    source, rows = segment.source, segment.source.read(segment.start, segment.stop)
    good = rows.without_bad()
    raw = RawColumns(good.labels, np.asfortranarray(good.numbers), np.asfortranarray(good.values))
    bad = [
        (row, source.describe(segment.start + row, int(rows.flaws[row])))
        for row in np.flatnonzero(rows.flaws)[:MAX_BAD_LINES].tolist()
    ]
    return RawChunk(raw, segment.extent, tuple(bad))


def _read_text(segment: Segment, schema: Schema) -> RawChunk:
    source, at = segment.source, segment.start
    room = empty_raw(_count_room(segment, schema), schema)
    layout, work = layout_of(schema), _workspace(schema)
    body_stop = source.last_line_start(segment.start, segment.stop)
    row, num_lines, bad = 0, 0, list[tuple[int, BadRow]]()
    while at < segment.stop:
        if at < body_stop:
            first_row = row
            row, at, status = _read_range(source.buffer, at, body_stop, layout, work, room, row)
            num_lines += row - first_row
            if status != ODD_LINE:
                continue
        line_end = min(source.line_end(at), segment.stop)
        verdict = read_row(source.buffer[at:line_end].tobytes(), schema)
        if isinstance(verdict, Row):
            room.labels[row], room.numbers[row], room.values[row] = verdict.label, verdict.numbers, verdict.values
            row += 1
        elif len(bad) < MAX_BAD_LINES:
            bad.append((num_lines, verdict))
        num_lines += 1
        at = line_end + 1
    return RawChunk(RawColumns(room.labels[:row], room.numbers[:row], room.values[:row]), num_lines, tuple(bad))


def read_chunks(
    segment: RawSegment, schema: Schema, pool: ThreadPoolExecutor, *, num_ahead: int
) -> Generator[RawChunk]:
    """The chunks of a segment in their order, at most `num_ahead` of them in memory or in the making."""
    yield from read_ahead((partial(read_raw, part, schema) for part in segment.cut(CHUNK_BYTES)), pool, num_ahead)


def read_ahead(tasks: Iterable[Callable[[], T]], pool: ThreadPoolExecutor, num_ahead: int) -> Generator[T]:
    """What the tasks give, in their order, at most `num_ahead` of them done or under way."""
    waiting: deque[Future[T]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(task))
            if len(waiting) == num_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # whoever stops early closes the source next, and nobody may read it then
        wait([chunk for chunk in waiting if not chunk.cancel()])


def compile_reader(schema: Schema) -> None:
    """Have the kernels compiled, or loaded from their cache, before anyone waits for rows."""
    if schema.format == "parquet":
        compile_cells()
        return
    nothing = np.frombuffer(b"", np.uint8)  # read-only, as the bytes of a mapped file are
    count_lines(nothing, 0, 0)
    _read_range(nothing, 0, 0, layout_of(schema), _workspace(schema), empty_raw(0, schema), 0)


def _count_room(segment: Segment, schema: Schema) -> int:
    """How many rows a segment can have at the most."""
    num_lines = int(count_lines(segment.source.buffer, segment.start, segment.stop)) + 1  # the last may be unfinished
    # a row has a separator or a newline behind each field; a megabyte of empty lines is no million rows
    return min(num_lines, segment.num_bytes // len(schema.columns) + 1)


def _workspace(schema: Schema) -> Workspace:
    return new_workspace(WORKSPACE_ROWS, len(schema.dense_names), schema.num_slots, len(schema.columns))
