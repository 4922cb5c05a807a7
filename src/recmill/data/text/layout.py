"""A schema of text as the kernel wants it: runs of neighbouring columns that are read alike."""

from collections import Counter
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from recmill.data.text import fields
from recmill.data.text.kernel import Layout
from recmill.data.text.labels import label_details
from recmill.data.text.times import time_details
from recmill.settings.columns import Column, Kind, Role, Schema

# What the kernel calls the roles and kinds of columns.
KERNEL_KINDS: dict[tuple[Role, Kind | None], int] = {
    ("label", "int"): fields.LABEL,
    ("label", "float"): fields.RULED_LABEL,
    ("label", "string"): fields.RULED_LABEL,
    ("weight", "int"): fields.WEIGHT,
    ("weight", "float"): fields.WEIGHT,
    ("dense", "int"): fields.INT_NUMBER,
    ("dense", "float"): fields.FLOAT_NUMBER,
    ("category", "hex"): fields.HEX_CATEGORY,
    ("category", "int"): fields.INT_CATEGORY,
    ("category", "string"): fields.STRING_CATEGORY,
    ("time", "time"): fields.TIME,
    ("ignored", None): fields.IGNORED,
    ("ignored", "time"): fields.IGNORED,
}
SEVERAL_KINDS: dict[Kind | None, int] = {
    "hex": fields.HEX_CATEGORIES,
    "int": fields.INT_CATEGORIES,
    "string": fields.STRING_CATEGORIES,
}


def layout_of(schema: Schema) -> Layout:
    """What the text kernel needs to know of a schema."""
    assert schema.format == "text"
    runs, taken = list[list[int]](), Counter[str]()
    places = {column.name: place for place, column in enumerate(schema.fields)}
    for (role, _, inner, _), group in groupby(schema.columns, key=_alike):
        columns = list(group)
        first = taken[role]
        taken[role] += sum(max(1, column.num_slots) for column in columns)
        code, details = _code(columns[0], schema)
        if columns[0].part == "age":  # it is read from two fields
            now = schema.of_role("time")[0]
            details += [*time_details(now.time_format, None)[:1], places[now.name]]
        place = places[schema.field_of(columns[0]).name]
        runs.append([code, first, taken[role], place, ord(inner or schema.decimal), *details])
    return Layout(np.uint8(ord(schema.separator)), schema.quoted, len(schema.fields), _table(runs))


def _code(column: Column, schema: Schema) -> tuple[int, list[int]]:
    """What the kernel calls the kind of a run, and what else it has to know of it."""
    if column.source is not None or column.role == "time":
        return fields.TIME, time_details(schema.field_of(column).time_format, column.part)
    if rule := column.label_rule:
        return fields.RULED_LABEL, label_details(rule, column.kind)
    code = SEVERAL_KINDS[column.kind] if column.inner_separator else KERNEL_KINDS[column.role, column.kind]
    return code, [int(column.kind == "int")]


def _table(runs: list[list[int]]) -> NDArray[np.int64]:
    """Lines of different lengths, with zeros behind the shorter ones."""
    table = np.zeros((len(runs), max(map(len, runs))), np.int64)
    for line, run in zip(table, runs, strict=True):
        line[: len(run)] = run
    return table


def _alike(column: Column) -> tuple[Role, Kind | None, str | None, str | None]:
    """What neighbours of one run have in common; a column of several values or a part of a time is a run by itself."""
    is_alone = column.inner_separator is not None or column.source is not None
    return column.role, column.kind, column.inner_separator, column.name if is_alone else None
