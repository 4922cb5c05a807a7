"""JSON lines as a raw format: one object in each line, its columns found by their names.

1. A file is a text file, its segments are ranges of bytes at line borders, and every line is a row or a bad one.
2. Many lines are read at once by pyarrow, as the types that the first of them have.
3. Where that fails, a few lines at a time are tried, and of those the slow parser in `json_line.py` reads every line.
4. Both give cells, of which `cells.py` makes raw rows: so it does not matter who has read a line.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.header import open_source
from recmill.data.logs.infer_json import infer_json
from recmill.data.logs.json_line import JsonType, gather, guess_types, parse_line, read_values
from recmill.data.logs.parquet_file import DecodedRows
from recmill.data.logs.raw_format import MAX_BAD_LINES, NOTHING_ASKED, AskedColumns, Draft, RawChunk, empty_raw
from recmill.data.logs.text_file import Segment, Source
from recmill.data.text.cells import compile_cells, explain_cell, read_cells
from recmill.data.text.kernel import count_lines
from recmill.data.text.quotes import CARRIAGE_RETURN, NEWLINE
from recmill.data.text.reference import BadRow
from recmill.errors import DataError
from recmill.settings.columns import Schema
from recmill.settings.data import DataConfig

_OPEN, _CLOSE = ord("{"), ord("}")
_TYPED_LINES = 16  # tell the types of all lines of a segment
_CHECKED_LINES = 200
MANY_BYTES, FEW_LINES = 4 << 20, 256
_NO_ROW = np.iinfo(np.uint16).max  # in place of a column that makes a row bad: the line is no row at all


class JsonLines:
    """The lines of a segment, and where they begin and end."""

    def __init__(self, segment: Segment) -> None:
        self.buffer = segment.source.buffer[segment.start : segment.stop]
        newlines = np.flatnonzero(self.buffer == NEWLINE)
        self.ends = newlines if _is_finished(self.buffer) else np.append(newlines, len(self.buffer))
        self.begins = np.concatenate([np.zeros(1, np.int64), self.ends + 1])[:-1]

    def __len__(self) -> int:
        return len(self.ends)

    def line(self, i: int) -> bytes:
        """One of them, without its newline."""
        return self.buffer[self.begins[i] : self.ends[i]].tobytes()

    def many(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Neighbouring lines."""
        return self.buffer[self.begins[start] : self.ends[stop - 1]]

    def are_in_braces(self, start: int, stop: int) -> bool:
        """Whether all lines of a range begin and end with a brace: then no object goes on in the next line."""
        begins, ends = self.begins[start:stop], self.ends[start:stop]
        if (ends - begins < 2).any():
            return False
        lasts = ends - 1 - (self.buffer[ends - 1] == CARRIAGE_RETURN)
        return bool((self.buffer[begins] == _OPEN).all() and (self.buffer[lasts] == _CLOSE).all())

    def cut(self, num_bytes: int) -> Iterator[tuple[int, int]]:
        """All lines, in ranges of about so many bytes."""
        start = 0
        while start < len(self):
            stop = max(start + 1, int(np.searchsorted(self.ends, self.begins[start] + num_bytes)))
            yield start, stop
            start = stop


def _is_finished(buffer: NDArray[np.uint8]) -> bool:
    return len(buffer) == 0 or bool(buffer[-1] == NEWLINE)


