"""The header of a file: a first line that names the columns, checked against the schema and then left behind."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.text_file import Source
from recmill.data.text.quotes import CARRIAGE_RETURN, NEWLINE
from recmill.data.text.reference import BadRow, split_line
from recmill.errors import DataError
from recmill.settings.columns import Schema

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs begin a UTF-8 file with it


def open_source(path: Path, schema: Schema, max_unpacked_bytes: int | None = None) -> Source:
    """A file whose rows begin behind the byte order mark and the header, if there are such.

    A file without a byte has no header. Blank lines at the end are no rows.
    """
    source = Source(path, max_unpacked_bytes)
    if source.buffer[: len(_BYTE_ORDER_MARK)].tobytes() == _BYTE_ORDER_MARK:
        source.rows_start = len(_BYTE_ORDER_MARK)
    if schema.quoted:
        source.find_breaks(schema.separator)
    if schema.header and source.num_bytes:
        end = source.line_end(source.rows_start)
        refuse_other_header(source.buffer[source.rows_start : end].tobytes(), schema, path)
        source.rows_start = min(end + 1, source.num_bytes)
    if len(schema.fields) > 1:  # of a single column, a blank line is a row with nothing in it
        source.rows_stop = max(source.rows_start, _without_blank_lines(source.buffer))
    return source


def _without_blank_lines(buffer: NDArray[np.uint8]) -> int:
    """Where a file ends if blank lines behind its last row are left out."""
    end = stop = len(buffer)
    while end > 0 and buffer[end - 1] in (NEWLINE, CARRIAGE_RETURN):
        end -= 1
        if buffer[end] == NEWLINE:
            stop = end + 1
    return stop if end else 0


def refuse_other_header(line: bytes, schema: Schema, path: Path) -> None:
    """Complain unless the line holds the names of the columns, in their order."""
    names = split_line(line, schema)
    if isinstance(names, BadRow):
        raise DataError(f"{path}:1: in the header, {names.describe()}")
    for place, (name, column) in enumerate(zip(names, schema.fields, strict=True), start=1):
        if name != column.name.encode():
            raise DataError(
                f"{path}:1: the header calls column {place} {name.decode(errors='replace')!r}, schema {schema.name} "
                f"calls it {column.name!r}; rename it in one of them, or set header = false if line 1 is a row"
            )
