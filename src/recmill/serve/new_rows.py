"""Files of rows to predict: with or without a label, their columns found by name where the file names them.

The columns that a model reads are those of its run. In a file they may come in another order and beside others, if the
file has names: a header, Parquet or JSON lines. The label is never read.
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.data.logs.formats import FORMATS, format_named
from recmill.data.logs.infer_json import begins_with_object, sample_rows
from recmill.data.logs.parquet_rows import parquet_lists, parquet_names
from recmill.data.logs.split import find_all, is_day
from recmill.data.logs.text_file import read_head
from recmill.errors import DataError
from recmill.files import has_manifest
from recmill.settings.columns import Column, Schema

_HEAD_BYTES, _HEAD_LINES = 1 << 20, 100
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class NewFile:
    """A file, the columns it has, and where those that the model reads are among them."""

    path: Path
    schema: Schema
    dense_order: NDArray[np.int64] | None  # None: as the model reads them
    slot_order: NDArray[np.int64] | None

    def ordered(self, columns: Columns) -> Columns:
        """Rows of the file with their columns in the model's order."""
        if self.dense_order is None or self.slot_order is None:
            return columns
        dense = np.ascontiguousarray(columns.dense[:, self.dense_order])
        return columns._replace(dense=dense, ids=np.ascontiguousarray(columns.ids[:, self.slot_order]))

    def refuse_unknown(self, names: Sequence[str]) -> None:
        """Complain about columns to carry along that the file does not have."""
        known = [column.name for column in self.schema.fields]
        for name in names:
            if name not in known:
                raise DataError(f"{self.path} has no column {name!r} to carry along; it has {', '.join(known)}")


def find_new_files(data: Path) -> list[Path]:
    """A single file; of a directory, its days in their order or, without any, all files in that of their names."""
    if data.is_file():
        return [data]
    if not data.is_dir():
        raise DataError(f"there is no file or directory {data}")
    if has_manifest(data):
        raise DataError(f"{data} is a prepared directory; give it alone, and not among files")
    days = [path for path in data.iterdir() if is_day(path)]
    if days:  # some may be missing: whoever predicts has the days that there are
        return sorted(days, key=lambda path: int(re.findall(r"\d+", path.name)[0]))
    return find_all(data)


def open_new_file(path: Path, schema: Schema, *, with_label: bool = False) -> NewFile:
    """What a file of new rows has of the columns that a schema names; the label only if it is to be read."""
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    if format_named(path) == "parquet":
        found = _parquet_schema(path, schema, with_label=with_label)
    elif format_named(path) == "jsonl" or (schema.format == "jsonl" and begins_with_object(path)):
        found = _json_schema(path, schema, with_label=with_label)
    elif schema.format != "text":
        title = FORMATS[schema.format].title
        raise DataError(f"{path} is text, and the model was trained on {title} ({schema}); give {title}, or a frame")
    else:
        found = _text_schema(path, schema, with_label=with_label)
    if with_label and not found.has_label:
        label = schema.of_role("label")[0].name
        raise DataError(
            f"{path} has no label ({label!r}), with which an evaluation compares; `recmill predict` needs none"
        )
    return NewFile(path, found, *_orders(found, schema))


def _roles(*, with_label: bool) -> tuple[str, ...]:
    return ("dense", "category", "label", "weight") if with_label else ("dense", "category")


def _parquet_schema(path: Path, schema: Schema, *, with_label: bool) -> Schema:
    names = parquet_names(path)
    read, parts = _columns_read(schema, with_label=with_label)
    _refuse_missing(path, [name for name, column in read.items() if column.role != "label"], names)
    lists = parquet_lists(path)  # a string may hold several values, too, as in the text that the model was trained on
    by_name = {
        name: column.with_({"inner_separator": None}) if name in lists else column for name, column in read.items()
    }
    derived = {column.name for column in parts}
    found = [by_name.get(name) or Column(name=name, role="ignored") for name in names if name not in derived]
    return Schema(name=schema.name, format="parquet", columns=(*found, *parts))


