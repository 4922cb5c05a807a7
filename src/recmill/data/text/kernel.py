"""Bytes of delimited text to columns: the kernel every raw row passes through.

1. The kernel is handed a range of a buffer that begins at a line start and ends just behind a newline.
2. It finds the separators and newlines, 64 bytes at a time, and so knows the bounds of every field of some hundred
   lines before it looks at one. A CR before the newline is one more end, of nothing. Where fields may be quoted, those
   inside quotes do not count; and lines with quotes are copied without them.
3. Then it gathers the fields, row by row, as raw words; and decodes them, column type by column type, in loops without
   a branch. It writes numbers (NaN = missing) and 64-bit category values.
4. Rows that are plainly right it accepts. At anything else it stops and gives the line back: `reference.read_row`, slow
   and obvious, decides what it is.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.fields import FieldRun, RawColumns, Text, Workspace, read_run
from recmill.data.text.quotes import CARRIAGE_RETURN, NEWLINE, QUOTE, enclosed, new_quoting, take_off_quotes
from recmill.data.text.swar import count_ones, item, match64, trailing_zeros
from recmill.jit import njit, uint64

# Why the kernel came back: there is no more, there is more than it had room for, or the next line is odd.
FINISHED, FULL, ODD_LINE = range(3)

MAX_LINE_BYTES = 1 << 20
# So many Criteo rows, their text and all that is noted of them fill 200 KiB: they stay in the second-level cache.
WORKSPACE_ROWS = 256
_PADDING = 64  # how far behind its range the kernel reads: it looks at 64 bytes at a time


class Layout(NamedTuple):
    """What the kernel needs to know of a schema. Columns of one kind that stand side by side are a run."""

    separator: np.uint8
    quoted: bool  # fields may stand in double quotes
    num_fields: int
    runs: NDArray[np.int64]  # (runs, 5 and more): what a FieldRun says
    has_breaks: bool = False  # a newline inside quotes is part of a field, and not the end of a bad line


def new_workspace(
    num_rows: int, num_dense: int, num_slots: int, num_fields: int, *, quoted: bool, has_weight: bool = False
) -> Workspace:
    """Room for so many lines at once."""
    assert num_rows * MAX_LINE_BYTES <= 1 << 30, "the ends of fields must fit into 32 bits"
    raw = RawColumns(
        np.zeros(num_rows, np.float32),
        np.empty((num_rows, num_dense)),
        np.empty((num_rows, num_slots), np.uint64),
        np.empty(num_rows if has_weight else 0, np.float32),
    )
    return Workspace(
        raw,
        np.empty((num_rows, num_dense), np.uint64),
        # a line end of two bytes is an end more, and 64 bytes may hold as many fields behind the last line
        np.full(1 + num_rows * (num_fields + 1) + 64, -1, np.int32),
        np.zeros(1 + num_rows, np.int64),
        new_quoting(num_rows, quoted=quoted),
    )


@njit(nogil=True, cache=True)
def _note_fields(found: np.uint64, first: np.int32, field_ends: NDArray[np.int32], num_fields: np.int64) -> None:
    """Write down where fields end: four at a time, though there may be fewer, because branches cost more."""
    at = uint64(num_fields)
    while found != 0:
        for i in range(4):
            field_ends[at + uint64(i)] = first + np.int32(trailing_zeros(found))
            found &= found - uint64(1)
        at += uint64(4)


def _index_kernel(quoted: bool) -> Any:
    """Two kernels rather than one that asks: a question in this loop, always answered alike, costs 80 ns a row."""

    @njit(nogil=True, cache=True)
    def index_lines(buffer: NDArray[np.uint8], start: int, stop: int, layout: Layout, work: Workspace) -> int:
        """Find the fields of as many whole lines as there is room for; how many lines that are.

        There are fewer only at the end of the range and before a line that is odd: it holds a NUL, or a newline inside
        quotes where none is expected; more fields than there is room for, or too many bytes.
        """
        max_lines = len(work.fields_upto) - 1
        field_ends = work.field_ends[1:]
        last_field = len(field_ends) - 64
        stop = min(stop, start + max_lines * MAX_LINE_BYTES)
        at, num_lines, num_fields, num_quotes = start, 0, np.int64(0), np.int64(0)
        quotes, inside = uint64(0), uint64(0)  # all ones while a quote is open
        while at < stop and num_lines < max_lines and num_fields <= last_field:
            newlines, separators = match64(buffer, at, NEWLINE), match64(buffer, at, layout.separator)
            odd = match64(buffer, at, np.uint8(0))
            behind = uint64(item(buffer, at + 64) == NEWLINE) << uint64(63)
            if quoted:
                quotes = match64(buffer, at, QUOTE)
                within = enclosed(quotes) ^ inside
                odd |= uint64(0) if layout.has_breaks else newlines & within
                inside = uint64(0) - (within >> uint64(63))
                newlines, separators, behind = newlines & ~within, separators & ~within, behind & ~inside
            ends = separators | newlines | (match64(buffer, at, CARRIAGE_RETURN) & ((newlines >> uint64(1)) | behind))
            if odd != 0 or at + 64 > stop:
                beyond = odd | (uint64(1) << uint64(min(stop - at, 63)))
                valid = (beyond & (~beyond + uint64(1))) - uint64(1)
                newlines, ends, stop = newlines & valid, ends & valid, at
            while newlines != 0 and num_lines < max_lines:
                upto = newlines ^ (newlines - uint64(1))
                num_lines += 1
                work.fields_upto[num_lines] = num_fields + np.int64(count_ones(ends & upto))
                if quoted:
                    work.quoting.quotes_upto[num_lines] = num_quotes + np.int64(count_ones(quotes & upto))
                newlines &= newlines - uint64(1)
            _note_fields(ends, np.int32(at - start), field_ends, num_fields)
            num_fields += np.int64(count_ones(ends))
            num_quotes += np.int64(count_ones(quotes))
            at += 64
        return num_lines

    return index_lines


_index_lines, _index_quoted_lines = _index_kernel(False), _index_kernel(True)


@njit(nogil=True, cache=True)
def _count_plain_lines(text: Text, num_fields: int, work: Workspace, num_lines: int) -> int:
    """How many lines come before the first whose fields are too few or many, or that is too long."""
    for row in range(num_lines):
        first, last = work.fields_upto[row], work.fields_upto[row + 1]
        begin, newline = np.int64(work.field_ends[first]) + 1, np.int64(work.field_ends[last])
        ends_in_cr = newline > begin and item(text.buffer, text.start + newline - 1) == CARRIAGE_RETURN
        if last - first != num_fields + np.int64(ends_in_cr) or newline - begin >= MAX_LINE_BYTES:
            return row
    return num_lines


@njit(nogil=True, cache=True)
def _read_runs(text: Text, layout: Layout, work: Workspace, num_rows: int) -> int:
    """Fill all columns; how many rows come before the first that is odd."""
    for i in range(len(layout.runs)):
        of_run = layout.runs[i]
        run = FieldRun(of_run[0], of_run[1], of_run[2], of_run[3], of_run[4], of_run[5:])
        num_rows = read_run(text, run, work, num_rows)
    return num_rows


@njit(nogil=True, cache=True)
def _parse_padded(text: Text, stop: int, layout: Layout, work: Workspace) -> tuple[int, np.int64, int]:
    """`parse_rows` where the buffer may be read some bytes further than the range."""
    max_rows = len(work.raw.labels)
    if layout.quoted:
        num_lines = _index_quoted_lines(text.buffer, text.start, stop, layout, work)
    else:
        num_lines = _index_lines(text.buffer, text.start, stop, layout, work)
    num_rows = _count_plain_lines(text, layout.num_fields, work, num_lines)
    if layout.quoted and num_rows and work.quoting.quotes_upto[num_rows]:
        num_rows, is_full = take_off_quotes(
            text.buffer, text.start, layout.num_fields, work.field_ends, work.fields_upto, work.quoting, num_rows
        )
        max_rows = num_rows if is_full else max_rows
        num_rows = _read_runs(Text(work.quoting.plain, 0), layout, work, num_rows)
        at = text.start + np.int64(work.quoting.line_ends[num_rows]) + 1
    else:
        num_rows = _read_runs(text, layout, work, num_rows)
        at = text.start + np.int64(work.field_ends[work.fields_upto[num_rows]]) + 1
    if at == stop:
        return num_rows, at, FINISHED
    return num_rows, at, FULL if num_rows == max_rows else ODD_LINE


@njit(nogil=True, cache=True)
def parse_rows(
    buffer: NDArray[np.uint8], start: int, stop: int, layout: Layout, work: Workspace
) -> tuple[int, np.int64, int]:
    """Fill the columns with rows until the range, the room or the plain lines end.

    Returns how many rows were written, where the next line begins, and why it stopped.
    """
    padded_stop = min(stop, len(buffer) - _PADDING)
    while padded_stop > start and padded_stop < stop and buffer[padded_stop - 1] != NEWLINE:
        padded_stop -= 1
    if padded_stop > start:
        num_rows, at, status = _parse_padded(Text(buffer, start), padded_stop, layout, work)
        return num_rows, at, FULL if status == FINISHED and at < stop else status
    if stop - start > MAX_LINE_BYTES + _PADDING:
        return 0, np.int64(start), ODD_LINE  # the first line reaches into the padding
    copy = np.zeros(stop - start + _PADDING, np.uint8)
    copy[: stop - start] = buffer[start:stop]
    num_rows, at, status = _parse_padded(Text(copy, 0), stop - start, layout, work)
    return num_rows, start + at, status


@njit(nogil=True, cache=True)
def count_lines(buffer: NDArray[np.uint8], start: int, stop: int) -> np.int64:
    """How many newlines the range holds."""
    total = uint64(0)
    at = start
    while at + 64 <= stop:
        total += count_ones(match64(buffer, at, NEWLINE))
        at += 64
    for i in range(at, stop):
        total += uint64(buffer[i] == NEWLINE)
    return np.int64(total)
