"""One long text file to equal parts that look like days: line-exact, counted again after writing.

`recmill split train.txt --parts 24 --rows 5000000 --out DIR` writes day_0 … day_23.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.text_file import Source
from recmill.data.text.kernel import count_lines
from recmill.data.text.quotes import NEWLINE
from recmill.data.text.swar import count_ones, match64
from recmill.errors import ConfigError, DataError, FailureError
from recmill.files import finished_dir, refuse_occupied, require_free_space
from recmill.jit import njit

_COPY_BYTES = 8 << 20


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


def cut_file(path: Path, out_dir: Path, *, num_parts: int, part_rows: int, overwrite: bool = False) -> Cut:
    """Write the first `num_parts` × `part_rows` lines as day_0, day_1, … into a directory that appears when complete.

    Every part ends in a newline: if the last line of the file has none and belongs to a part, it is given one.
    Memory does not grow with the file, which is mapped; a packed one is unpacked into a nameless scratch file first.
    """
    for option, value in (("--parts", num_parts), ("--rows", part_rows)):
        if value < 1:
            raise ConfigError(f"{option} {value} is rejected: it is 1 or more")
    refuse_occupied(out_dir, overwrite=overwrite, inputs=[path])
    source = Source(path)
    try:
        borders, num_lines = _find_borders(source, num_parts, part_rows)
        needed = num_parts * part_rows
        if num_lines < needed:
            raise DataError(
                f"{path} has {num_lines:,} lines; {num_parts:,} parts of {part_rows:,} rows need {needed:,}: "
                f"lower --parts or --rows (at most {num_lines // num_parts:,} rows in {num_parts:,} parts)"
            )
        require_free_space(out_dir, borders[-1] + 1, f"{num_parts:,} parts of {path}")
        with finished_dir(out_dir, overwrite=overwrite) as scratch_dir:
            num_bytes = 0
            for part in range(num_parts):
                num_bytes += _write_part(source, borders[part], borders[part + 1], scratch_dir / f"day_{part}")
                _verify(scratch_dir / f"day_{part}", part_rows)
        return Cut(num_parts, part_rows, num_bytes, num_lines - needed)
    finally:
        source.close()


def _find_borders(source: Source, num_parts: int, part_rows: int) -> tuple[list[int], int]:
    """Where the parts begin, where the last one ends, and how many lines the whole file has."""
    borders, at, num_lines = [0], 0, 0
    for _ in range(num_parts):
        at, found = (int(number) for number in _pass_lines(source.buffer, at, part_rows))
        num_lines += found
        borders.append(at)
    num_lines += int(count_lines(source.buffer, at, source.num_bytes))
    is_unfinished = source.num_bytes > at and source.buffer[-1] != NEWLINE
    return borders, num_lines + int(is_unfinished)


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


def _write_part(source: Source, start: int, stop: int, path: Path) -> int:
    """Copy a range of lines; how many bytes the part has."""
    with path.open("wb") as file:
        for at in range(start, stop, _COPY_BYTES):
            file.write(source.buffer[at : min(at + _COPY_BYTES, stop)].data)
        if source.buffer[stop - 1] != NEWLINE:
            file.write(b"\n")
        return file.tell()


def _verify(path: Path, part_rows: int) -> None:
    """Count the lines of a part as it lies on the disk."""
    part = Source(path)
    written = int(count_lines(part.buffer, 0, part.num_bytes))
    part.close()
    if written != part_rows:
        raise FailureError(f"{path.name} has {written:,} lines after writing and not {part_rows:,}; is the disk sound?")
