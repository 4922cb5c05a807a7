"""What a user may give as rows to predict, as files: paths, frames, columns and lines of text all end up as these."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from recmill.data.prepared.manifest import prepared_kind
from recmill.errors import DataError, RecmillError
from recmill.serve.frames import write_frame
from recmill.serve.new_rows import NewFile, find_new_files, open_new_file
from recmill.settings.columns import Schema

Rows = Any  # a path or several, a polars or pandas frame, an Arrow table, a mapping of columns, or lines of text


@contextmanager
def opened_rows(rows: Rows, schema: Schema, *, with_label: bool = False) -> Iterator[list[NewFile]]:
    """The files that hold the rows, for as long as the body runs; what is not a file is written to a scratch one."""
    with TemporaryDirectory(prefix="recmill_") as scratch:
        try:
            paths = _as_paths(rows, schema, Path(scratch))
            yield [open_new_file(path, schema, with_label=with_label) for path in paths]
        except RecmillError as error:  # nobody knows the scratch file
            error.args = (str(error).replace(f"{scratch}/", "the given "), *error.args[1:])
            raise


def _as_paths(rows: Rows, schema: Schema, scratch: Path) -> list[Path]:
    if isinstance(rows, Path):
        return find_new_files(rows)
    if isinstance(rows, str | bytes) and not rows.strip():
        raise DataError("rows are an empty text; give a file, a frame, a dict of columns, or lines of text")
    if isinstance(rows, bytes):
        (scratch / "lines").write_bytes(rows)
        return [scratch / "lines"]
    if isinstance(rows, str):
        return [_write_lines([rows], scratch)] if _is_line(rows, schema) else find_new_files(Path(rows))
    if isinstance(rows, Sequence):
        return _paths_of_sequence(rows, schema, scratch)
    return [write_frame(rows, schema, scratch)]


def _is_line(text: str, schema: Schema) -> bool:
    """Whether a text is a row, or several, and not the path of a file."""
    has_separator = schema.format == "text" and schema.separator in text
    return "\n" in text or (has_separator and not _is_there(text))


def _is_there(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # longer than a name can be, or not a name at all
        return False


def prepared_dir(rows: Rows) -> Path | None:
    """The prepared directory that the rows are, if they are one."""
    is_name = isinstance(rows, Path) or (isinstance(rows, str) and "\n" not in rows and _is_there(rows))
    return Path(rows) if is_name and prepared_kind(Path(rows)) is not None else None


def _paths_of_sequence(rows: Sequence[Any], schema: Schema, scratch: Path) -> list[Path]:
    if not rows:
        return []
    if all(isinstance(each, Mapping) for each in rows):
        return [write_frame(list(rows), schema, scratch)]
    if all(isinstance(each, Path) for each in rows):
        return [path for each in rows for path in find_new_files(each)]
    if all(isinstance(each, str | bytes) for each in rows):
        texts = [each.decode() if isinstance(each, bytes) else each for each in rows]
        if any(_is_line(text, schema) for text in texts):
            return [_write_lines(texts, scratch)]
        return [path for text in texts for path in find_new_files(Path(text))]
    kinds = ", ".join(sorted({type(each).__name__ for each in rows}))
    raise DataError(f"rows are a list of {kinds}; give paths, lines of text or dicts of columns")


def _write_lines(texts: Sequence[str], scratch: Path) -> Path:
    path = scratch / "lines"
    path.write_text("".join(text if text.endswith("\n") else f"{text}\n" for text in texts), encoding="utf-8")
    return path
