"""Quotes, 64 bytes at a time: which bytes they enclose, whether a file has line breaks inside, fields without them.

A byte lies inside quotes if the number of quotes before it is odd. Doubled quotes close and open again, so they need
no case of their own here.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.swar import copy_16, count_ones, item, leading_zeros, match64
from recmill.jit import njit, uint64

NEWLINE = np.uint8(10)
CARRIAGE_RETURN = np.uint8(13)
QUOTE = np.uint8(34)

ALL = np.uint64(2**64 - 1)
PARITY_BYTES = 1 << 16  # how far apart the places are at which a file's index knows whether a quote is open
PLAIN_BYTES = 2 << 20  # text of some lines without quotes; the longest line fits in


class Quoting(NamedTuple):
    """Room to take the quotes off some lines; of no use where fields are not quoted."""

    quotes_upto: NDArray[np.int64]  # 0, then how many quotes there are up to the end of each line
    line_ends: NDArray[np.int32]  # -1, then where each line ends in the file, counted from the start of these lines
    plain: NDArray[np.uint8]  # the fields without their quotes


def new_quoting(num_rows: int, *, quoted: bool) -> Quoting:
    """Room for so many lines."""
    num_bytes = PLAIN_BYTES + 64 if quoted else 64
    return Quoting(np.zeros(1 + num_rows, np.int64), np.full(1 + num_rows, -1, np.int32), np.empty(num_bytes, np.uint8))


@njit(inline="always")
def enclosed(quotes: np.uint64) -> np.uint64:
    """Which of 64 bytes have an odd number of quotes at or before them, the first 64 being all there are."""
    for shift in (1, 2, 4, 8, 16, 32):
        quotes ^= quotes << uint64(shift)
    return quotes


class ScanState(NamedTuple):
    """What a scan knows of the bytes behind it."""

    is_inside: bool = False  # a quote is open
    may_open: bool = True  # the last byte may come before an opening quote
    is_closing: bool = False  # the last byte is a closing quote
    num_breaks: Any = 0  # newlines inside quotes
    row_start: Any = 0  # behind the last newline outside quotes
    breaks_before: Any = 0  # newlines inside quotes before `row_start`
    is_broken: bool = False  # a quote stands where none can; it is in the row that begins at `row_start`


@njit(nogil=True, cache=True)
def scan_quotes(
    buffer: NDArray[np.uint8],
    at: int,
    stop: int,
    separator: np.uint8,
    state: ScanState,
    places: tuple[int, NDArray[np.bool_]],
) -> ScanState:
    """Go on over 64 bytes at a time, of which the last may reach behind `stop`.

    `places` is where the buffer begins in the file, and what takes note of whether a quote is open at some places.
    """
    first, marks = places
    inside, may_open, is_closing = uint64(0) - uint64(state.is_inside), uint64(state.may_open), uint64(state.is_closing)
    num_breaks, row_start, breaks_before = state.num_breaks, state.row_start, state.breaks_before
    bad = uint64(0)
    while at < stop:
        if len(marks) and (first + at) % PARITY_BYTES == 0:
            marks[(first + at) // PARITY_BYTES] = inside != 0
        valid = ALL if stop - at >= 64 else (uint64(1) << uint64(stop - at)) - uint64(1)
        quotes, newlines = match64(buffer, at, QUOTE) & valid, match64(buffer, at, NEWLINE) & valid
        ends = match64(buffer, at, separator) | newlines
        within = enclosed(quotes) ^ inside
        opening, closing = quotes & within, quotes & ~within
        row_ends, breaks = newlines & ~within, newlines & within
        bad = opening & ~(((ends | quotes) << uint64(1)) | may_open)
        bad |= ((closing << uint64(1)) | is_closing) & ~(ends | quotes | match64(buffer, at, CARRIAGE_RETURN)) & valid
        if bad != 0:
            row_ends &= (bad & (~bad + uint64(1))) - uint64(1)
        if row_ends != 0:
            top = uint64(63) - leading_zeros(row_ends)
            row_start = np.int64(first + at) + np.int64(top) + 1
            breaks_before = num_breaks + np.int64(count_ones(breaks & ((uint64(1) << top) - uint64(1))))
        num_breaks += np.int64(count_ones(breaks))
        if bad != 0:
            break
        inside = uint64(0) - (within >> uint64(63))
        may_open, is_closing = (ends | quotes) >> uint64(63), closing >> uint64(63)
        at += 64
    return ScanState(inside != 0, may_open != 0, is_closing != 0, num_breaks, row_start, breaks_before, bad != 0)


@njit(nogil=True, cache=True)
def pass_rows(
    buffer: NDArray[np.uint8], start: int, stop: int, wanted: int, inside: bool
) -> tuple[int, np.int64, bool]:
    """Behind so many newlines outside quotes, or `stop`; how many they are; and whether a quote is open there."""
    at, found, is_open = start, np.int64(0), uint64(inside)
    while at + 64 <= stop:
        within = enclosed(match64(buffer, at, QUOTE)) ^ (uint64(0) - is_open)
        here = np.int64(count_ones(match64(buffer, at, NEWLINE) & ~within))
        if found + here >= wanted:
            break
        found += here
        is_open = within >> uint64(63)
        at += 64
    while at < stop and found < wanted:
        is_open ^= uint64(buffer[at] == QUOTE)
        found += np.int64(buffer[at] == NEWLINE and is_open == 0)
        at += 1
    return at, found, is_open != 0


@njit(nogil=True, cache=True)
def is_inside(buffer: NDArray[np.uint8], start: int, stop: int, inside: bool) -> bool:
    """Whether a quote is open at `stop`, if it is known of `start`."""
    total, at = uint64(inside), start
    while at + 64 <= stop:
        total += count_ones(match64(buffer, at, QUOTE))
        at += 64
    for i in range(at, stop):
        total += uint64(buffer[i] == QUOTE)
    return bool(total & uint64(1))


@njit(nogil=True, cache=True)
def _copy_escaped(
    buffer: NDArray[np.uint8], begin: np.int64, end: np.int64, out: NDArray[np.uint8], to: np.int64
) -> np.int64:
    """Copy a field and make one quote of two; where it ends, or −1 if its quotes are not in their places."""
    if begin == end or item(buffer, begin) != QUOTE:
        for place in range(begin, end):
            if item(buffer, place) == QUOTE:
                return np.int64(-1)
            out[to] = item(buffer, place)
            to += np.int64(1)
        return np.int64(to)
    at = begin + np.int64(1)
    while at < end - 1:
        byte = item(buffer, at)
        if byte == QUOTE:
            at += np.int64(1)
            if at >= end - 1 or item(buffer, at) != QUOTE:
                return np.int64(-1)
        out[to] = byte
        to += np.int64(1)
        at += np.int64(1)
    return to if at == end - 1 and item(buffer, at) == QUOTE else np.int64(-1)


@njit(nogil=True, cache=True)
def _copy_unquoted(
    buffer: NDArray[np.uint8],
    start: int,
    ends: NDArray[np.int32],
    begin: np.int64,
    out: NDArray[np.uint8],
    to: np.int64,
) -> tuple[np.int64, np.int64]:
    """Copy the fields of a line that has no doubled quotes; where the last ends, and how many stood in quotes.

    16 bytes at a time, the last of them too many: the next field overwrites these. `ends` becomes where they end now.
    """
    num_quoted = np.int64(0)
    for i in range(len(ends)):
        end = start + np.int64(item(ends, i))
        is_quoted = np.int64(item(buffer, begin) == QUOTE)
        num_quoted += is_quoted & np.int64(item(buffer, end - 1) == QUOTE)
        length = max(np.int64(0), end - begin - 2 * is_quoted)  # a quote alone would step back, out of the array
        copy_16(out, to, buffer, begin + is_quoted)
        for far in range(16, length, 16):
            copy_16(out, to + far, buffer, begin + is_quoted + far)
        to += length
        out[uint64(to)] = NEWLINE  # a number is read up to what is no digit
        ends[uint64(i)] = to
        to += 1
        begin = end + 1
    return to, num_quoted


@njit(nogil=True, cache=True)
def take_off_quotes(
    buffer: NDArray[np.uint8],
    start: int,
    num_fields: int,
    field_ends: NDArray[np.int32],
    fields_upto: NDArray[np.int64],
    quoting: Quoting,
    num_lines: int,
) -> tuple[int, bool]:
    """Copy lines without quotes and line ends to `quoting.plain`, and note where their fields end there.

    Returns how many lines come before the first whose quotes are odd, or for which there is no room, and whether
    room is the reason.
    """
    to, raw_first, out = np.int64(0), np.int64(0), quoting.plain
    new_ends = np.empty(num_fields, np.int32)
    for row in range(num_lines):
        raw_last = fields_upto[row + 1]
        begin = start + np.int64(quoting.line_ends[row]) + 1
        line_end = start + np.int64(field_ends[raw_last])
        if to + (line_end - begin) + num_fields + 64 > len(out):
            return row, True
        new_ends[:] = field_ends[raw_first + 1 : raw_first + 1 + num_fields]
        reached, num_quoted = _copy_unquoted(buffer, start, new_ends, begin, out, to)
        if 2 * num_quoted != quoting.quotes_upto[row + 1] - quoting.quotes_upto[row]:
            reached = to
            for i in range(num_fields):
                end = start + np.int64(field_ends[raw_first + 1 + i])
                reached = _copy_escaped(buffer, begin, end, out, reached)
                if reached < 0:
                    return row, False
                out[reached], new_ends[i] = NEWLINE, reached
                reached, begin = reached + 1, end + 1
        field_ends[1 + row * num_fields : 1 + (row + 1) * num_fields] = new_ends
        quoting.line_ends[row + 1] = line_end - start
        fields_upto[row + 1] = (row + 1) * num_fields
        raw_first, to = raw_last, reached
    return num_lines, False
