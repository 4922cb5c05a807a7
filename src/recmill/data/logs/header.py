"""The header of a file: a first line that names the columns, checked against the schema and then left behind."""

from pathlib import Path

from recmill.data.logs.text_file import Source
from recmill.data.text.reference import BadRow, split_line
from recmill.errors import DataError
from recmill.settings.columns import Schema

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs begin a UTF-8 file with it


def open_source(path: Path, schema: Schema) -> Source:
    """A file whose rows begin behind the header, if the schema says there is one; a file without a byte has none."""
    source = Source(path)
    if schema.header and source.num_bytes:
        end = source.line_end(0)
        refuse_other_header(source.buffer[:end].tobytes(), schema, path)
        source.rows_start = min(end + 1, source.num_bytes)
    return source


def refuse_other_header(line: bytes, schema: Schema, path: Path) -> None:
    """Complain unless the line holds the names of the columns, in their order."""
    names = split_line(line.removeprefix(_BYTE_ORDER_MARK), schema)
    if isinstance(names, BadRow):
        raise DataError(f"{path}:1: in the header, {names.describe()}")
    for place, (name, column) in enumerate(zip(names, schema.columns, strict=True), start=1):
        if name != column.name.encode():
            raise DataError(
                f"{path}:1: the header calls column {place} {name.decode(errors='replace')!r}, schema {schema.name} "
                f"calls it {column.name!r}; rename it in one of them, or set header = false if line 1 is a row"
            )
