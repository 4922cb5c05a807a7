"""One long text file to equal parts that look like days: line-exact, counted again after writing.

`recmill split train.txt --parts 24 --rows 5000000 --out DIR` writes day_0 … day_23.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.header import open_source
from recmill.data.logs.text_file import Source
from recmill.data.text.quotes import NEWLINE
from recmill.data.text.swar import count_ones, match64
from recmill.errors import ConfigError, DataError, FailureError
from recmill.files import finished_dir, refuse_occupied, require_free_space
from recmill.jit import njit
from recmill.settings.columns import Schema

_COPY_BYTES = 8 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Cut:
    """What was written, and how many lines at the end of the file were not."""

    num_parts: int
    part_rows: int
    num_bytes: int
    left_over_rows: int

    @property
    def num_rows(self) -> int:
        """The lines of all parts together."""
        return self.num_parts * self.part_rows


def cut_file(
    path: Path,
    out_dir: Path,
    *,
    num_parts: int,
    part_rows: int,
    overwrite: bool = False,
    schema: Schema | None = None,
    max_unpacked_bytes: int | None = None,
) -> Cut:
    """Write the first `num_parts` × `part_rows` lines as day_0, day_1, … into a directory that appears when complete.

    Every part ends in a newline: if the last line of the file has none and belongs to a part, it is given one.
    With a schema of quoted fields a row is never cut inside quotes, and a header is repeated in every part.
    Memory does not grow with the file, which is mapped; a packed one is unpacked into a nameless scratch file first.
    """
    for option, value in (("--parts", num_parts), ("--rows", part_rows)):
        if value < 1:
            raise ConfigError(f"{option} {value} is rejected: it is 1 or more")
    refuse_occupied(out_dir, overwrite=overwrite, inputs=[path])
    source = _open(path, schema, max_unpacked_bytes)
    try:
        borders, num_lines = _find_borders(source, num_parts, part_rows)
        needed = num_parts * part_rows
        if num_lines < needed:
            raise DataError(
                f"{path} has {num_lines:,} lines; {num_parts:,} parts of {part_rows:,} rows need {needed:,}: "
                f"lower --parts or --rows (at most {num_lines // num_parts:,} rows in {num_parts:,} parts)"
            )
        header = source.buffer[: source.rows_start].tobytes().removeprefix(_BYTE_ORDER_MARK)
        require_free_space(out_dir, borders[-1] + 1 + num_parts * len(header), f"{num_parts:,} parts of {path}")
        with finished_dir(out_dir, overwrite=overwrite) as scratch_dir:
            num_bytes = 0
            for part in range(num_parts):
                day = scratch_dir / f"day_{part}"
                num_bytes += _write_part(source, borders[part], borders[part + 1], day, header)
                _verify(day, part_rows, schema)
        return Cut(num_parts, part_rows, num_bytes, num_lines - needed)
    finally:
        source.close()


def _open(path: Path, schema: Schema | None, max_unpacked_bytes: int | None = None) -> Source:
    """The file; without a schema every newline ends a line, and the first line is one as any other."""
    if schema is None:
        return Source(path, max_unpacked_bytes)
    if schema.format == "parquet":
        raise ConfigError(f"schema {schema.name} is one of Parquet, and only text and JSON lines are cut by lines")
    return open_source(path, schema, max_unpacked_bytes)


def _find_borders(source: Source, num_parts: int, part_rows: int) -> tuple[list[int], int]:
    """Where the parts begin, where the last one ends, and how many lines the whole file has."""
    at, stop, num_lines = source.rows_start, source.rows_stop, 0
    borders = [at]
    for _ in range(num_parts):
        at, found = _pass_rows(source, at, stop, part_rows)
        num_lines += found
        borders.append(at)
    return borders, num_lines + _pass_rows(source, at, stop, stop - at + 1)[1]


def _pass_rows(source: Source, start: int, stop: int, wanted: int) -> tuple[int, int]:
    """Behind so many lines, or behind the last one; and how many these are, an unfinished last one included."""
    if not source.has_breaks:
        at, found = _pass_lines(source.buffer[:stop], start, wanted)
        return int(at), int(found)
    at, found, _ = source.pass_lines(start, stop, wanted)
    is_unfinished = found < wanted and stop > start and source.buffer[stop - 1] != NEWLINE
    return at, found + int(is_unfinished)


@njit(nogil=True, cache=True)
def _pass_lines(buffer: NDArray[np.uint8], start: int, wanted: int) -> tuple[int, np.int64]:
    """Behind so many lines, or behind the last one; and how many these are, an unfinished last one included."""
    at, found = start, np.int64(0)
    while at + 64 <= len(buffer):
        here = np.int64(count_ones(match64(buffer, at, NEWLINE)))
        if found + here >= wanted:
            break
        found += here
        at += 64
    while at < len(buffer) and found < wanted:
        found += np.int64(buffer[at] == NEWLINE)
        at += 1
    if found < wanted and at > start and buffer[at - 1] != NEWLINE:
        found += np.int64(1)
    return at, found


def _write_part(source: Source, start: int, stop: int, path: Path, header: bytes) -> int:
    """Copy a range of lines; how many bytes the part has."""
    with path.open("wb") as file:
        file.write(header)
        for at in range(start, stop, _COPY_BYTES):
            file.write(source.buffer[at : min(at + _COPY_BYTES, stop)].data)
        if source.buffer[stop - 1] != NEWLINE:
            file.write(b"\n")
        return file.tell()


def _verify(path: Path, part_rows: int, schema: Schema | None) -> None:
    """Count the lines of a part as it lies on the disk."""
    part = _open(path, schema)
    written, _ = part.count_newlines(part.rows_start, part.num_bytes)
    part.close()
    if written != part_rows:
        raise FailureError(f"{path.name} has {written:,} lines after writing and not {part_rows:,}; is the disk sound?")
