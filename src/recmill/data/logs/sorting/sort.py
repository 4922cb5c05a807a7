"""Files of rows to a directory of files in the order of a column: stable, lossless, in bounded memory.

`recmill sort logs.csv --schema shop.toml --out sorted` writes part_00000.csv, part_00001.csv, ….
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recmill.data.logs.formats import FORMATS, format_named
from recmill.data.logs.sorting.blocks import SortMemory, sort_blocks
from recmill.data.logs.sorting.lines import LineBlock, LineFiles, header_of, read_blocks
from recmill.data.logs.text_file import COMPRESSED
from recmill.data.logs.time_order import KeyReader
from recmill.errors import ConfigError, DataError
from recmill.files import finished_dir, refuse_occupied, require_free_space
from recmill.memory import available_bytes
from recmill.settings.columns import Schema

PART_BYTES = 1 << 30
_LEAST_BYTES, _MOST_BYTES = 8 << 20, 1 << 30  # of a run: Arrow's texts have offsets of 32 bits
_SHARE_OF_RUN = 6  # a run, its sorted copy, and what reading takes, are so many times a run
_PACKED = 4  # packed files grow about so many times


@dataclass(frozen=True)
class SortedFiles:
    """What was written, and by which column."""

    column: str
    num_rows: int
    num_files: int
    num_keyless: int  # lines without a time, or that are no rows: each behind the line above


@dataclass(frozen=True)
class SortLimits:
    """What sorting may fill."""

    memory_bytes: int | None = None  # a quarter of the free memory
    part_bytes: int = PART_BYTES  # of a written file
    max_unpacked_bytes: int | None = None  # of a packed file


def sort_files(
    paths: Sequence[Path],
    schema: Schema,
    out_dir: Path,
    *,
    by: str | None = None,
    limits: SortLimits = SortLimits(),  # noqa: B008 frozen
    overwrite: bool = False,
) -> SortedFiles:
    """Write all rows of the files in the order of a column into a directory that appears when it is complete.

    Equal values keep the order of the files. A line without a value, and one that is no row, stays behind the line
    above.
    """
    keys = KeyReader(schema, by, max_unpacked_bytes=limits.max_unpacked_bytes)
    _refuse_other_formats(paths, schema)
    refuse_occupied(out_dir, overwrite=overwrite, inputs=paths)
    num_bytes = sum(path.stat().st_size * (_PACKED if path.suffix in COMPRESSED else 1) for path in paths)
    require_free_space(out_dir, 2 * num_bytes, f"sorting {paths[0]}" + (" and others" if len(paths) > 1 else ""))
    share = (limits.memory_bytes or available_bytes() // 4) // _SHARE_OF_RUN
    with finished_dir(out_dir, overwrite=overwrite) as scratch_dir:
        room = SortMemory(min(_MOST_BYTES, max(_LEAST_BYTES, share)), scratch_dir)
        num_rows = _sort_into(scratch_dir, paths, keys, room, limits.part_bytes, schema)
        if not keys.num_keys:
            raise DataError(
                f"no line of {paths[0]}{' and the other files' if len(paths) > 1 else ''} has a {keys.column.name} "
                "that can be read; does the schema fit, and its time_format?"
            )
    return SortedFiles(keys.column.name, sum(num_rows), len(num_rows), keys.num_keyless)


def _sort_into(
    directory: Path, paths: Sequence[Path], keys: KeyReader, room: SortMemory, part_bytes: int, schema: Schema
) -> list[int]:
    """Write the sorted files; how many rows each has."""
    suffix = plain_suffix(paths[0], schema)

    def name_of(number: int) -> Path:
        return directory / f"part_{number:05}{suffix}"

    files: Any
    if schema.format == "parquet":
        from recmill.data.logs.sorting.tables import TableBlock, TableFiles, compression_of, read_tables  # pyarrow

        files = TableFiles(name_of, compression_of(paths[0]), part_bytes)
        tables = sort_blocks(read_tables(paths, keys, room.frame_bytes), TableBlock, room)
        _write_all(tables, files)
    else:
        files = LineFiles(name_of, header_of(paths, keys) if schema.header else b"", part_bytes)
        _write_all(sort_blocks(read_blocks(paths, keys, max(1 << 20, room.frame_bytes)), LineBlock, room), files)
    num_rows: list[int] = files.num_rows
    return num_rows


def _write_all(blocks: Any, files: Any) -> None:
    try:
        for block in blocks:
            files.write(block)
    finally:
        files.close()


def plain_suffix(path: Path, schema: Schema) -> str:
    """The ending of the names of sorted files: that of the first file, unpacked."""
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    own = FORMATS[schema.format].suffixes
    return plain.suffix if not own or plain.suffix in own else own[0]


def _refuse_other_formats(paths: Sequence[Path], schema: Schema) -> None:
    for path in paths:
        if not path.is_file() and not path.exists():
            raise DataError(f"there is no file {path} to sort")
        named = format_named(path)
        if named not in (None, schema.format):
            raise ConfigError(
                f"{path} is {FORMATS[named].title}, and schema {schema.name} is one of "
                f"{FORMATS[schema.format].title}; `recmill schema infer {path} --out {path.stem}.toml` writes one "
                "that fits"
            )
