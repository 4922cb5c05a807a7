"""The texts of string categories in a segment of any format, read by the slow parsers, and their hashes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.json_line import read_values
from recmill.data.logs.json_lines_file import JsonLines
from recmill.data.logs.parquet_file import DECODED_ROWS, ParquetSegment
from recmill.data.logs.raw_format import RawSegment
from recmill.data.logs.text_file import Segment
from recmill.data.text.cells import padded, read_categories
from recmill.data.text.reference import BadRow, split_line
from recmill.settings.columns import Column, Format, Schema

Field = bytes | list[bytes | None] | None  # of one row: a text, a list of texts, or nothing


def string_columns(schema: Schema) -> tuple[Column, ...]:
    """The category columns whose values are hashes of texts."""
    return tuple(column for column in schema.of_role("category") if column.kind == "string")


def texts_of(segment: RawSegment, schema: Schema) -> Iterator[list[list[bytes]]]:
    """For each string column all texts of some rows of a segment, those of bad rows perhaps included; then of more."""
    columns = string_columns(schema)
    read = _READERS.get(schema.format)
    for fields in read(segment, schema, columns) if columns and read else ():
        yield [_values(own, column) for own, column in zip(fields, columns, strict=True)]


def _values(fields: Iterable[Field], column: Column) -> list[bytes]:
    """What the fields hold; nothing between two inner separators is no value."""
    if not column.is_several:
        return [field for field in fields if isinstance(field, bytes) and field]
    separator, found = (column.inner_separator or "").encode(), list[bytes]()
    for field in fields:
        several = field.split(separator) if isinstance(field, bytes) and separator else field
        found += [value for value in several if value][: column.max_values] if isinstance(several, list) else []
    return found


def hash_texts(texts: Sequence[bytes], column: Column) -> NDArray[np.uint64]:
    """The values that raw columns have for texts of a column that are not empty."""
    out = np.empty((len(texts), 1), np.uint64)
    if texts:
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        cells = padded(np.frombuffer(b"".join(texts), np.uint8), offsets, np.zeros(len(texts), np.bool_))
        read_categories(cells, column.with_({"inner_separator": None}), out)
    return out[:, 0]


def _fields_of_text(segment: Segment, schema: Schema, columns: Sequence[Column]) -> Iterator[list[list[Field]]]:
    names = [column.name for column in schema.fields]
    places, separator = [names.index(column.name) for column in columns], schema.separator.encode()
    source, at, rows = segment.source, segment.start, list[list[bytes]]()
    while at < segment.stop:
        end = min(source.line_end(at), segment.stop)
        line = source.buffer[at:end].tobytes()
        at = end + 1
        plain = line.removesuffix(b"\r").split(separator)
        is_plain = len(plain) == len(names) and b'"' not in line
        fields = plain if is_plain else split_line(line, schema)  # which is slow
        if not isinstance(fields, BadRow):
            rows.append(fields)
    yield [[row[place] for row in rows] for place in places]


def _fields_of_json(segment: Segment, schema: Schema, columns: Sequence[Column]) -> Iterator[list[list[Field]]]:
    lines = JsonLines(segment)
    found = (read_values(lines.line(i), schema) for i in range(len(lines)))
    rows = [row for row in found if not isinstance(row, BadRow)]
    yield [[row[column.name] for row in rows] for column in columns]


def _fields_of_parquet(
    segment: ParquetSegment, _schema: Schema, columns: Sequence[Column]
) -> Iterator[list[list[Field]]]:
    from recmill.data.logs.parquet_rows import read_texts  # pyarrow is heavy

    names = [column.name for column in columns]
    yield from read_texts(segment.source.path, names, segment.start, segment.stop, DECODED_ROWS)


# By format: a function of a segment, its schema and its string columns.
_READERS: dict[Format, Callable[[Any, Schema, Sequence[Column]], Iterator[list[list[Field]]]]] = {
    "text": _fields_of_text,
    "jsonl": _fields_of_json,
    "parquet": _fields_of_parquet,
}
