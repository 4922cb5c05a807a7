"""Event files opened: which of the known layouts they have, how their times are written, and parts of them to read."""

from pathlib import Path
from typing import Any

from recmill.data.events import interactions
from recmill.data.events.schema import choose_schema, first_values
from recmill.data.events.times import are_iso
from recmill.data.logs.text_file import Source
from recmill.settings.events import EventSchema

_PART_ROWS = 1 << 20  # of Parquet


def open_parts(
    paths: tuple[Path, ...], schemas: tuple[EventSchema, ...], part_bytes: int
) -> tuple[EventSchema, list[Any]]:
    """The schema that fits all files, and pieces of them in their order."""
    if schemas[0].format == "parquet":
        return _open_parquet(paths, schemas[0])
    parts = list[Any]()
    for path in paths:
        source = Source(path)
        if not source.num_bytes:
            continue
        schema = choose_schema(source, schemas)
        if not parts:  # an empty file says nothing of how times are written
            schema = _with_time_kind(schema, first_values(source, schema, "time"))
        schemas = (schema,)
        parts += source.whole().cut(part_bytes)
    return schemas[0], parts


def _open_parquet(paths: tuple[Path, ...], schema: EventSchema) -> tuple[EventSchema, list[Any]]:
    parts = [
        interactions.RowRange(path, at, min(at + _PART_ROWS, rows))
        for path in paths
        for rows in [interactions.parquet_rows(path)]
        for at in range(0, rows, _PART_ROWS)
    ]
    if parts and schema.time is not None:
        schema = _with_time_kind(schema, interactions.first_texts(parts[0].path, schema.time))
    return schema, parts


def _with_time_kind(schema: EventSchema, times: list[str]) -> EventSchema:
    """The schema, with times as the first rows have them unless it says itself how they are written."""
    is_said = schema.time is None or "time_kind" in schema.model_fields_set
    return schema if is_said or not are_iso(times) else schema.with_({"time_kind": "iso"})
