"""The fields of lines whose bounds are known, to raw columns: gathered row by row, decoded type by type.

Gathering only moves bytes into words, decoding has no branch: the loops that do it work on vectors.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.hashing import xxh64
from recmill.data.text.labels import is_positive, truth_value
from recmill.data.text.numbers import MINUS, ZERO, float_number, integer, number_of
from recmill.data.text.quotes import Quoting
from recmill.data.text.swar import decode_digits, decode_hex8, digits_of, item, load_u64, not_digits, not_hex8
from recmill.data.text.times import AGE, DAYS, NO_PART, part_of, seconds_of
from recmill.jit import njit, uint64

ONE = np.uint8(49)

# What a column asks of the kernel. layout_of(Schema) makes runs of these.
LABEL, INT_NUMBER, FLOAT_NUMBER, HEX_CATEGORY, INT_CATEGORY, STRING_CATEGORY, IGNORED = range(7)
HEX_CATEGORIES, INT_CATEGORIES, STRING_CATEGORIES = range(7, 10)  # several values in one field
RULED_LABEL, WEIGHT = 10, 11  # a label whose schema says what is positive; how much a row counts
TIME = 12  # a time, or a part of one

# No hex value, and no accepted integer, equals it; a string hash that does gives way to its neighbour.
MISSING_CATEGORY = np.uint64(1 << 63)
# The slots of a column of several values that a row leaves empty; such columns accept no integer that equals it.
ABSENT_CATEGORY = np.uint64((1 << 63) + 2)

_DIGITS_OF_ONE = np.uint64(1 << 56)
_SIGNS = np.array([1.0, -1.0, math.nan])  # of a positive number, a negative one and none


class FieldRun(NamedTuple):
    """Columns of one kind: their places among the numbers or values, and how many fields come before.

    A column of several values is a run by itself, as wide as it may have values, with the byte between them. Of floats
    that byte is the decimal mark. A column that has more to tell is a run by itself, too: `details` holds numbers whose
    meaning depends on the kind.
    """

    kind: int
    first: int
    end: int
    place: int
    inner_separator: int
    details: NDArray[np.int64]


class Text(NamedTuple):
    """The bytes, and where the lines begin that are parsed at once."""

    buffer: NDArray[np.uint8]
    start: int


NO_WEIGHTS = np.empty(0, np.float32)


class RawColumns(NamedTuple):
    """Parsed and not yet encoded rows: labels (R), numbers (R, dense) with NaN for missing, values (R, sparse).

    Weights are (R) if the schema has such a column, and otherwise empty: kernels take both.
    """

    labels: NDArray[np.float32]
    numbers: NDArray[np.float64]
    values: NDArray[np.uint64]
    weights: NDArray[np.float32] = NO_WEIGHTS

    def rows(self, start: int, stop: int) -> "RawColumns":
        """A view of some of the rows."""
        return RawColumns._make(column[start:stop] for column in self)


class Workspace(NamedTuple):
    """Room for some lines while they are parsed, and the raw columns that come of it."""

    raw: RawColumns
    digits: NDArray[np.uint64]  # (R, dense): the digits of integers, not yet decoded
    field_ends: NDArray[np.int32]  # −1, then where each field ends, counted from the start of these lines
    fields_upto: NDArray[np.int64]  # 0, then how many fields end with each line; a CR LF counts as two ends
    quoting: Quoting


# Each of the gatherers fills the columns of a run in some rows, and returns the first row in which something is odd,
# or `end_row`. The field that ends at `field_ends[field]` begins behind the one before.


@njit(nogil=True, cache=True)
def _gather_hexes(text: Text, run: FieldRun, work: Workspace, first_row: int, end_row: int) -> int:
    """Eight characters each, to be decoded; 0 for an empty field."""
    for row in range(first_row, end_row):
        field = work.fields_upto[row] + 1 + run.place
        begin = text.start + np.int64(item(work.field_ends, field - 1)) + 1
        values = work.raw.values[row]
        odd = np.int64(0)
        for i in range(run.end - run.first):
            end = text.start + np.int64(item(work.field_ends, field + i))
            length = end - begin
            word = load_u64(text.buffer, begin)
            values[uint64(run.first + i)] = word if length else uint64(0)
            odd |= length & (length ^ 8)  # zero for the lengths 0 and 8
            begin = end + 1
        if odd != 0:
            return row
    return end_row


@njit(nogil=True, cache=True)
def _gather_int_numbers(text: Text, run: FieldRun, work: Workspace, first_row: int, end_row: int) -> int:
    """Up to eight digits each, to be decoded and given the sign that stands in the number's place till then."""
    for row in range(first_row, end_row):
        field = work.fields_upto[row] + 1 + run.place
        begin = text.start + np.int64(item(work.field_ends, field - 1)) + 1
        numbers, digits = work.raw.numbers[row], work.digits[row]
        odd, longest = False, np.int64(0)
        for i in range(run.end - run.first):
            end = text.start + np.int64(item(work.field_ends, field + i))
            negative = np.int64(item(text.buffer, begin) == MINUS)
            count = end - begin - negative
            is_empty = np.int64(end == begin)
            digits[uint64(run.first + i)] = digits_of(load_u64(text.buffer, begin + negative), count)
            numbers[uint64(run.first + i)] = item(_SIGNS, negative + 2 * is_empty)
            odd |= count + is_empty == 0
            longest = max(longest, count)
            begin = end + 1
        if longest > 8:
            odd |= _gather_long_integers(text, run, work, row)
        if odd:
            return row
    return end_row


