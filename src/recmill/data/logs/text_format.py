"""Delimited text as a raw format: plain lines go through a kernel, and a line it does not accept to the slow parser."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.header import open_source
from recmill.data.logs.infer import infer
from recmill.data.logs.raw_format import MAX_BAD_LINES, NOTHING_ASKED, AskedColumns, Draft, RawChunk, empty_raw
from recmill.data.logs.text_file import Segment, Source, read_head
from recmill.data.text.fields import RawColumns, Workspace
from recmill.data.text.kernel import FULL, ODD_LINE, WORKSPACE_ROWS, Layout, count_lines, new_workspace, parse_rows
from recmill.data.text.layout import layout_of
from recmill.data.text.reference import BadRow, Row, read_row
from recmill.jit import njit
from recmill.settings.columns import Schema
from recmill.settings.data import DataConfig

_SAMPLE_BYTES = 1 << 20


Reject = Callable[[BadRow, int, int], None]  # a bad line, how many lines of its segment are before it, its first byte


class RowSink(NamedTuple):
    """Where the lines of a segment go."""

    fill: Callable[[int, int, int], tuple[int, int, int]]  # start, stop, row → row reached, next line, why it stopped
    put: Callable[[Row, int], None]  # a row that the slow parser has read, and its number
    reject: Reject


def read_lines(segment: Segment, schema: Schema, sink: RowSink, first_row: int = 0) -> tuple[int, int]:
    """Read all lines of a segment into a sink, rows from `first_row` on; the row reached and the number of bad lines.

    A kernel reads lines until it meets an odd one, which the slow parser reads; then the kernel goes on behind it.
    """
    source, at, row, num_bad = segment.source, segment.start, first_row, 0
    body_stop = source.last_line_start(segment.start, segment.stop)
    while at < segment.stop:
        if at < body_stop:
            row, at, status = sink.fill(at, body_stop, row)
            if status != ODD_LINE:
                continue
        line_end = min(source.line_end(at), segment.stop)
        found = read_row(source.buffer[at:line_end].tobytes(), schema)
        if isinstance(found, Row):
            sink.put(found, row)
            row += 1
        else:
            sink.reject(found, row - first_row + num_bad, at)
            num_bad += 1
        at = line_end + 1
    return row, num_bad


def put_row(found: Row, out: RawColumns, row: int) -> None:
    """Write a row that the slow parser has read to its place."""
    out.labels[row], out.numbers[row], out.values[row] = found.label, found.numbers, found.values
    if len(out.weights):
        out.weights[row] = found.weight


@njit(nogil=True, cache=True)
def _copy_rows(raw: RawColumns, num_rows: int, out: RawColumns, at: int) -> None:
    out.labels[at : at + num_rows] = raw.labels[:num_rows]
    if len(raw.weights):
        out.weights[at : at + num_rows] = raw.weights[:num_rows]
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


class TextFormat:
    """Lines of fields with a separator between them, plain or packed."""

    title = "text"
    suffixes = ()  # a name that no other format claims
    evaluation_extent = 1 << 20

    def training_extent(self, data: DataConfig) -> int:
        """So many bytes."""
        return data.block_bytes

    def open(self, path: Path, schema: Schema, max_unpacked_bytes: int | None = None) -> Source:
        """The file; its rows begin behind the header, if there is one."""
        return open_source(path, schema, max_unpacked_bytes)

    def infer(self, paths: Sequence[Path], *, name: str, asked: AskedColumns = NOTHING_ASKED) -> Draft:
        """A schema file guessed from the first lines of the files."""
        samples, room = list[bytes](), _SAMPLE_BYTES
        for path in paths:
            if room > 0:
                samples.append(read_head(path, room))
                room -= len(samples[-1])
        return infer(samples, name=name, asked=asked)

    def compile(self, schema: Schema) -> None:
        """Have the kernels compiled, or loaded from their cache."""
        nothing = np.frombuffer(b"", np.uint8)  # read-only, as the bytes of a mapped file are
        count_lines(nothing, 0, 0)
        _read_range(nothing, 0, 0, layout_of(schema), _workspace(schema), empty_raw(0, schema), 0)

    def check_first(self, segment: Segment, schema: Schema) -> BadRow | None:
        """What is wrong with the first line: columns are missing, or it is another file."""
        if segment.num_bytes == 0:
            return None
        source, start = segment.source, segment.start
        found = read_row(source.buffer[start : source.line_end(start)].tobytes(), schema)
        return found if isinstance(found, BadRow) else None

    def read(self, segment: Segment, schema: Schema, *, max_bad: int | None = MAX_BAD_LINES) -> RawChunk:
        """The rows of a segment, each column in one piece, and its bad lines."""
        room, buffer = empty_raw(_count_room(segment, schema), schema), segment.source.buffer
        layout = layout_of(schema)._replace(has_breaks=segment.source.has_breaks)
        work, bad = _workspace(schema), list[tuple[int, BadRow]]()

        def fill(start: int, stop: int, row: int) -> tuple[int, int, int]:
            reached: tuple[int, int, int] = _read_range(buffer, start, stop, layout, work, room, row)
            return reached

        def put(found: Row, row: int) -> None:
            put_row(found, room, row)

        def reject(found: BadRow, line: int, _at: int) -> None:
            if max_bad is None or len(bad) < max_bad:
                bad.append((line, found))

        num_rows, num_bad = read_lines(segment, schema, RowSink(fill, put, reject))
        return RawChunk(room.rows(0, num_rows), num_rows + num_bad, tuple(bad))


def _count_room(segment: Segment, schema: Schema) -> int:
    """How many rows a segment can have at the most."""
    num_lines = int(count_lines(segment.source.buffer, segment.start, segment.stop)) + 1  # the last may be unfinished
    # a row has a separator or a newline behind each field; a megabyte of empty lines is no million rows
    return min(num_lines, segment.num_bytes // len(schema.fields) + 1)


def _workspace(schema: Schema) -> Workspace:
    widths = len(schema.dense_names), schema.num_slots, len(schema.fields)
    return new_workspace(WORKSPACE_ROWS, *widths, quoted=schema.quoted, has_weight=schema.has_weight)
