"""Bytes of delimited text to columns: the kernel every raw row passes through.

1. The kernel is handed a range of a buffer that begins at a line start and ends just behind a newline.
2. It finds the separators and newlines, 64 bytes at a time, and so knows the bounds of every field of some hundred
   lines before it looks at one.
3. Then it gathers the fields, row by row, as raw words; and decodes them, column type by column type, in loops without
   a branch. It writes numbers (NaN = missing) and 64-bit category values.
4. Rows that are plainly right it accepts. At anything else it stops and gives the line back: `reference.read_row`, slow
   and obvious, decides what it is.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.fields import FieldRun, RawColumns, Text, Workspace, read_run
from recmill.data.text.swar import count_ones, item, match64, trailing_zeros
from recmill.jit import njit, uint64

NEWLINE = np.uint8(10)
CARRIAGE_RETURN = np.uint8(13)
QUOTE = np.uint8(34)

# Why the kernel came back: there is no more, there is more than it had room for, or the next line is odd.
FINISHED, FULL, ODD_LINE = range(3)

MAX_LINE_BYTES = 1 << 20
# So many Criteo rows, their text and all that is noted of them fill 200 KiB: they stay in the second-level cache.
WORKSPACE_ROWS = 256
_PADDING = 64  # how far behind its range the kernel reads: it looks at 64 bytes at a time


class Layout(NamedTuple):
    """What the kernel needs to know of a schema. Columns of one kind that stand side by side are a run."""

    separator: np.uint8
    quoted: bool  # a line with a double quote is odd
    num_fields: int
    runs: NDArray[np.int64]  # (runs, 5 and more): what a FieldRun says


def new_workspace(
    num_rows: int, num_dense: int, num_slots: int, num_fields: int, *, has_weight: bool = False
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
        np.full(1 + num_rows * num_fields + 64, -1, np.int32),  # 64 bytes may hold as many fields behind the last line
        np.zeros(1 + num_rows, np.int64),
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
    def index_lines(buffer: NDArray[np.uint8], start: int, stop: int, separator: np.uint8, work: Workspace) -> int:
        """Find the fields of as many whole lines as there is room for; how many lines that are.

        There are fewer only at the end of the range and before a line that is odd: it holds a NUL or, where fields
        may be quoted, a quote; more fields than there is room for, or too many bytes.
        """
        max_lines = len(work.fields_upto) - 1
        field_ends = work.field_ends[1:]
        last_field = len(field_ends) - 64
        stop = min(stop, start + max_lines * MAX_LINE_BYTES)
        at, num_lines, num_fields = start, 0, np.int64(0)
        while at < stop and num_lines < max_lines and num_fields <= last_field:
            newlines = match64(buffer, at, NEWLINE)
            ends = match64(buffer, at, separator) | newlines
            odd = match64(buffer, at, np.uint8(0))
            if quoted:
                odd |= match64(buffer, at, QUOTE)
            if odd != 0 or at + 64 > stop:
                behind = odd | (uint64(1) << uint64(min(stop - at, 63)))
                inside = (behind & (~behind + uint64(1))) - uint64(1)
                newlines, ends, stop = newlines & inside, ends & inside, at
            while newlines != 0 and num_lines < max_lines:
                upto = newlines ^ (newlines - uint64(1))
                num_lines += 1
                work.fields_upto[num_lines] = num_fields + np.int64(count_ones(ends & upto))
                newlines &= newlines - uint64(1)
            _note_fields(ends, np.int32(at - start), field_ends, num_fields)
            num_fields += np.int64(count_ones(ends))
            at += 64
        return num_lines

    return index_lines


_index_lines, _index_lines_up_to_quotes = _index_kernel(False), _index_kernel(True)


@njit(nogil=True, cache=True)
def _count_plain_lines(text: Text, num_fields: int, work: Workspace, num_lines: int) -> int:
    """How many lines come before the first whose fields are too few or many, that is too long, or ends in CR LF."""
    for row in range(num_lines):
        first, last = work.fields_upto[row], work.fields_upto[row + 1]
        begin, newline = np.int64(work.field_ends[first]) + 1, np.int64(work.field_ends[last])
        ends_in_cr = newline > begin and item(text.buffer, text.start + newline - 1) == CARRIAGE_RETURN
        if last - first != num_fields or newline - begin >= MAX_LINE_BYTES or ends_in_cr:
            return row
    return num_lines


@njit(nogil=True, cache=True)
def _parse_padded(text: Text, stop: int, layout: Layout, work: Workspace) -> tuple[int, np.int64, int]:
    """`parse_rows` where the buffer may be read some bytes further than the range."""
    if layout.quoted:
        num_lines = _index_lines_up_to_quotes(text.buffer, text.start, stop, layout.separator, work)
    else:
        num_lines = _index_lines(text.buffer, text.start, stop, layout.separator, work)
    num_rows = _count_plain_lines(text, layout.num_fields, work, num_lines)
    for i in range(len(layout.runs)):
        of_run = layout.runs[i]
        run = FieldRun(of_run[0], of_run[1], of_run[2], of_run[3], of_run[4], of_run[5:])
        num_rows = read_run(text, run, work, num_rows)
    at = text.start + np.int64(work.field_ends[work.fields_upto[num_rows]]) + 1
    if at == stop:
        return num_rows, at, FINISHED
    return num_rows, at, FULL if num_rows == len(work.raw.labels) else ODD_LINE


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