@njit(nogil=True, cache=True)
def _gather_long_integers(text: Text, run: FieldRun, work: Workspace, row: int) -> bool:
    """The integers of a row that have more than eight digits, each as 1 times itself; whether one is odd."""
    field = work.fields_upto[row] + 1 + run.place
    odd = False
    for i in range(run.end - run.first):
        begin, end = _bounds(text, work, field + i)
        if end - begin > 8:
            value, is_integer = integer(text.buffer, begin, end)
            work.digits[row, run.first + i] = _DIGITS_OF_ONE
            work.raw.numbers[row, run.first + i] = np.float64(value)
            odd |= not is_integer
    return odd


@njit(nogil=True, cache=True)
def _gather_others(text: Text, run: FieldRun, work: Workspace, first_row: int, end_row: int) -> int:
    """Labels, floats, strings and integer categories: decoded at once, one by one."""
    raw = work.raw
    for row in range(first_row, end_row):
        field = work.fields_upto[row] + 1 + run.place
        odd = False
        for i in range(run.end - run.first):
            begin, end = _bounds(text, work, field + i)
            column = run.first + i
            if run.kind == LABEL:
                digit = item(text.buffer, begin)
                raw.labels[row] = np.float32(digit == ONE)
                if (digit != ZERO and digit != ONE) or end - begin != 1:
                    truth = truth_value(text.buffer, begin, end)
                    raw.labels[row] = np.float32(truth)
                    odd |= truth < 0
            elif run.kind == FLOAT_NUMBER:
                number, number_end = (
                    float_number(text.buffer, begin, run.inner_separator) if end > begin else (math.nan, end)
                )
                raw.numbers[row, column] = number
                odd |= number_end != end
            elif run.kind == INT_CATEGORY:
                value, is_integer = integer(text.buffer, begin, end)
                raw.values[row, column] = np.uint64(value) if end > begin else MISSING_CATEGORY
                odd |= end > begin and not is_integer
            elif run.kind == STRING_CATEGORY:
                hashed = xxh64(text.buffer, begin, end, np.uint64(0))
                hashed ^= np.uint64(hashed == MISSING_CATEGORY)
                raw.values[row, column] = hashed if end > begin else MISSING_CATEGORY
        if odd:
            return row
    return end_row


