"""A first schema for files: guessed from a sample, then checked against all rows where that takes only seconds."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recmill.data.infer.schema_file import render
from recmill.data.infer.sizes import ColumnValues, WholeFiles, are_cheap_to_read, count_values
from recmill.data.logs.formats import FORMATS, format_of
from recmill.data.logs.infer import ALMOST_ALL_DIFFER, NAMES_THE_ROW
from recmill.data.logs.raw_format import NOTHING_ASKED, AskedColumns, BadLine, Draft
from recmill.settings.columns import Column

_MANY_ROWS = 1000  # of fewer, all values may differ by chance
_MAX_TRIES = 4
_ALMOST_ALL = 0.9
_FLOAT = re.compile(rb"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Inferred(NamedTuple):
    """A schema file, and how many lines of how many do not fit it."""

    text: str
    num_bad: int = 0
    num_lines: int = 0


def infer_schema(
    paths: Sequence[Path], *, name: str, asked: AskedColumns = NOTHING_ASKED, max_unpacked_bytes: int | None = None
) -> Inferred:
    """A first schema file for files of one format."""
    draft = FORMATS[format_of(paths)].infer(paths, name=name, asked=asked)
    if not draft.schema.fields_read:
        return Inferred(render(*draft))
    if not are_cheap_to_read(paths):
        return Inferred(render(*_with_notes(draft, "in the sample, and room for those to come")))
    found = count_values(paths, draft.schema, max_unpacked_bytes)
    for _ in range(_MAX_TRIES):
        wider = _widened(draft, found.bad)
        if wider is draft:
            break
        draft = wider
        found = count_values(paths, draft.schema, max_unpacked_bytes)
    return Inferred(render(*_with_sizes(draft, found, asked)), found.num_bad, found.num_lines)


def _with_notes(draft: Draft, ending: str) -> Draft:
    """What is said of tables also says what their sizes were counted in."""
    sized = [column.name for column in draft.schema.of_role("category") if column.source is None]
    told = {name: draft.notes[name].replace("distinct values", f"distinct values {ending}", 1) for name in sized}
    return draft._replace(notes={**draft.notes, **told})


def _widened(draft: Draft, bad: Sequence[BadLine]) -> Draft:
    """The same draft, or one in which columns that the sample misjudged are of a kind that takes more."""
    columns, notes = list(draft.schema.columns), dict(draft.notes)
    for line in bad:
        for place, column in enumerate(columns):
            change = _wider_kind(column, line, draft) if column.name == line.bad.column else None
            if change is not None:
                columns[place] = column.with_(change)
                shown = line.bad.text[:20].decode(errors="replace")
                notes[column.name] += f"; {shown!r} at {line.place}"
    if columns == list(draft.schema.columns):
        return draft
    return draft._replace(schema=draft.schema.with_({"columns": columns}), notes=notes)


def _wider_kind(column: Column, line: BadLine, draft: Draft) -> dict[str, Any] | None:
    if column.role == "dense" and column.kind == "int" and _FLOAT.fullmatch(line.bad.text):
        return {"kind": "float"}
    is_text = draft.schema.format == "text"
    return {"kind": "string"} if is_text and column.role == "category" and column.kind in ("int", "hex") else None


def _with_sizes(draft: Draft, found: WholeFiles, asked: AskedColumns) -> Draft:
    """The draft with tables for all values of the files, and lines that do not fit named above it."""
    columns, notes = list(draft.schema.columns), dict(draft.notes)
    for place, column in enumerate(columns):
        values = found.columns.get(column.name)
        if values is None:
            continue
        names_rows = values.is_exact and values.num_distinct == found.num_rows > _MANY_ROWS and not column.is_several
        if names_rows and column.name not in asked.categories:
            columns[place] = Column(name=column.name, role="ignored")
            notes[column.name] = f"all {found.num_rows:,} values differ: {NAMES_THE_ROW}"
        else:
            columns[place] = column.with_({"rows": values.table_rows})
            notes[column.name] = _sized_note(notes[column.name], values, found)
    preface = list(draft.preface)
    if found.num_bad:
        preface.append(f"{found.num_bad:,} of {found.num_lines:,} lines do not fit it, the first is {_first(found)}.")
        preface.append("Fix them or the schema, or pass --bad-rows skip, which ignores them.")
    return Draft(draft.schema.with_({"columns": columns}), tuple(preface), notes)


def _first(found: WholeFiles) -> str:
    return found.bad[0].describe().replace("\n", " ")


def _sized_note(note: str, values: ColumnValues, found: WholeFiles) -> str:
    about = "" if values.is_exact else "about "
    told = f"{about}{values.num_distinct:,} distinct values in all {found.num_rows:,} rows"
    note = re.sub(r"[\d,]+ distinct values", told, note, count=1)
    if values.num_distinct < _ALMOST_ALL * found.num_rows:
        note = note.replace(ALMOST_ALL_DIFFER, "")  # in the sample only
    is_capped = values.num_distinct > values.table_rows
    return f"{note}; they share {values.table_rows:,} rows" if is_capped else note