class _Reading:
    """The rows of a segment while they are read."""

    def __init__(self, segment: Segment, schema: Schema) -> None:
        self.lines, self.schema = JsonLines(segment), schema
        num_lines = len(self.lines)
        self.rows = DecodedRows(empty_raw(num_lines, schema), np.zeros(num_lines, np.uint16))
        self.types = self._guess_types()
        for start, stop in self.lines.cut(MANY_BYTES):
            self._read(start, stop)

    def _guess_types(self) -> dict[str, JsonType]:
        found = [read_values(self.lines.line(i), self.schema) for i in range(min(_TYPED_LINES, len(self.lines)))]
        return guess_types([values for values in found if not isinstance(values, BadRow)], self.schema)

    def _read(self, start: int, stop: int) -> None:
        """Lines fast if they allow it, or in smaller parts, or slowly."""
        from recmill.data.logs.json_arrow import read_many  # pyarrow is heavy

        cells = None
        if self.lines.are_in_braces(start, stop):
            cells = read_many(self.lines.many(start, stop), stop - start, self.types)
        if cells is not None:
            part = self.rows.rows(start, stop)
            read_cells(cells, self.schema, part.raw, part.flaws)
        elif stop - start <= FEW_LINES:
            self._read_slowly(start, stop)
        else:
            for at in range(start, stop, FEW_LINES):
                self._read(at, min(at + FEW_LINES, stop))

    def _read_slowly(self, start: int, stop: int) -> None:
        places, found = list[int](), list[dict[str, Any]]()
        for i in range(start, stop):
            values = read_values(self.lines.line(i), self.schema)
            if isinstance(values, BadRow):
                self.rows.flaws[i] = _NO_ROW
            else:
                places.append(i)
                found.append(values)
        part = DecodedRows(empty_raw(len(found), self.schema), np.zeros(len(found), np.uint16))
        fields = self.schema.fields_read
        cells = {field.name: gather([values[field.name] for values in found], field) for field in fields}
        read_cells(cells, self.schema, part.raw, part.flaws)
        out = self.rows.raw
        out.labels[places], out.numbers[places], out.values[places] = part.raw.labels, part.raw.numbers, part.raw.values
        if self.schema.has_weight:
            out.weights[places] = part.raw.weights
        self.rows.flaws[places] = part.flaws

    def describe(self, i: int) -> BadRow:
        """What is wrong with a line; reads it again."""
        values = read_values(self.lines.line(i), self.schema)
        if isinstance(values, BadRow):
            return values
        column = self.schema.field_of(self.schema.columns[int(self.rows.flaws[i]) - 1])
        return explain_cell(values[column.name], column)


class JsonLinesFormat:
    """Objects, one in each line, plain or packed."""

    title = "JSON lines"
    suffixes = (".jsonl", ".ndjson")
    evaluation_extent = 1 << 20

    def training_extent(self, data: DataConfig) -> int:
        """So many bytes."""
        return data.block_bytes

    def open(self, path: Path, schema: Schema, max_unpacked_bytes: int | None = None) -> Source:
        """The file, its first lines searched for the names of the columns."""
        source = open_source(path, schema, max_unpacked_bytes)
        _refuse_other_names(source, schema)
        return source

    def infer(self, paths: Sequence[Path], *, name: str, asked: AskedColumns = NOTHING_ASKED) -> Draft:
        """A schema file guessed from the first lines of the files."""
        return infer_json(paths, name=name, asked=asked)

    def compile(self, _schema: Schema) -> None:
        """Have the kernels compiled, or loaded from their cache; they are the same for every schema."""
        count_lines(np.frombuffer(b"", np.uint8), 0, 0)
        compile_cells()

    def check_first(self, segment: Segment, schema: Schema) -> BadRow | None:
        """What is wrong with the first line: columns of other types, or it is another file."""
        if segment.num_bytes == 0:
            return None
        line = segment.source.buffer[segment.start : segment.source.line_end(segment.start)].tobytes()
        found = read_values(line, schema)
        return found if isinstance(found, BadRow) else None

    def read(self, segment: Segment, schema: Schema, *, max_bad: int | None = MAX_BAD_LINES) -> RawChunk:
        """The rows of a segment, each column in one piece, and its bad lines."""
        reading = _Reading(segment, schema)
        rows, num_lines = reading.rows, len(reading.lines)
        if not rows.flaws.any():
            return RawChunk(rows.raw, num_lines, ())
        places = np.flatnonzero(rows.flaws)[:max_bad].tolist()
        return RawChunk(rows.without_bad(), num_lines, tuple((place, reading.describe(place)) for place in places))


def _refuse_other_names(source: Source, schema: Schema) -> None:
    """Complain if the first lines lack a column and have one that is called like it, or lack all of them."""
    rows, at, stop = list[dict[str, Any]](), source.rows_start, source.rows_stop
    while at < stop and len(rows) < _CHECKED_LINES:
        end = min(source.line_end(at), stop)
        found = parse_line(source.buffer[at:end].tobytes())
        if isinstance(found, BadRow):
            return  # whoever reads the rows says so, or ignores it
        rows.append(found)
        at = end + 1
    names = list(dict.fromkeys(name for row in rows for name in row))
    read = [field.name for field in schema.fields_read]
    if names and read and not set(names) & set(read):
        raise DataError(
            f"{source.path} has none of the columns that schema {schema.name} reads ({', '.join(read[:10])}); "
            f"its first lines have {', '.join(names[:10])}"
        )
    others = [name for name in names if name not in {column.name for column in schema.fields}]
    for name in read:
        near = get_close_matches(name, others, n=1) if names and name not in names else []
        if near:
            raise DataError(
                f"{source.path}: its first {len(rows)} lines have no {name!r}, which schema {schema.name} reads; did "
                f'you mean {near[0]!r}? If not, name that one in the schema, too, with role = "ignored"'
            )
