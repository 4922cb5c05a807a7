"""Events of users and items: which columns of a file say what, the published layouts by name, and the slow reader.

The fast reader (`interactions.py`) takes plain files; what it stumbles over is read again here, line by line, and
accepted or rejected by file, line and value.
"""

import csv
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from recmill.data.events.times import EXAMPLE, read_iso
from recmill.data.logs.text_file import Source
from recmill.errors import BadRowError, DataError
from recmill.settings.events import EventSchema

_INT = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS = 19  # of 64 bits
_SHOWN = 60
_FIRST_ROWS = 20
# Of each MovieLens directory, the file of ratings and that of items beside it.
_MOVIELENS_FILES = {"ratings.dat": "movies.dat", "ratings.csv": "movies.csv", "u.data": "u.item"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MICROSECONDS = 1_000_000  # times with fractions are kept as whole numbers of these


def find_event_files(data: Path) -> tuple[Path, ...]:
    """A single file, or all of a directory in the order of their names; hidden ones are left out.

    Of a directory as MovieLens publishes it, the ratings alone: the others describe items and users.
    """
    if data.is_file():
        return (data,)
    if not data.is_dir():
        raise DataError(f"there is no file or directory {data}")
    paths = tuple(sorted(path for path in data.iterdir() if path.is_file() and not path.name.startswith(".")))
    if not paths:
        raise DataError(f"{data} holds no file")
    by_name = {path.name: path for path in paths}
    ratings = [by_name[name] for name, items in _MOVIELENS_FILES.items() if name in by_name and items in by_name]
    return tuple(ratings[:1]) or paths


def split_fields(line: str, schema: EventSchema) -> list[str]:
    """The fields of a line without its newline, as RFC 4180 has them; csv.Error if quotes do not fit.

    A quote within a field that does not begin with one is a character like others, and so is a carriage return.
    """
    if not schema.quoted or '"' not in line:
        return line.split(schema.separator)
    if "\r" in line or len(line) > csv.field_size_limit():  # of which Python's reader has its own ideas
        return _split_quoted(line, schema.separator)
    return next(csv.reader([line], delimiter=schema.separator, strict=True), [""])


def _split_quoted(line: str, separator: str) -> list[str]:
    """The same one by one: slow, and for every line."""
    fields, at = list[str](), 0
    while True:
        if line.startswith('"', at):
            end = at + 1
            while line[end : end + 1] != '"' or line.startswith('""', end):
                end += 2 if line.startswith('""', end) else 1
                if end >= len(line):
                    raise csv.Error("a quote is not closed")
            fields.append(line[at + 1 : end].replace('""', '"'))
            end += 1
            if end < len(line) and line[end] != separator:
                raise csv.Error(f"{separator!r} expected after a closing quote")
        else:
            found = line.find(separator, at)
            end = found if found >= 0 else len(line)
            fields.append(line[at:end])
        if end >= len(line):
            return fields
        at = end + 1


def choose_schema(source: Source, schemas: tuple[EventSchema, ...]) -> EventSchema:
    """The schema that fits a file's first line, by its header or by the number of fields; moves to its first row."""
    first = source.buffer[: source.line_end(0)].tobytes()
    if first.startswith(BYTE_ORDER_MARK):
        source.rows_start = len(BYTE_ORDER_MARK)
    line = first.removeprefix(BYTE_ORDER_MARK).decode(errors="replace").removesuffix("\r")
    for schema in schemas:
        try:
            fields = split_fields(line, schema)
        except csv.Error:
            continue
        if schema.header and tuple(fields) == schema.columns:
            source.rows_start = min(source.line_end(0) + 1, source.num_bytes)
            return schema
        if not schema.header and len(fields) == len(schema.columns) and _is_row(fields, schema):
            return schema
    raise DataError(
        f"{source.path}:1: {shorten(line)} is not what is expected there: {' or '.join(map(_expect, schemas))}; "
        "for other columns, name them in a schema: --preset events --schema FILE.toml"
    )


def _is_row(fields: list[str], schema: EventSchema) -> bool:
    """Whether a first line may be a row: with integer users and items, the names of columns are none."""
    values = dict(zip(schema.columns, fields, strict=True))
    ids = [values[schema.user]] * (schema.user_kind == "int") + [values[schema.item]] * (schema.item_kind == "int")
    return all(_INT.fullmatch(text.strip()) for text in ids)


def first_values(source: Source, schema: EventSchema, role: str) -> list[str]:
    """What the first rows of a text have in the column of a role; rows with other numbers of fields are left out."""
    column = getattr(schema, role)
    if column is None:
        return []
    at, values, place = source.rows_start, list[str](), schema.columns.index(column)
    for _ in range(_FIRST_ROWS):
        end = source.line_end(at)
        line = source.buffer[at:end].tobytes().decode(errors="replace").removesuffix("\r")
        with suppress(csv.Error):
            fields = split_fields(line, schema)
            values += [fields[place]] if len(fields) == len(schema.columns) else []
        at = end + 1
        if at >= source.num_bytes:
            break
    return values


def _expect(schema: EventSchema) -> str:
    kind = "the header" if schema.header else "a row of"
    return f"{kind} {schema.separator.join(schema.columns)!r}"


def shorten(text: str) -> str:
    """A value for a message."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


class BadEvent(NamedTuple):
    """A line of text, or a row of Parquet, that cannot be an event, and why."""

    number: int
    reason: str

    def describe(self, path: Path, separator: str = ":") -> str:
        """The place and the complaint."""
        return f"{path}{separator}{self.number}{self.reason}"

    def complain(self, path: Path, separator: str = ":") -> BadRowError:
        """The error that names it."""
        return BadRowError(
            f"{self.describe(path, separator)} (fix the file, or pass --bad-rows skip to count such rows and go on)"
        )


def parse_lines(
    text: bytes, first_line: int, schema: EventSchema, roles: tuple[str, ...], *, until_bad: bool = False
) -> tuple[dict[str, list[Any]], list[BadEvent]]:
    """Every line of some text, one by one: the values of the roles, and the lines that have none.

    `until_bad` stops at the first of those.
    """
    values: dict[str, list[Any]] = {role: [] for role in roles}
    bad = list[BadEvent]()
    lines = text.split(b"\n")
    for number, raw in enumerate(lines[:-1] if lines[-1] == b"" else lines, start=first_line):
        line = raw.removesuffix(b"\r")
        if not line:
            continue
        parsed = _parse_line(line, schema, roles)
        if isinstance(parsed, str):
            bad.append(BadEvent(number, f": {parsed}"))
            if until_bad:
                break
        else:
            for role, value in zip(roles, parsed, strict=True):
                values[role].append(value)
    return values, bad


def _parse_line(line: bytes, schema: EventSchema, roles: tuple[str, ...]) -> list[Any] | str:
    try:
        fields = split_fields(line.decode(), schema)
    except (UnicodeDecodeError, csv.Error) as error:
        return f"the line cannot be read: {error}: {shorten(line.decode(errors='backslashreplace'))}"
    if len(fields) != len(schema.columns):
        return (
            f"the line has {len(fields)} fields, schema {schema.name} expects {len(schema.columns)} separated by "
            f"{schema.separator!r}: {shorten(line.decode())}"
        )
    by_name = dict(zip(schema.columns, fields, strict=True))
    parsed = list[Any]()
    for role in roles:
        value = _parse_field(by_name[getattr(schema, role)], role, schema)
        if isinstance(value, str) and schema.kind_of(role) != "string":
            return value
        if value == "":
            return f"{getattr(schema, role)} is empty"
        parsed.append(value)
    return parsed


def _parse_field(text: str, role: str, schema: EventSchema) -> int | float | str:
    """The value or, of numbers, a text that says what is wrong."""
    kind, column = schema.kind_of(role), getattr(schema, role)
    if kind == "string":
        return text
    text = text.strip()
    if kind == "float":
        try:
            number = float(text)
        except ValueError:
            return f"{column} is {shorten(text)}, which is no number"
        return number if abs(number) < 2**43 else f"{column} is {shorten(text)}, which is too large or no number"
    if kind == "iso":
        moment = read_iso(text)
        return f"{column} is {shorten(text)}, which is no ISO 8601 time as {EXAMPLE}" if moment is None else moment
    whole = read_int(text)
    if whole is None:
        return f"{column} is {shorten(text)}, which is no integer of 64 bits{way_out(role, text, schema)}"
    if role == "is_read" and whole not in (0, 1):
        return f"{column} is {shorten(text)}; it is 0 or 1"
    return whole


def way_out(role: str, text: str = "", schema: EventSchema | None = None) -> str:
    """What in a schema would make a value right that is no integer, if it is known."""
    if text.startswith('"') and schema is not None and not schema.quoted:
        return "; a schema with quoted = true reads fields in quotes"
    if kind := _kind_that_fits(role, text):
        return f'; a schema may say {role}_kind = "{kind}"'
    return ""


def _kind_that_fits(role: str, text: str) -> str | None:
    """How a schema would have to say that a value which is no integer is written, if it can."""
    if role in ("user", "item"):
        return "string"
    if role != "time":
        return None
    if read_iso(text) is not None:
        return "iso"
    try:
        return "float" if abs(float(text)) < 2**43 else None
    except ValueError:
        return None


def read_int(text: str) -> int | None:
    """The integer of 64 bits that a text is, if it is one."""
    text = text.strip()
    digits = text.lstrip("+-").lstrip("0") or "0"
    if not _INT.fullmatch(text) or len(digits) > _MOST_DIGITS:
        return None
    whole = -int(digits) if text.startswith("-") else int(digits)
    return whole if -(2**63) <= whole < 2**63 else None
