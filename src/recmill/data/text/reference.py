"""One line of text to one row, slowly and obviously: the court of appeal for lines the kernel does not accept."""

import re
from dataclasses import dataclass

import numpy as np

from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY
from recmill.data.text.hashing import xxh64
from recmill.data.text.kernel import MAX_LINE_BYTES
from recmill.data.text.written_times import WANTED, days_of, part_of_moment, read_time
from recmill.settings.columns import Column, Schema

_INTEGER = re.compile(rb"-?[0-9]+")
_FLOAT = re.compile(rb"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HEX = re.compile(rb"[0-9a-fA-F]{8}")
_QUOTED = re.compile(rb'"((?:[^"]++|"")*+)"')
_INT64_MAX = 2**63 - 1
_COMMA_AS_POINT = bytes.maketrans(b".,", b",.")  # and a point is no decimal mark then
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_PLAIN_LABELS = {b"0": 0, b"1": 1, b"false": 0, b"true": 1}


@dataclass(frozen=True)
class Row:
    """A line's values: NaN for a missing number, MISSING_CATEGORY for a missing category, one value for each slot."""

    label: float
    numbers: tuple[float, ...]
    values: tuple[int, ...]
    weight: float = 1.0


@dataclass(frozen=True)
class BadRow:
    """Why a line cannot be a row: the column (None = the whole line), the offending text and the reason."""

    column: str | None
    text: bytes
    reason: str

    def describe(self) -> str:
        """The complaint, without the place."""
        shown = repr(self.text[:40])[1:] + ("..." if len(self.text) > 40 else "")
        return f"column {self.column} holds {shown}: {self.reason}" if self.column else f"{self.reason}: {shown}"


def split_line(line: bytes, schema: Schema) -> list[bytes] | BadRow:
    """The fields of a line given without its newline, one for each column, or what is wrong with the line."""
    if len(line) >= MAX_LINE_BYTES:
        return BadRow(None, line, f"the line has {len(line):,} bytes, more than {MAX_LINE_BYTES - 1:,}")
    line = line.removesuffix(b"\r")  # of the line end
    fields = _split_quoted(line, schema) if schema.quoted else line.split(schema.separator.encode())
    if isinstance(fields, BadRow):
        return fields
    if len(fields) != len(schema.fields):
        expected = f"{len(schema.fields)} fields separated by {schema.separator!r}"
        return BadRow(None, line, f"the line has {len(fields)} fields, schema {schema.name} expects {expected}")
    return fields


def _split_quoted(line: bytes, schema: Schema) -> list[bytes] | BadRow:
    """The fields of a line in which some may stand in double quotes, as RFC 4180 has it."""
    separator, fields, at = schema.separator.encode(), list[bytes](), 0
    names = [column.name for column in schema.fields]
    while True:
        column = names[min(len(fields), len(names) - 1)]
        if line[at : at + 1] == b'"':
            quoted = _QUOTED.match(line, at)
            if quoted is None:
                return BadRow(column, line[at:], "the quote at its begin never closes; close it, or double it")
            fields.append(quoted[1].replace(b'""', b'"'))
            at = quoted.end()
            if at < len(line) and line[at : at + 1] != separator:
                return BadRow(column, line[quoted.start() :], "something follows the closing quote")
        else:
            found = line.find(separator, at)
            end = found if found >= 0 else len(line)
            if b'"' in line[at:end]:
                reason = "a quote within a field that does not begin with one; double it and quote the field"
                return BadRow(column, line[at:end], reason)
            fields.append(line[at:end])
            at = end
        if at == len(line):
            return fields
        at += 1


def read_row(line: bytes, schema: Schema) -> Row | BadRow:
    """The row of a line given without its newline, or what is wrong with it."""
    fields = split_line(line, schema)
    if isinstance(fields, BadRow):
        return fields
    label, weight, numbers, values = 0.0, 1.0, list[float](), list[int]()
    given_by_name = {column.name: field for column, field in zip(schema.fields, fields, strict=True)}
    for column in schema.columns:
        read_from = schema.field_of(column)
        given = given_by_name[read_from.name]
        is_float = schema.decimal == "," and column.kind == "float"
        field = given.translate(_COMMA_AS_POINT) if is_float and column.source is None else given
        if reason := complaint(field, column) if column.source is None else complaint_of_one(field, read_from):
            return BadRow(read_from.name, given, reason)
        if column.role == "label":
            label = label_value(field, column)
        elif column.role == "weight":
            weight = _number(field, column)
        elif column.role == "dense":
            number = _number(field, column) if column is read_from else _days(field, read_from)
            if column.part == "age":
                now = schema.of_role("time")[0]
                number = _age(field, read_from, given_by_name[now.name], now)
            numbers.append(number)
        elif column.role == "category":
            values += _categories(field, column) if column is read_from else [_part(field, read_from, column)]
    return Row(label, tuple(numbers), tuple(values), weight)


def complaint(field: bytes, column: Column) -> str | None:
    """Why a field cannot stand in its column, if it cannot."""
    if b"\0" in field:
        return "a NUL byte; is the file binary or damaged?"
    if column.role == "label":
        return _complaint_of_label(field, column)
    if column.role == "weight":
        return _complaint_of_weight(field, column)
    if column.role == "ignored":
        return None
    if column.inner_separator is not None:
        return next(filter(None, (complaint_of_one(value, column) for value in _several(field, column))), None)
    return complaint_of_one(field, column)


def _complaint_of_label(field: bytes, column: Column) -> str | None:
    if column.label_rule is None:
        is_plain = field.lower() in _PLAIN_LABELS
        return None if is_plain else "a label is 0 or 1; of others the schema says which are positive (positive = ...)"
    return complaint_of_one(field, column) if field else "an empty label; every row needs one"


def _complaint_of_weight(field: bytes, column: Column) -> str | None:
    if not field:
        return "an empty weight; every row needs one"
    if reason := complaint_of_one(field, column):
        return reason
    return None if 0 <= _number(field, column) <= _FLOAT32_MAX else "a weight is at least 0, and at most 3.4e38"


def label_value(field: bytes, column: Column) -> float:
    """1 for a positive label that is accepted, 0 for a negative one."""
    rule = column.label_rule
    if rule is None:
        return float(_PLAIN_LABELS[field.lower()])
    return float(field in rule.texts if rule.texts else rule.accepts_number(_number(field, column)))


def complaint_of_one(field: bytes, column: Column) -> str | None:
    """The same of a single value, one of several or the only one."""
    if not field or column.kind in (None, "string"):
        return None
    if column.kind == "hex":
        return None if _HEX.fullmatch(field) else "a category of this kind is exactly 8 hexadecimal digits"
    if column.kind == "time":
        assert column.time_format is not None
        return None if read_time(field, column.time_format) is not None else f"not {WANTED[column.time_format]}"
    if column.kind == "float":
        is_finite = _FLOAT.fullmatch(field) and np.isfinite(float(field))
        return None if is_finite else "not a finite decimal number"
    digits = field.lstrip(b"-0")  # Python does not convert thousands of digits, be they zeros
    is_int64 = _INTEGER.fullmatch(field) and len(digits) <= 19 and int(digits or b"0") <= _INT64_MAX
    if not is_int64:
        return "not an integer of 64 bits"
    is_mark = column.is_several and _integer(field) % 2**64 == ABSENT_CATEGORY
    return "in a column of several values this one integer stands for none" if is_mark else None


def _days(field: bytes, time: Column) -> float:
    """The days since 1970 of a time that is accepted."""
    moment = _moment(field, time)
    return float("nan") if moment is None else days_of(moment)


def _age(field: bytes, time: Column, field_now: bytes, time_now: Column) -> float:
    """The days from a time to that of the row, both accepted; negative if it is later."""
    moment, now = _moment(field, time), _moment(field_now, time_now)
    return float("nan") if moment is None or now is None else days_of(now - moment)


def _part(field: bytes, time: Column, column: Column) -> int:
    """The value of a category that is a part of a time that is accepted."""
    moment = _moment(field, time)
    assert column.part is not None
    return int(MISSING_CATEGORY) if moment is None else part_of_moment(moment, column.part)


def _moment(field: bytes, time: Column) -> int | None:
    assert time.time_format is not None
    return read_time(field, time.time_format) if field else None


def _number(field: bytes, column: Column) -> float:
    if not field:
        return float("nan")
    return float(_integer(field)) if column.kind == "int" else float(field)


def _integer(field: bytes) -> int:
    magnitude = int(field.lstrip(b"-0") or b"0")
    return -magnitude if field.startswith(b"-") else magnitude


def _several(field: bytes, column: Column) -> list[bytes]:
    """The first values of a field that holds several; nothing between two inner separators is no value."""
    assert column.inner_separator is not None
    return [value for value in field.split(column.inner_separator.encode()) if value][: column.max_values]


def _categories(field: bytes, column: Column) -> list[int]:
    """A value for each slot of the column."""
    if column.inner_separator is None:
        return [category_value(field, column)]
    values = [category_value(value, column) for value in _several(field, column)] or [int(MISSING_CATEGORY)]
    return values + [int(ABSENT_CATEGORY)] * (column.num_slots - len(values))


def category_value(field: bytes, column: Column) -> int:
    """The 64-bit value of a single category that is accepted."""
    if not field:
        return int(MISSING_CATEGORY)
    if column.kind == "hex":
        return int(field, 16)
    if column.kind == "int":
        return _integer(field) % 2**64
    hashed = int(xxh64(np.frombuffer(field, np.uint8), 0, len(field), np.uint64(0)))
    marks = (MISSING_CATEGORY, ABSENT_CATEGORY) if column.is_several else (MISSING_CATEGORY,)
    return hashed ^ 1 if hashed in marks else hashed
