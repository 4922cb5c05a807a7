"""Bytes of delimited text to columns: the kernel every raw row passes through.

1. The kernel is handed a range of a buffer that begins at a line start and ends just behind a newline. No field can
   contain a newline, so every scan stops there and no read leaves the range.
2. It accepts the rows that are plainly right and writes numbers (NaN = missing) and 64-bit category values.
3. At anything else it stops and gives the line back: `rows.read_row`, slow and obvious, decides what it is.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.hashing import xxh64
from recmill.data.swar import are_hex8, count_bytes, count_leading_digits, decode_digits, decode_hex8, load_u8, load_u64
from recmill.jit import njit, uint64

NEWLINE = np.uint8(10)
NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
CARRIAGE_RETURN = np.uint8(13)
MINUS = np.uint8(45)
DOT = np.uint8(46)
ZERO = np.uint8(48)
ONE = np.uint8(49)

# What a column asks of the kernel. Schema.layout() makes the array of these.
LABEL, INT_NUMBER, FLOAT_NUMBER, HEX_CATEGORY, INT_CATEGORY, STRING_CATEGORY, IGNORED = range(7)

# Why the kernel came back.
FINISHED, FULL, ODD_LINE = range(3)

# No hex value, and no accepted integer, equals it; a string hash that does gives way to its neighbour.
MISSING_CATEGORY = np.uint64(1 << 63)

MAX_LINE_BYTES = 1 << 20

_POWERS_OF_TEN = np.array([10.0**e for e in range(23)])  # the powers a double holds exactly
_POWERS_OF_TEN_INT = np.array([10**e for e in range(9)])


class Layout(NamedTuple):
    """What the kernel needs to know of a schema. Columns of one kind that stand side by side are a run."""

    separator: np.uint8
    runs: NDArray[np.int64]  # (runs, 3): the kind, and the run's places among the numbers or values, from and to


class RawColumns(NamedTuple):
    """Parsed and not yet encoded rows: labels (R), numbers (R, dense) with NaN for missing, values (R, sparse)."""

    labels: NDArray[np.float32]
    numbers: NDArray[np.float64]
    values: NDArray[np.uint64]


@njit(nogil=True, cache=True)
def _load_tail(buffer: NDArray[np.uint8], at: int, stop: int) -> np.uint64:
    """What is left of the range, as the low bytes of a word."""
    word = uint64(0)
    for i in range(min(8, stop - at)):
        word |= uint64(buffer[at + i]) << uint64(8 * i)
    return word


@njit(inline="always")
def _load(buffer: NDArray[np.uint8], at: int, stop: int) -> np.uint64:
    if at + 8 <= stop:
        return load_u64(buffer, at)
    return _load_tail(buffer, at, stop)


@njit(nogil=True, cache=True)
def _float_number(buffer: NDArray[np.uint8], at: int) -> tuple[float, int]:
    """A decimal number whose digits and power of ten a double holds exactly, and where it ends; else position −1.

    With at most 15 digits and a power within ±22 one multiplication or division rounds right; the rest is rare
    enough for Python.
    """
    negative = load_u8(buffer, at) == MINUS
    if negative:
        at += 1
    mantissa, digits, power = 0, 0, 0
    while ZERO <= load_u8(buffer, at) <= ZERO + np.uint8(9):
        mantissa = mantissa * 10 + (load_u8(buffer, at) - ZERO)
        digits += 1
        at += 1
        if digits > 15:
            return 0.0, -1
    if load_u8(buffer, at) == DOT:
        at += 1
        while ZERO <= load_u8(buffer, at) <= ZERO + np.uint8(9):
            mantissa = mantissa * 10 + (load_u8(buffer, at) - ZERO)
            digits += 1
            power -= 1
            at += 1
            if digits > 15:
                return 0.0, -1
    if digits == 0 or power < -22:
        return 0.0, -1
    value = mantissa / _POWERS_OF_TEN[-power]
    return (-value if negative else value), at


@njit(nogil=True, cache=True)
def _string_end(buffer: NDArray[np.uint8], at: int, separator: np.uint8) -> int:
    """Where the field ends, or −1 if it holds a NUL."""
    while load_u8(buffer, at) != separator and load_u8(buffer, at) != NEWLINE:
        if load_u8(buffer, at) == 0:
            return -1
        at += 1
    return at


@njit(inline="always")
def _integer(buffer: NDArray[np.uint8], at: int, stop: int) -> tuple[np.int64, np.int64]:
    """The integer of up to 16 digits that begins here, and where it ends: at its own start if there is none."""
    negative = np.int64(load_u8(buffer, at) == MINUS)
    word = _load(buffer, at + negative, stop)
    digits = count_leading_digits(word)
    if digits == 0:
        return np.int64(0), np.int64(at)
    value = np.int64(decode_digits(word, digits))
    end = at + negative + np.int64(digits)
    if digits == 8:
        word = _load(buffer, end, stop)
        more = count_leading_digits(word)
        if more > 0:
            value = value * _POWERS_OF_TEN_INT[more] + np.int64(decode_digits(word, more))
            end += np.int64(more)
    return (-value if negative else value), end


@njit(inline="always")
def _ends_field(byte: np.uint8, separator: np.uint8, is_last: bool) -> bool:
    """Whether a field may end at this byte; that the last one ends in a newline is seen to at the end of the line."""
    return byte == separator or (byte == NEWLINE and is_last)


@njit(inline="always")
def _label_end(buffer: NDArray[np.uint8], at: int, separator: np.uint8, is_last_run: bool) -> int:
    """Where the field behind a label begins, or −1 if it is not 0 or 1."""
    byte = load_u8(buffer, at)
    if (byte != ZERO and byte != ONE) or not _ends_field(load_u8(buffer, at + 1), separator, is_last_run):
        return -1
    return at + 2


# The runs are functions of their own, and take slices, because LLVM makes far better loops of them that way: inlined
# into the loop over the runs they took half as long again.


@njit(nogil=True, cache=True)
def _read_hexes(
    buffer: NDArray[np.uint8], at: int, stop: int, separator: np.uint8, is_last_run: bool, values: NDArray[np.uint64]
) -> int:
    """Hex categories side by side; where the field behind them begins, or −1 if one is odd."""
    for i in range(len(values)):
        word = _load(buffer, at, stop)
        if are_hex8(word):
            values[i] = decode_hex8(word)
            at += 8
        else:
            values[i] = MISSING_CATEGORY
        if not _ends_field(load_u8(buffer, at), separator, is_last_run and i == len(values) - 1):
            return -1
        at += 1
    return at


@njit(nogil=True, cache=True)
def _read_int_numbers(
    buffer: NDArray[np.uint8], at: int, stop: int, separator: np.uint8, is_last_run: bool, numbers: NDArray[np.float64]
) -> int:
    """Integers side by side, as numbers; where the field behind them begins, or −1 if one is odd."""
    for i in range(len(numbers)):
        value, end = _integer(buffer, at, stop)
        numbers[i] = np.float64(value) if end > at else math.nan
        if not _ends_field(load_u8(buffer, end), separator, is_last_run and i == len(numbers) - 1):
            return -1
        at = end + 1
    return at


@njit(nogil=True, cache=True)
def _read_int_categories(
    buffer: NDArray[np.uint8], at: int, stop: int, separator: np.uint8, is_last_run: bool, values: NDArray[np.uint64]
) -> int:
    """Integers side by side, as categories; where the field behind them begins, or −1 if one is odd."""
    for i in range(len(values)):
        value, end = _integer(buffer, at, stop)
        values[i] = np.uint64(value) if end > at else MISSING_CATEGORY
        if not _ends_field(load_u8(buffer, end), separator, is_last_run and i == len(values) - 1):
            return -1
        at = end + 1
    return at


@njit(nogil=True, cache=True)
def _read_free_run(buffer: NDArray[np.uint8], at: int, layout: Layout, run: int, raw: RawColumns, row: int) -> int:
    """Floats, strings or ignored fields side by side; where the next field begins, or −1 if one is odd."""
    kind, first, last = layout.runs[run, 0], layout.runs[run, 1], layout.runs[run, 2] - 1
    for column in range(first, last + 1):
        end = _string_end(buffer, at, layout.separator)
        if end < 0:
            return -1
        if kind == FLOAT_NUMBER:
            number, number_end = _float_number(buffer, at) if end > at else (math.nan, at)
            if number_end != end:
                return -1
            raw.numbers[row, column] = number
        elif kind == STRING_CATEGORY:
            hashed = xxh64(buffer, at, end, np.uint64(0)) if end > at else MISSING_CATEGORY
            raw.values[row, column] = hashed ^ np.uint64(end > at and hashed == MISSING_CATEGORY)
        if not _ends_field(load_u8(buffer, end), layout.separator, run == len(layout.runs) - 1 and column == last):
            return -1
        at = end + 1
    return at


@njit(inline="always")
def _parse_line(buffer: NDArray[np.uint8], at: int, stop: int, layout: Layout, raw: RawColumns, row: int) -> int:
    """Write one row; where the next line begins, or −1 if this one is odd."""
    line_start = at
    for run in range(len(layout.runs)):
        kind, first, end = layout.runs[run, 0], layout.runs[run, 1], layout.runs[run, 2]
        is_last_run = run == len(layout.runs) - 1
        if kind == HEX_CATEGORY:
            at = _read_hexes(buffer, at, stop, layout.separator, is_last_run, raw.values[row, first:end])
        elif kind == INT_NUMBER:
            at = _read_int_numbers(buffer, at, stop, layout.separator, is_last_run, raw.numbers[row, first:end])
        elif kind == INT_CATEGORY:
            at = _read_int_categories(buffer, at, stop, layout.separator, is_last_run, raw.values[row, first:end])
        elif kind == LABEL:
            raw.labels[row] = np.float32(load_u8(buffer, at) == ONE)
            at = _label_end(buffer, at, layout.separator, is_last_run)
        else:
            at = _read_free_run(buffer, at, layout, run, raw, row)
        if at < 0:
            return -1
    ends_in_newline = load_u8(buffer, at - 1) == NEWLINE
    too_long = at - line_start > MAX_LINE_BYTES
    ends_in_crlf = at - line_start > 1 and load_u8(buffer, at - 2) == CARRIAGE_RETURN
    return at if ends_in_newline and not too_long and not ends_in_crlf else -1


@njit(nogil=True, cache=True)
def parse_rows(
    buffer: NDArray[np.uint8], start: int, stop: int, layout: Layout, raw: RawColumns
) -> tuple[int, int, int]:
    """Fill the columns with rows until the range, the room or the plain lines end.

    Returns how many rows were written, where the next line begins, and why it stopped.
    """
    at = start
    row = 0
    while at < stop:
        if row == len(raw.labels):
            return row, at, FULL
        next_line = _parse_line(buffer, at, stop, layout, raw, row)
        if next_line < 0:
            return row, at, ODD_LINE
        at = next_line
        row += 1
    return row, at, FINISHED


@njit(nogil=True, cache=True)
def count_lines(buffer: NDArray[np.uint8], start: int, stop: int) -> np.int64:
    """How many newlines the range holds."""
    total = uint64(0)
    at = start
    while at + 8 <= stop:
        total += count_bytes(load_u64(buffer, at), NEWLINES)
        at += 8
    for i in range(at, stop):
        total += uint64(buffer[i] == NEWLINE)
    return np.int64(total)