@njit(nogil=True, cache=True)
def _gather_labels(text: Text, run: FieldRun, work: Workspace, first_row: int, end_row: int) -> int:
    """Labels whose schema says what is positive."""
    for row in range(first_row, end_row):
        begin, end = _bounds(text, work, work.fields_upto[row] + 1 + run.place)
        label, is_right = is_positive(text.buffer, run.details, begin, end, run.inner_separator)
        if not is_right:
            return row
        work.raw.labels[row] = np.float32(label)
    return end_row


@njit(nogil=True, cache=True)
def _gather_weights(text: Text, run: FieldRun, work: Workspace, first_row: int, end_row: int) -> int:
    """Numbers that are not negative."""
    for row in range(first_row, end_row):
        begin, end = _bounds(text, work, work.fields_upto[row] + 1 + run.place)
        weight, is_right = number_of(text.buffer, run.details[0] == 1, begin, end, run.inner_separator)
        if not is_right or weight < 0.0:
            return row
        work.raw.weights[row] = np.float32(weight + 0.0)
    return end_row


@njit(nogil=True, cache=True)
def _gather_times(text: Text, run: FieldRun, work: Workspace, first_row: int, end_row: int) -> int:
    """A part of a time for each row; if none is asked for, the time is only looked at."""
    time_format, part = run.details[0], run.details[1]
    for row in range(first_row, end_row):
        begin, end = _bounds(text, work, work.fields_upto[row] + 1 + run.place)
        seconds, is_right = seconds_of(text.buffer, time_format, begin, end)
        if end > begin and not is_right:
            return row
        if part == AGE:
            begin_now, end_now = _bounds(text, work, work.fields_upto[row] + 1 + run.details[3])
            now, is_right = seconds_of(text.buffer, run.details[2], begin_now, end_now)
            if end_now > begin_now and not is_right:
                return row
            is_known = end > begin and end_now > begin_now
            work.raw.numbers[row, run.first] = np.float64(now - seconds) / 86400.0 if is_known else math.nan
        elif part == DAYS:
            work.raw.numbers[row, run.first] = np.float64(seconds) / 86400.0 if end > begin else math.nan
        elif part != NO_PART:
            work.raw.values[row, run.first] = np.uint64(part_of(seconds, part)) if end > begin else MISSING_CATEGORY
    return end_row


@njit(nogil=True, cache=True)
def one_of_several(text: Text, kind: int, begin: np.int64, end: np.int64) -> tuple[np.uint64, bool]:
    """The value between two inner separators, and whether it is one."""
    if kind == HEX_CATEGORIES:
        word = load_u64(text.buffer, begin)
        return decode_hex8(word), end - begin == 8 and not_hex8(word) == 0
    if kind == INT_CATEGORIES:
        value, is_integer = integer(text.buffer, begin, end)
        return np.uint64(value), is_integer
    hashed = xxh64(text.buffer, begin, end, np.uint64(0))
    return hashed ^ np.uint64(hashed in (MISSING_CATEGORY, ABSENT_CATEGORY)), True


@njit(nogil=True, cache=True)
def _gather_several(text: Text, run: FieldRun, work: Workspace, first_row: int, end_row: int) -> int:
    """The first values of fields that hold several; nothing between two inner separators is no value."""
    for row in range(first_row, end_row):
        begin, end = _bounds(text, work, work.fields_upto[row] + 1 + run.place)
        values = work.raw.values[row, run.first : run.end]
        count = 0
        while begin < end and count < len(values):
            stop = begin
            while stop < end and item(text.buffer, stop) != run.inner_separator:
                stop += 1
            if stop > begin:
                values[count], is_value = one_of_several(text, run.kind, begin, stop)
                if not is_value:
                    return row
                count += 1
            begin = stop + 1
        values[count:] = ABSENT_CATEGORY
        if count == 0:
            values[0] = MISSING_CATEGORY
    return end_row


