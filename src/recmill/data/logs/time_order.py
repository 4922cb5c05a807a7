"""Whether files are in the order of their column of times, and how many of their lines come before a moment."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.formats import FORMATS
from recmill.data.logs.raw_format import RawChunk, RawSegment
from recmill.errors import ConfigError, DataError
from recmill.settings.columns import Column, Schema

_CHUNK_BYTES = 8 << 20


class OutOfOrder(DataError):
    """A line is earlier than one above it."""


class KeyReader:
    """The keys of lines, read in the order of the files: days since 1970 of a time, or a number as it is.

    A line without a key, and one that is no row, has that of the line above.
    """

    def __init__(self, schema: Schema, column: str | None = None, *, max_unpacked_bytes: int | None = None) -> None:
        self.column = _column_to_read(schema, column)
        self.num_keys = self.num_keyless = 0
        self.latest = -np.inf  # the key of the line above
        self._schema, self._format = _only(schema, self.column), FORMATS[schema.format]
        self._max_unpacked_bytes = max_unpacked_bytes

    def open(self, path: Path) -> Any:
        """A source of segments that can be read."""
        return self._format.open(path, self._schema, self._max_unpacked_bytes)

    def read(self, segment: RawSegment) -> NDArray[np.float64]:
        """The keys of all lines of the next segment."""
        found = _numbers_by_line(self._format.read(segment, self._schema, max_bad=None))
        has_key = ~np.isnan(found)
        self.num_keys += int(np.count_nonzero(has_key))
        self.num_keyless += int(np.count_nonzero(~has_key))
        above = np.maximum.accumulate(np.where(has_key, np.arange(len(found)), -1))
        keys = np.where(above < 0, self.latest, found[above])
        self.latest = float(keys[-1]) if len(keys) else self.latest
        return keys


def read_times(paths: Sequence[Path], reader: KeyReader, way_out: str) -> Iterator[NDArray[np.float64]]:
    """The times of all lines, in days since 1970, some at a time; complains about times out of order.

    A line without a time, and one that is no row, goes with the line above.
    """
    for path in paths:
        with closing(reader.open(path)) as source:
            for part in source.whole().cut(_CHUNK_BYTES):
                before = reader.latest
                days = reader.read(part)
                behind = np.flatnonzero(days < np.concatenate([[before], days[:-1]]))
                if len(behind):
                    line = source.line_number(part.start) + int(behind[0])
                    raise OutOfOrder(
                        f"{source.place(line)}: its {reader.column.name} is before that of a line above, and later "
                        f"lines are for validation and test; {way_out}"
                    )
                yield days


def count_before(paths: Sequence[Path], reader: KeyReader, days: float, way_out: str) -> int:
    """How many lines of the files come before a moment, in days since 1970."""
    return sum(int(np.count_nonzero(times < days)) for times in read_times(paths, reader, way_out))


def last_time(paths: Sequence[Path], reader: KeyReader, way_out: str) -> float:
    """The latest time of the files, in days since 1970; minus infinity if there is none."""
    return max((float(times[-1]) for times in read_times(paths, reader, way_out) if len(times)), default=-np.inf)


def _column_to_read(schema: Schema, name: str | None) -> Column:
    """The column of times, or the one that is named: a time or a number."""
    times = schema.of_role("time")
    if name is None:
        if not times:
            raise ConfigError(
                f"schema {schema.name} has no column of role time; name the column to sort by with --by COLUMN"
            )
        return times[0]
    found = next((field for field in schema.fields if field.name == name), None)
    if found is None:
        names = ", ".join(field.name for field in schema.fields)
        raise ConfigError(f"--by {name}: schema {schema.name} has no such column; its columns are {names}")
    if found.kind not in ("time", "int", "float") or found.is_several:
        raise ConfigError(
            f"--by {name}: schema {schema.name} reads it neither as a time nor as a number; give the column "
            'kind = "time", with its time_format, or kind = "int" or "float"'
        )
    return found


def _only(schema: Schema, column: Column) -> Schema:
    """The schema of the same files that reads nothing but one column, as a number."""
    if column.kind != "time":
        number = Column(name=column.name, role="dense", kind=column.kind)
        columns = [number if each is column else Column(name=each.name, role="ignored") for each in schema.fields]
        return schema.with_({"columns": columns})
    fields = [each if each is column else Column(name=each.name, role="ignored") for each in schema.fields]
    days = Column(name=f"days of {column.name}", role="dense", source=column.name, part="days")
    return schema.with_({"columns": [*fields, days]})


def _numbers_by_line(chunk: RawChunk) -> NDArray[np.float64]:
    """NaN for lines that have none."""
    numbers, is_row = np.full(chunk.num_lines, np.nan), np.ones(chunk.num_lines, np.bool_)
    is_row[[line for line, _ in chunk.bad]] = False
    numbers[is_row] = chunk.raw.numbers[:, 0]
    return numbers
