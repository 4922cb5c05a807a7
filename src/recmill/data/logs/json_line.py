"""One line of JSON to the values of its row, slowly and obviously: what decides whether a line is a row.

Numbers are kept as they are written, so that no digit is lost before it is known what they are for.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from recmill.data.text.cells import TAKEN, Cells, Lists, Numbers, Texts, padded
from recmill.data.text.reference import BadRow
from recmill.settings.columns import Column, Schema

_LONGEST_INT64 = len(str(-(1 << 63)))
_NO_INT64 = -(1 << 63)  # what stands for a number that is too large; `cells.py` rejects it
_NAMES = {
    "int": "an integer",
    "float": "a number with decimals",
    "string": "a text",
    "list": "a list",
    "object": "an object",
}


class Whole(str):
    """A number without decimals, as it is written."""

    __slots__ = ()


class Broken(str):
    """A number with decimals or an exponent, as it is written."""

    __slots__ = ()


class JsonType(NamedTuple):
    """What the values of a column are: bool, int, float or bytes; or lists of these."""

    item: str
    is_list: bool


def type_of(value: object) -> str:
    """What a value that is not null is, in the words of `TAKEN`."""
    if isinstance(value, bool | Whole):
        return "int"
    if isinstance(value, Broken | float):
        return "float"
    if isinstance(value, str):
        return "string"
    return "list" if isinstance(value, list) else "object"


def parse_line(line: bytes) -> dict[str, Any] | BadRow:
    """The object of a line, given without its newline; or why it has none."""
    text = line.decode("utf-8", "surrogateescape")
    try:
        found = json.loads(text, parse_int=Whole, parse_float=Broken)
    except json.JSONDecodeError as error:
        told = f"{error.msg}, at its character {error.pos + 1}" if text.strip() else "it is empty"
        return BadRow(None, line, f"the line is no JSON object ({told})")
    except RecursionError:
        return BadRow(None, line, "the line is JSON of too many levels")
    return found if isinstance(found, dict) else BadRow(None, line, "the line is JSON, but no object in braces")


def read_values(line: bytes, schema: Schema) -> dict[str, Any] | BadRow:
    """The values that a schema reads, each of a type that its column takes, texts as bytes; or what is wrong."""
    found = parse_line(line)
    if isinstance(found, BadRow):
        return found
    values = dict[str, Any]()
    for column in schema.fields_read:
        value = found.get(column.name)
        if reason := _complaint_of_type(value, column):
            return BadRow(column.name, shown(value), reason)
        try:
            values[column.name] = [_encoded(item) for item in value] if isinstance(value, list) else _encoded(value)
        except UnicodeEncodeError:
            return BadRow(column.name, shown(value), "not Unicode: an escape is half of a pair")
    return values


def _encoded(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if type(value) is str else value


def _complaint_of_type(value: Any, column: Column) -> str | None:
    if value is None:
        return None
    is_list = isinstance(value, list)
    if column.is_several and column.inner_separator is None:
        if not is_list:
            return "not a list; write a list, or give the inner_separator of a text in the schema"
        return next(filter(None, (_complaint_of_item(item, column) for item in value)), None)
    if is_list and column.role == "category":
        way_out = "leave out inner_separator" if column.is_several else "give max_values, how many are used,"
        return f"a list of values; {way_out} in the schema"
    if column.is_several and type_of(value) != "string":
        return f"{_NAMES[type_of(value)]}, where the schema has texts with an inner_separator"
    return _complaint_of_item(value, column)


def _complaint_of_item(value: object, column: Column) -> str | None:
    taken = TAKEN[column.role, str(column.kind)]
    if value is None or type_of(value) in taken:
        return None
    wanted = " or ".join(_NAMES[name] for name in taken)
    return f"{_NAMES[type_of(value)]}; a {column.role} of kind {column.kind} is {wanted}"


def shown(value: object) -> bytes:
    """A value about as it is written, for messages and columns that are carried along."""
    if isinstance(value, bool) or value is None:
        return {True: b"true", False: b"false", None: b"null"}[value]
    if isinstance(value, list | dict):
        return json.dumps(_plain(value), ensure_ascii=False).encode("utf-8", "replace")
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    """A value with its numbers as numbers."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Whole):
        return int(value) if len(value) <= _LONGEST_INT64 else float(value)
    return float(value) if isinstance(value, Broken) else value


def guess_types(rows: Sequence[Mapping[str, Any]], schema: Schema) -> dict[str, JsonType]:
    """As what the columns of rows like these are read fast: rows that differ are read slowly, to the same values."""
    types = dict[str, JsonType]()
    for column in schema.fields_read:
        is_list = column.is_several and column.inner_separator is None
        found = [row[column.name] for row in rows if row[column.name] is not None]
        items = [item for value in found for item in value if item is not None] if is_list else found
        types[column.name] = JsonType(_guess_item(items[0] if items else None, column), is_list)
    return types


def _guess_item(item: object, column: Column) -> str:
    if column.inner_separator is not None:
        return "bytes"
    if isinstance(item, bool):
        return "bool"
    if column.kind == "float" or (column.role == "label" and column.kind == "int"):
        return "float"
    if column.kind == "int":
        return "bytes" if isinstance(item, bytes) else "int"
    return "int" if isinstance(item, Whole) else "bytes"


def gather(values: Sequence[Any], column: Column) -> Cells:
    """The values of a column, of types that it takes, as plain arrays."""
    if not (column.is_several and column.inner_separator is None):
        return _gather_items(values, column)
    ends = np.cumsum([len(value or ()) for value in values], dtype=np.int64)
    begins = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
    items = _gather_items([item for value in values for item in value or ()], column)
    return Lists(begins, ends, np.array([value is None for value in values], np.bool_), items)


def _gather_items(values: Sequence[Any], column: Column) -> Numbers | Texts:
    is_null = np.array([value is None for value in values], np.bool_)
    if column.role == "category" or column.kind in ("string", "time"):
        texts = [_text(value) for value in values]
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return padded(np.frombuffer(b"".join(texts), np.uint8), offsets, is_null)
    if column.kind == "int" and column.role != "label":
        return Numbers(np.array([_int64(value) for value in values], np.int64), is_null)
    return Numbers(np.array([float(value or 0) for value in values], np.float64), is_null)


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, Whole) and len(value) > _LONGEST_INT64:
        return value.encode()
    return b"" if value is None else b"%d" % int(value)


def _int64(value: Any) -> int:
    if isinstance(value, Whole) and len(value) > _LONGEST_INT64:
        return _NO_INT64
    number = int(value or 0)
    return number if -(1 << 63) <= number < 1 << 63 else _NO_INT64
