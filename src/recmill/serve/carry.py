"""Columns that are carried along as they are: the fields of every line or row, bad ones included."""

import csv
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.json_line import parse_line, shown
from recmill.data.logs.json_lines_file import JsonLines
from recmill.data.logs.parquet_file import ParquetSegment
from recmill.data.logs.parquet_rows import read_columns
from recmill.data.logs.text_file import Segment
from recmill.settings.columns import Format, Schema

_NEWLINE, _RETURN, _QUOTE = ord("\n"), ord("\r"), b'"'


def carried_cells(segment: ParquetSegment, _schema: Schema, names: Sequence[str]) -> list[Any]:
    """For each name the cells of all rows of a segment, as an Arrow array of the type that the file has."""
    return read_columns(segment.source.path, names, segment.start, segment.stop)


def carried_fields(segment: Segment, schema: Schema, names: Sequence[str]) -> list[list[str | None]]:
    """For each name the fields of all lines of a segment; None where a line does not have the field."""
    places = [[column.name for column in schema.fields].index(name) for name in names]
    text = segment.source.buffer[segment.start : segment.stop]
    if not len(text) or not places:
        return [[] for _ in places]
    if schema.quoted and _QUOTE in text.tobytes():
        return _fields_line_by_line(segment, schema, places)
    return _fields_by_offsets(text, schema, places)


def carried_values(segment: Segment, _schema: Schema, names: Sequence[str]) -> list[list[str | None]]:
    """For each name the values of all lines of JSON, texts as they are; None where a line has no such value."""
    lines = JsonLines(segment)
    found = [parse_line(lines.line(i)) for i in range(len(lines))]
    rows = [row if isinstance(row, dict) else {} for row in found]
    return [[None if row.get(name) is None else shown(row[name]).decode() for row in rows] for name in names]


# By format: a function of a segment, its schema and the names of columns.
CARRIERS: dict[Format, Callable[[Any, Schema, Sequence[str]], list[Any]]] = {
    "text": carried_fields,
    "parquet": carried_cells,
    "jsonl": carried_values,
}


def _fields_line_by_line(segment: Segment, schema: Schema, places: Sequence[int]) -> list[list[str | None]]:
    """Of lines that end where those of the rows do: at no newline inside quotes."""
    source, at = segment.source, segment.start
    found: list[list[str | None]] = [[] for _ in places]
    while at < segment.stop:
        end = min(source.line_end(at), segment.stop)
        decoded = source.buffer[at:end].tobytes().removesuffix(b"\r").decode(errors="replace")
        at = end + 1
        fields = next(csv.reader([decoded], delimiter=schema.separator), [])
        for out, place in zip(found, places, strict=True):
            out.append(fields[place] if place < len(fields) else None)
    return found


def _fields_by_offsets(text: NDArray[np.uint8], schema: Schema, places: Sequence[int]) -> list[list[str | None]]:
    """By the positions of separators, which are found for all lines at once."""
    newlines = np.flatnonzero(text == _NEWLINE)
    ends = newlines if len(newlines) and newlines[-1] == len(text) - 1 else np.append(newlines, len(text))
    starts = np.concatenate([[0], ends[:-1] + 1])
    is_return = (ends > starts) & (text[np.maximum(ends - 1, 0)] == _RETURN)
    ends = ends - is_return
    separators = np.flatnonzero(text == ord(schema.separator))
    first = np.searchsorted(separators, starts)  # of each line, its first separator
    count = np.searchsorted(separators, ends) - first
    content, padded = text.tobytes(), np.append(separators, [0])
    found = list[list[str | None]]()
    for place in places:
        has_it = count >= place
        begins = starts if place == 0 else padded[np.where(has_it, first + place - 1, -1)] + 1
        stops = np.where(count > place, padded[np.where(count > place, first + place, -1)], ends)
        pairs = zip(begins.tolist(), stops.tolist(), has_it.tolist(), strict=True)
        found.append([content[a:b].decode(errors="replace") if there else None for a, b, there in pairs])
    return found
