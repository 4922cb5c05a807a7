"""A schema of text as the kernel wants it: runs of neighbouring columns that are read alike."""

from collections import Counter
from itertools import groupby

import numpy as np

from recmill.data.text import fields
from recmill.data.text.kernel import Layout
from recmill.settings.columns import Column, Kind, Role, Schema

# What the kernel calls the roles and kinds of columns.
KERNEL_KINDS: dict[tuple[Role, Kind | None], int] = {
    ("label", "int"): fields.LABEL,
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
    runs, taken, place = list[fields.FieldRun](), Counter[str](), 0
    for (role, kind, inner, _), group in groupby(schema.columns, key=_alike):
        columns = list(group)
        first = taken[role]
        taken[role] += sum(max(1, column.num_slots) for column in columns)
        code = SEVERAL_KINDS[kind] if inner else KERNEL_KINDS[role, kind]
        runs.append(fields.FieldRun(code, first, taken[role], place, ord(inner or schema.decimal)))
        place += len(columns)
    return Layout(np.uint8(ord(schema.separator)), schema.quoted, len(schema.columns), np.array(runs, np.int64))


def _alike(column: Column) -> tuple[Role, Kind | None, str | None, str | None]:
    """What neighbours of one run have in common; a column of several values is a run by itself."""
    return column.role, column.kind, column.inner_separator, column.name if column.inner_separator else None
