"""Columns that have a type already, as plain arrays, to raw columns: the same values as from the text they stand for.

1. A column is `Numbers`, `Texts` or `Lists` of these. Whoever reads a format makes such arrays of it.
2. Every item of a category column becomes a 64-bit value, or is none (null, or without a byte), or is bad.
3. Of a list, and of a text that an inner separator takes apart, the first values fill the slots of the row.
4. What the kernels do not accept goes to `reference.py`, as fields of text do; the row is bad if that rejects it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.fields import (
    ABSENT_CATEGORY,
    MISSING_CATEGORY,
    STRING_CATEGORIES,
    RawColumns,
    Text,
    one_of_several,
)
from recmill.data.text.hashing import xxh64
from recmill.data.text.layout import SEVERAL_KINDS
from recmill.data.text.reference import BadRow, category_value, complaint, complaint_of_one, label_value
from recmill.data.text.times import part_of, seconds_of, time_details
from recmill.data.text.written_times import FIRST_MOMENT, LAST_MOMENT, read_time
from recmill.jit import njit
from recmill.settings.columns import Column, Schema, TimeFormat, TimePart

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

# What an item of a category is: a value, nothing, something for reference.py to decide, or rejected by it.
VALUE, NONE, ODD, BAD = range(4)
# By role and kind of a column: the types of cells that it is read from.
TAKEN = {
    ("label", "int"): ("int", "float"),
    ("label", "float"): ("int", "float"),
    ("label", "string"): ("string", "int"),
    ("weight", "int"): ("int",),
    ("weight", "float"): ("int", "float"),
    ("dense", "int"): ("int",),
    ("dense", "float"): ("int", "float"),
    ("category", "int"): ("int", "string"),
    ("category", "hex"): ("string",),
    ("category", "string"): ("string",),
    ("time", "time"): ("time", "string", "int", "float"),
    ("ignored", "time"): ("time", "string", "int", "float"),
}
_PADDING = 32  # kernels load eight bytes at a time, and up to 17 behind the begin of a number


class Numbers(NamedTuple):
    """Integers or doubles; whatever stands in place of a null is not looked at."""

    values: NDArray[Any]
    is_null: Bools


class Texts(NamedTuple):
    """Bytes, and from where to where each text goes; `padded` makes the room that kernels need behind the last."""

    data: NDArray[np.uint8]
    begins: Ints
    ends: Ints
    is_null: Bools


class Lists(NamedTuple):
    """From which item to which each list goes."""

    begins: Ints
    ends: Ints
    is_null: Bools
    items: Numbers | Texts


class Moments(NamedTuple):
    """Times that have a type of their own, as whole seconds since 1970, UTC."""

    seconds: Ints
    is_null: Bools


Cells = Numbers | Texts | Lists | Moments


def padded(data: NDArray[np.uint8], offsets: Ints, is_null: Bools) -> Texts:
    """Texts that lie end to end, between neighbouring offsets."""
    first, last = int(offsets[0]), int(offsets[-1])
    copy = np.zeros(last - first + _PADDING, np.uint8)
    copy[: last - first] = data[first:last]
    offsets = offsets - first
    return Texts(copy, offsets[:-1], offsets[1:], is_null)


@njit(nogil=True, cache=True)
def _split(texts: Texts, separator: int, list_ends: Ints, begins: Ints, ends: Ints) -> int:
    """Where the parts of every text lie; how many there are."""
    part = 0
    for row in range(len(list_ends)):
        begin = texts.begins[row]
        for at in range(begin, texts.ends[row]):
            if texts.data[at] == separator:
                begins[part], ends[part] = begin, at
                begin, part = at + 1, part + 1
        begins[part], ends[part] = begin, texts.ends[row]
        part += 1
        list_ends[row] = part
    return part


def split_texts(texts: Texts, separator: str) -> Lists:
    """What stands between the separators of each text."""
    num_rows = len(texts.begins)
    room = num_rows + int(np.count_nonzero(texts.data == ord(separator)))
    list_ends, begins, ends = (np.empty(size, np.int64) for size in (num_rows, room, room))
    num_parts = _split(texts, ord(separator), list_ends, begins, ends)
    list_begins = np.concatenate([np.zeros(1, np.int64), list_ends])[:-1]
    parts = Texts(texts.data, begins[:num_parts], ends[:num_parts], np.zeros(num_parts, np.bool_))
    return Lists(list_begins, list_ends, texts.is_null, parts)


@njit(nogil=True, cache=True)
def _read_texts(texts: Texts, kind: int, is_several: bool, values: Words, states: NDArray[np.uint8]) -> None:
    text = Text(texts.data, 0)
    for i in range(len(values)):
        begin, end = texts.begins[i], texts.ends[i]
        if texts.is_null[i] or begin >= end:
            states[i] = NONE
        elif kind == STRING_CATEGORIES:
            hashed = xxh64(texts.data, begin, end, np.uint64(0))
            is_mark = hashed == MISSING_CATEGORY or (is_several and hashed == ABSENT_CATEGORY)
            values[i] = hashed ^ np.uint64(is_mark)
            states[i] = VALUE
        else:
            values[i], is_value = one_of_several(text, kind, begin, end)
            states[i] = VALUE if is_value else ODD


@njit(nogil=True, cache=True)
def _take_first(
    begins: Ints, ends: Ints, is_null: Bools, values: Words, states: NDArray[np.uint8], out: Words, is_bad: Bools
) -> None:
    """Fill the slots (R, slots) of every row from the front; a bad item counts if there is a slot for it."""
    for row in range(len(out)):
        count = 0
        if not is_null[row]:
            for i in range(begins[row], ends[row]):
                if count == out.shape[1] or states[i] == BAD:
                    is_bad[row] = count < out.shape[1]
                    break
                if states[i] == VALUE:
                    out[row, count] = values[i]
                    count += 1
        out[row, count:] = ABSENT_CATEGORY
        if count == 0:
            out[row, 0] = MISSING_CATEGORY


def _is_no_int64(values: NDArray[Any]) -> Bools:
    """Unsigned numbers beyond 63 bits, and the one signed number that has no positive counterpart."""
    is_beyond: Bools = values >= 1 << 63 if values.dtype == np.uint64 else values == -(1 << 63)
    return is_beyond


def _read_items(items: Numbers | Texts, column: Column) -> tuple[Words, NDArray[np.uint8]]:
    """The value of every item, and what it is."""
    num_items = len(items.is_null)
    states = np.empty(num_items, np.uint8)
    if isinstance(items, Numbers):
        values = items.values.view(np.uint64)
        is_bad = _is_no_int64(items.values) | (column.is_several & (values == ABSENT_CATEGORY))
        states[:] = np.where(items.is_null, NONE, np.where(is_bad, BAD, VALUE))
        return values, states
    values = np.empty(num_items, np.uint64)
    _read_texts(items, SEVERAL_KINDS[column.kind], column.is_several, values, states)
    for i in np.flatnonzero(states == ODD):
        field = _text(items, int(i))
        is_rejected = complaint_of_one(field, column) is not None
        states[i] = BAD if is_rejected else VALUE
        values[i] = 0 if is_rejected else category_value(field, column)
    return values, states


def read_categories(cells: Numbers | Texts | Lists, column: Column, out: Words) -> Bools:
    """Fill the slots of a column (R, slots); which rows are bad."""
    if isinstance(cells, Texts) and column.inner_separator is not None:
        cells = split_texts(cells, column.inner_separator)
    if not isinstance(cells, Lists):
        values, states = _read_items(cells, column)
        out[:, 0] = np.where(states == NONE, MISSING_CATEGORY, values)
        return states == BAD
    values, states = _read_items(cells.items, column)
    is_bad = np.zeros(len(out), np.bool_)
    _take_first(cells.begins, cells.ends, cells.is_null, values, states, out, is_bad)
    return is_bad


def read_numbers(numbers: Numbers, column: Column, out: NDArray[np.float64]) -> Bools:
    """Fill a dense column, null and NaN as NaN; which rows are bad."""
    out[:] = numbers.values
    is_bad = _is_no_int64(numbers.values) if column.kind == "int" else np.isinf(out)
    out[numbers.is_null] = np.nan
    return is_bad & ~numbers.is_null


class Times(NamedTuple):
    """Whole seconds since 1970, and for each whether it is a value, none or bad."""

    seconds: Ints
    states: NDArray[np.uint8]


@njit(nogil=True, cache=True)
def _read_written_times(texts: Texts, time_format: int, seconds: Ints, states: NDArray[np.uint8]) -> None:
    for i in range(len(seconds)):
        begin, end = texts.begins[i], texts.ends[i]
        seconds[i], is_time = seconds_of(texts.data, time_format, begin, end)
        states[i] = NONE if texts.is_null[i] or begin >= end else VALUE if is_time else ODD


@njit(nogil=True, cache=True)
def _fill_parts(times: Times, part: int, out: Words) -> None:
    for i in range(len(out)):
        out[i] = np.uint64(part_of(times.seconds[i], part)) if times.states[i] == VALUE else MISSING_CATEGORY


def _ages(times: Times, now: Times) -> NDArray[np.float64]:
    """The days from times to those of their rows."""
    is_known = (times.states == VALUE) & (now.states == VALUE)
    ages: NDArray[np.float64] = np.where(is_known, (now.seconds - times.seconds) / 86400.0, np.nan)
    return ages


def read_times(cells: Cells, column: Column) -> Times:
    """The times of a column; typed ones are what they are, whatever the column says of texts and numbers."""
    assert column.time_format is not None
    assert not isinstance(cells, Lists)
    num_rows = len(cells.is_null)
    seconds, states = np.zeros(num_rows, np.int64), np.zeros(num_rows, np.uint8)
    if isinstance(cells, Texts):
        _read_written_times(cells, time_details(column.time_format, None)[0], seconds, states)
        for i in np.flatnonzero(states == ODD):
            found = read_time(_text(cells, int(i)), column.time_format)
            seconds[i], states[i] = found or 0, BAD if found is None else VALUE
        return Times(seconds, states)
    if isinstance(cells, Moments):
        whole = cells.seconds.astype(np.float64)
    elif column.time_format in ("epoch_s", "epoch_ms"):
        whole = np.floor(np.floor(cells.values.astype(np.float64)) / (1000 if column.time_format == "epoch_ms" else 1))
    else:
        whole = _seconds_of_digits(cells.values, column.time_format)
    is_right = (whole >= FIRST_MOMENT) & (whole <= LAST_MOMENT)
    is_none = cells.is_null | np.isnan(cells.values) if isinstance(cells, Numbers) else cells.is_null
    seconds[is_right] = whole[is_right].astype(np.int64)
    states[:] = np.where(is_none, NONE, np.where(is_right, VALUE, BAD))
    return Times(seconds, states)


def _seconds_of_digits(numbers: NDArray[Any], time_format: TimeFormat) -> NDArray[np.float64]:
    """Of numbers whose eight digits are a date; infinite for those that are none. Each of them is read once."""
    found, inverse = np.unique(numbers, return_inverse=True)
    written = [f"{int(n):08d}" if np.isfinite(n) and n == int(n) else "" for n in found.tolist()]
    seconds = [read_time(text.encode(), time_format) for text in written]
    return np.array([np.inf if each is None else float(each) for each in seconds], np.float64)[inverse]


def read_labels(cells: Numbers | Texts, column: Column, out: NDArray[np.float32]) -> Bools:
    """Fill the labels; which rows have none."""
    rule = column.label_rule
    if rule is None and isinstance(cells, Numbers):
        out[:] = cells.values == 1
        return cells.is_null | ((cells.values != 0) & (cells.values != 1))
    if rule is None or rule.texts or isinstance(cells, Texts):
        return _read_written_labels(cells, column, out)
    values, inverse = np.unique(cells.values.astype(np.float64), return_inverse=True)
    out[:] = np.array([rule.accepts_number(value) for value in values.tolist()], np.float32)[inverse]
    is_bad = ~np.isfinite(values) | ((values != np.floor(values)) & (column.kind == "int"))
    return cells.is_null | is_bad[inverse]


def read_weights(numbers: Numbers, column: Column, out: NDArray[np.float32]) -> Bools:
    """Fill the weights; which rows have none that counts."""
    weights = numbers.values.astype(np.float64)
    is_right = (weights >= 0) & (weights <= np.finfo(np.float32).max) & ~numbers.is_null
    if column.kind == "int":
        is_right &= ~_is_no_int64(numbers.values)
    out[:] = np.where(is_right, weights, 0.0)
    return ~is_right


def _read_written_labels(cells: Numbers | Texts, column: Column, out: NDArray[np.float32]) -> Bools:
    """The labels that texts, or numbers as they are written, stand for; each of the different ones is read once."""
    keys = cells.values if isinstance(cells, Numbers) else _hashes(cells)
    is_none = cells.is_null | (keys == MISSING_CATEGORY if isinstance(cells, Texts) else False)
    _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
    labels, is_bad = np.zeros(len(firsts), np.float32), np.zeros(len(firsts), np.bool_)
    for i, first in enumerate(firsts.tolist()):
        field = written(cells.values[first].item()) if isinstance(cells, Numbers) else _text(cells, first)
        is_bad[i] = complaint(field, column) is not None
        labels[i] = 0.0 if is_bad[i] else label_value(field, column)
    out[:] = labels[inverse]
    return is_none | is_bad[inverse]


def _hashes(texts: Texts) -> Words:
    values, states = np.empty(len(texts.begins), np.uint64), np.empty(len(texts.begins), np.uint8)
    _read_texts(texts, STRING_CATEGORIES, False, values, states)
    return np.where(states == NONE, MISSING_CATEGORY, values)


def _text(texts: Texts, i: int) -> bytes:
    return texts.data[texts.begins[i] : texts.ends[i]].tobytes()


def read_cells(columns: Mapping[str, Cells], schema: Schema, out: RawColumns, flaws: NDArray[np.uint16]) -> None:
    """Fill raw rows, and for each the place, from 1, of the first column that is bad; 0 if none is."""
    dense, slot = 0, 0
    out.labels[:], flaws[:] = 0.0, 0
    moments = {
        time.name: read_times(columns[time.name], time)
        for time in schema.fields
        if time.kind == "time" and time.name in columns
    }
    for place, column in enumerate(schema.columns, start=1):
        if column.role == "ignored":
            continue
        if column.source is not None or column.role == "time":
            times = moments[schema.field_of(column).name]
            is_bad = times.states == BAD
            if column.part == "days":
                out.numbers[:, dense] = np.where(times.states == VALUE, times.seconds / 86400.0, np.nan)
                dense += 1
            elif column.part == "age":
                out.numbers[:, dense] = _ages(times, moments[schema.of_role("time")[0].name])
                dense += 1
            elif column.part is not None:
                _fill_parts(times, get_args(TimePart).index(column.part), out.values[:, slot])
                slot += 1
            flaws[is_bad & (flaws == 0)] = place
            continue
        cells = columns[column.name]
        if column.role == "category":
            assert not isinstance(cells, Moments)
            is_bad = read_categories(cells, column, out.values[:, slot : slot + column.num_slots])
            slot += column.num_slots
        elif column.role == "label":
            assert isinstance(cells, Numbers | Texts)
            is_bad = read_labels(cells, column, out.labels)
        elif column.role == "weight":
            assert isinstance(cells, Numbers)
            is_bad = read_weights(cells, column, out.weights)
        else:
            assert isinstance(cells, Numbers)
            is_bad = read_numbers(cells, column, out.numbers[:, dense])
            dense += 1
        flaws[is_bad & (flaws == 0)] = place


def explain_cell(value: object, column: Column) -> BadRow:
    """What is wrong with a cell that was found to be bad."""
    if value is None:
        return BadRow(column.name, b"null", complaint(b"", column) or "")
    items = [item for item in value if item not in (None, "", b"")] if isinstance(value, list) else [value]
    complaints = [BadRow(column.name, written(item), complaint(written(item), column) or "") for item in items]
    return next(each for each in complaints if each.reason)


def written(value: object) -> bytes:
    """A value as the text of a CSV would have it, but for null."""
    if value is None:
        return b"null"
    return value if isinstance(value, bytes) else str(value).encode()


def compile_cells() -> None:
    """Have the kernels compiled, or loaded from their cache, before anyone waits for rows."""
    texts = padded(np.empty(0, np.uint8), np.zeros(2, np.int64), np.zeros(1, np.bool_))
    several = Column(name="none", role="category", kind="string", inner_separator="|", max_values=2)
    alone = Column(name="none", role="category", kind="string")
    out = np.empty((1, 3), np.uint64)
    for column in (several, alone):
        read_categories(texts, column, out[:, : column.num_slots])
    _fill_parts(read_times(texts, Column(name="none", role="time", kind="time")), 0, out[:, 0])
