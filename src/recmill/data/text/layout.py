"""A schema of text as the kernel wants it: runs of neighbouring columns that are read alike."""

from collections import Counter
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from recmill.data.text import fields
from recmill.data.text.kernel import Layout
from recmill.data.text.labels import label_details
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
    ("ignored", None): fields.IGNORED,
}
SEVERAL_KINDS: dict[Kind | None, int] = {
    "hex": fields.HEX_CATEGORIES,
    "int": fields.INT_CATEGORIES,
    "string": fields.STRING_CATEGORIES,
}


def layout_of(schema: Schema) -> Layout:
    """What the text kernel needs to know of a schema."""
    assert schema.format == "text"
    runs, taken, place = list[list[int]](), Counter[str](), 0
    for (role, kind, inner, _), group in groupby(schema.columns, key=_alike):
        columns = list(group)
        first = taken[role]
        taken[role] += sum(max(1, column.num_slots) for column in columns)
        rule = columns[0].label_rule
        code = SEVERAL_KINDS[kind] if inner else fields.RULED_LABEL if rule else KERNEL_KINDS[role, kind]
        details = label_details(rule, kind) if rule else [int(kind == "int")]
        runs.append([code, first, taken[role], place, ord(inner or schema.decimal), *details])
        place += len(columns)
    return Layout(np.uint8(ord(schema.separator)), schema.quoted, len(schema.columns), _table(runs))


def _table(runs: list[list[int]]) -> NDArray[np.int64]:
    """Lines of different lengths, with zeros behind the shorter ones."""
    table = np.zeros((len(runs), max(map(len, runs))), np.int64)
    for line, run in zip(table, runs, strict=True):
        line[: len(run)] = run
    return table


def _alike(column: Column) -> tuple[Role, Kind | None, str | None, str | None]:
    """What neighbours of one run have in common; a column of several values is a run by itself."""
    return column.role, column.kind, column.inner_separator, column.name if column.inner_separator else None
