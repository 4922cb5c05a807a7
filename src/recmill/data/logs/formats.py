"""The formats of raw files: a table with one line for each, and which of them a file name speaks of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recmill.data.logs.infer_json import begins_with_object
from recmill.data.logs.json_lines_file import JsonLinesFormat
from recmill.data.logs.parquet_file import ParquetFormat
from recmill.data.logs.raw_format import RawFormat
from recmill.data.logs.text_file import COMPRESSED
from recmill.data.logs.text_format import TextFormat
from recmill.errors import ConfigError
from recmill.settings.columns import Format

FORMATS: dict[Format, RawFormat[Any]] = {
    "text": TextFormat(),
    "parquet": ParquetFormat(),
    "jsonl": JsonLinesFormat(),
}
# What may stand behind the name of a file: how text is packed, or the format.
SUFFIXES = (*COMPRESSED, *(suffix for known in FORMATS.values() for suffix in known.suffixes))


def format_named(path: Path) -> Format | None:
    """The format that the ending of a file's name belongs to, packed or not; None if it tells nothing."""
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    return next((name for name, known in FORMATS.items() if plain.suffix in known.suffixes), None)


def without_suffixes(path: Path) -> str:
    """The name of a file without the endings that say how it is packed, and of which format it is."""
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    return plain.stem if plain.suffix in SUFFIXES else plain.name


def format_of(paths: Sequence[Path]) -> Format:
    """The one format of some files; those whose names tell nothing are text, or begin with an object."""
    found = {format_named(path) or ("jsonl" if begins_with_object(path) else None) for path in paths}
    if len(found) > 1:
        title = next(FORMATS[known].title for known in found if known is not None)
        raise ConfigError(f"some of the files are {title} and some are not; a schema is for one format")
    return found.pop() or "text"