def _columns_read(schema: Schema, *, with_label: bool) -> tuple[dict[str, Column], list[Column]]:
    """The fields by name that a model needs, and the columns that are parts of them."""
    used = [column for column in schema.columns if column.role in _roles(with_label=with_label)]
    fields = [schema.field_of(column) for column in used]
    return {field.name: field for field in fields}, [column for column in used if column.source is not None]


def _json_schema(path: Path, schema: Schema, *, with_label: bool) -> Schema:
    """The columns that the model reads, in its order: a key may be missing; and others that the first lines have."""
    rows = sample_rows([path], _HEAD_BYTES, bad_rows="skip")
    lists = {name for row in rows for name, value in row.items() if isinstance(value, list)}
    fields, parts = _columns_read(schema, with_label=with_label)
    read = [column.with_({"inner_separator": None}) if name in lists else column for name, column in fields.items()]
    known = {column.name for column in (*read, *parts)}
    names = dict.fromkeys(name for row in rows for name in row if name)
    others = [Column(name=name, role="ignored") for name in names if name not in known]
    return Schema(name=schema.name, format="jsonl", columns=(*read, *others, *parts))


def _text_schema(path: Path, schema: Schema, *, with_label: bool) -> Schema:
    head = read_head(path, _HEAD_BYTES)
    unlabelled = tuple(column if with_label else _without_label(column) for column in schema.columns)
    if not head:
        return schema.with_({"columns": unlabelled})
    names = _split(head.split(b"\n", 1)[0].removeprefix(_BYTE_ORDER_MARK), schema)
    read, parts = _columns_read(schema, with_label=with_label)
    needed = [name for name, column in read.items() if column.role != "label"]
    if not schema.header and not set(needed) <= set(names):
        return _headless_schema(path, schema, head, unlabelled)
    _refuse_missing(path, needed, names)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{path}:1: the header names {', '.join(twice)} more than once")
    if clash := sorted({column.name for column in parts} & set(names)):
        raise DataError(
            f"{path}:1: the header names {', '.join(clash)}, which {schema} makes of a time; rename it in the file"
        )
    columns = [read.get(name) or Column(name=name, role="ignored") for name in names]
    return schema.with_({"columns": [*columns, *parts], "header": True})  # also where training files had none


def _headless_schema(path: Path, schema: Schema, head: bytes, unlabelled: tuple[Column, ...]) -> Schema:
    """Of a file without names: all columns of the schema, or all but the label, as most of its first lines have."""
    labels, lines = schema.of_role("label"), head.split(b"\n", _HEAD_LINES)[:_HEAD_LINES]
    found = Counter(len(_split(line, schema)) for line in lines if line)
    num_all = len(schema.fields)
    if not found or found[num_all] > found[num_all - 1]:
        return schema.with_({"columns": unlabelled})
    if labels and found[num_all - 1]:
        return schema.with_({"columns": [column for column in unlabelled if column.name != labels[0].name]})
    others = f", or {num_all - 1} without the label {labels[0].name!r}" if labels else ""
    raise DataError(
        f"{path}:1 has {len(_split(lines[0], schema))} fields; {schema} has {num_all}{others}. Are they separated "
        f"by {schema.separator!r}?"
    )


def _split(line: bytes, schema: Schema) -> list[str]:
    """The fields of a line, however many they are."""
    text = line.decode(errors="replace").removesuffix("\r")
    return next(csv.reader([text], delimiter=schema.separator), []) if schema.quoted else text.split(schema.separator)


def _without_label(column: Column) -> Column:
    return Column(name=column.name, role="ignored") if column.role in ("label", "weight") else column


def _refuse_missing(path: Path, wanted: Sequence[str], names: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in names]
    if missing:
        shown = f"{', '.join(missing[:5])}{', …' if len(missing) > 5 else ''}"
        raise DataError(f"{path} has no column {shown}, which the model reads; it has {', '.join(names[:40])}")


def _orders(found: Schema, schema: Schema) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Where the model's dense columns and slots are among those of a file; None twice if they are in their order."""
    if found.dense_names == schema.dense_names and found.category_names == schema.category_names:
        return None, None
    dense = np.array([found.dense_names.index(name) for name in schema.dense_names], np.int64)
    slots = np.array([found.slot_names.index(name) for name in schema.slot_names], np.int64)
    return dense, slots
