"""Event files opened: which of the known layouts they have, how their times are written, and parts of them to read."""

from pathlib import Path
from typing import Any

from recmill.data.events import interactions
from recmill.data.events.schema import choose_schema, first_values, read_int
from recmill.data.events.times import are_iso
from recmill.data.logs.text_file import Source
from recmill.errors import DataError
from recmill.settings.events import EventSchema

_PART_ROWS = 1 << 20  # of Parquet
_PARQUET_MARK = b"PAR1"


def open_parts(
    paths: tuple[Path, ...], schemas: tuple[EventSchema, ...], part_bytes: int, max_unpacked_bytes: int | None = None
) -> tuple[EventSchema, list[Any]]:
    """The schema that fits all files, and pieces of them in their order."""
    schemas = _of_format(paths, schemas)
    if schemas[0].format == "parquet":
        return _open_parquet(paths, schemas[0])
    parts = list[Any]()
    for path in paths:
        source = Source(path, max_unpacked_bytes)
        if not source.num_bytes:
            continue
        schema = choose_schema(source, schemas)
        if not parts:  # an empty file says nothing of how times are written
            schema = _with_time_kind(schema, first_values(source, schema, "time"))
        schemas = (schema,)
        parts += source.whole().cut(part_bytes)
    return schemas[0], parts


def _of_format(paths: tuple[Path, ...], schemas: tuple[EventSchema, ...]) -> tuple[EventSchema, ...]:
    """The schemas that are for files of this kind."""
    parquet = tuple(path for path in paths if _is_parquet(path))
    others = [path for path in paths if path not in parquet and path.stat().st_size]  # Spark leaves an empty _SUCCESS
    if parquet and others:
        raise DataError(f"{parquet[0]} is a Parquet file and {others[0]} is not; prepare files of one kind at a time")
    wanted = "parquet" if parquet else "text"
    found = tuple(schema for schema in schemas if schema.format == wanted)
    if parquet and not found:
        raise DataError(
            f"{parquet[0]} is a Parquet file, and schema {schemas[0].name} is for text; "
            'with --preset events, its columns are user, item and time, or --schema FILE.toml says format = "parquet"'
        )
    return found or schemas  # whoever reads a text as Parquet says what is wrong


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_PARQUET_MARK)) == _PARQUET_MARK
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None


def _open_parquet(paths: tuple[Path, ...], schema: EventSchema) -> tuple[EventSchema, list[Any]]:
    parts = [
        interactions.RowRange(path, at, min(at + _PART_ROWS, rows))
        for path in paths
        if path.stat().st_size
        for rows in [interactions.parquet_rows(path)]
        for at in range(0, rows, _PART_ROWS)
    ]
    return _as_written(schema, parts[0].path) if parts else schema, parts


def _as_written(schema: EventSchema, path: Path) -> EventSchema:
    """The schema of a Parquet file, with kinds as its first rows have them unless it says them itself."""
    kinds = dict[str, str]()
    for role in ("user", "item"):
        names = interactions.first_texts(path, getattr(schema, role))
        if names and not _is_said(schema, role) and all(read_int(name) is None for name in names):
            kinds[f"{role}_kind"] = "string"
    if schema.time is not None:
        schema = _with_time_kind(schema, interactions.first_texts(path, schema.time))
    return schema.with_(kinds) if kinds else schema


def _with_time_kind(schema: EventSchema, times: list[str]) -> EventSchema:
    """The schema, with times as the first rows have them unless it says itself how they are written."""
    return schema if _is_said(schema, "time") or not are_iso(times) else schema.with_({"time_kind": "iso"})


def _is_said(schema: EventSchema, role: str) -> bool:
    """Whether a schema says how the values of a role are written."""
    return f"{role}_kind" in schema.model_fields_set