@njit(nogil=True, cache=True)
def _bounds(text: Text, work: Workspace, field: int) -> tuple[np.int64, np.int64]:
    """Where a field begins and ends."""
    return text.start + np.int64(work.field_ends[field - 1]) + 1, text.start + np.int64(work.field_ends[field])


@njit(nogil=True, cache=True)
def _decode_hexes(values: NDArray[np.uint64]) -> np.uint64:
    """Gathered characters to values, in place; something other than zero if some are not hexadecimal."""
    odd = uint64(0)
    for i in range(len(values)):
        word = values[i]
        is_missing = word == uint64(0)
        values[i] = MISSING_CATEGORY if is_missing else decode_hex8(word)
        odd |= uint64(0) if is_missing else not_hex8(word)
    return odd


@njit(nogil=True, cache=True)
def _decode_int_numbers(digits: NDArray[np.uint64], numbers: NDArray[np.float64]) -> np.uint64:
    """Gathered digits times what stands in `numbers`, in place; something other than zero if some are not digits."""
    odd = uint64(0)
    for i in range(len(numbers)):
        odd |= not_digits(digits[i])
        numbers[i] = numbers[i] * np.float64(np.int32(decode_digits(digits[i]))) + 0.0  # the zero of "-0" is plain 0
    return odd


@njit(nogil=True, cache=True)
def _decode(run: FieldRun, work: Workspace, first_row: int, end_row: int) -> bool:
    """Decode what was gathered of a run; whether some row is odd. A run as wide as its array is one loop."""
    numbers, digits, values = work.raw.numbers, work.digits, work.raw.values
    odd = uint64(0)
    if run.kind == HEX_CATEGORY:
        if run.end - run.first == values.shape[1]:
            return _decode_hexes(values[first_row:end_row].reshape(-1)) != 0
        for row in range(first_row, end_row):
            odd |= _decode_hexes(values[row, run.first : run.end])
    elif run.kind == INT_NUMBER:
        if run.end - run.first == numbers.shape[1]:
            flat = slice(first_row, end_row)
            return _decode_int_numbers(digits[flat].reshape(-1), numbers[flat].reshape(-1)) != 0
        for row in range(first_row, end_row):
            odd |= _decode_int_numbers(digits[row, run.first : run.end], numbers[row, run.first : run.end])
    return odd != 0


@njit(nogil=True, cache=True)
def _gather(text: Text, run: FieldRun, work: Workspace, first_row: int, end_row: int) -> int:
    """Take the fields of a run; the first row in which one is odd, or `end_row`."""
    if run.kind == HEX_CATEGORY:
        return _gather_hexes(text, run, work, first_row, end_row)
    if run.kind == INT_NUMBER:
        return _gather_int_numbers(text, run, work, first_row, end_row)
    if run.kind == IGNORED:
        return end_row
    if run.kind == WEIGHT:
        return _gather_weights(text, run, work, first_row, end_row)
    if run.kind == TIME:
        return _gather_times(text, run, work, first_row, end_row)
    if run.kind == RULED_LABEL:
        return _gather_labels(text, run, work, first_row, end_row)
    if run.kind >= HEX_CATEGORIES:
        return _gather_several(text, run, work, first_row, end_row)
    return _gather_others(text, run, work, first_row, end_row)


@njit(nogil=True, cache=True)
def read_run(text: Text, run: FieldRun, work: Workspace, num_rows: int) -> int:
    """Fill the columns of a run; how many rows come before the first that is odd."""
    num_rows = _gather(text, run, work, 0, num_rows)
    if not _decode(run, work, 0, num_rows):
        return num_rows
    for row in range(num_rows):  # one of them is odd: once more, row by row, to see which
        _gather(text, run, work, row, row + 1)
        if _decode(run, work, row, row + 1):
            return row
    return num_rows
