"""The same rows three times: as lines of CSV, as a Parquet table and as JSON lines, with types of their own."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recmill.settings.columns import Column, Schema
from tests.data.lines import (
    CITY,
    COUNT,
    DEVICE,
    DEVICES,
    LABEL,
    NOTE,
    PRICE,
    SHOP,
    SHOPS,
    TAGS,
    odd_field,
    plain_field,
    schema_of,
)

CODES = Column(name="codes", role="category", kind="int", inner_separator="^", max_values=2)
TEXT = schema_of(PRICE, LABEL, CITY, SHOP, NOTE, TAGS, DEVICE, CODES, COUNT, SHOPS, DEVICES, name="shop")
# lists need no separator: tags and shops are lists, codes and devices stay texts with separators in them
LISTS = ("tags", "shops")


def as_parquet(schema: Schema) -> Schema:
    """The schema of the Parquet file that holds the rows of a text."""
    columns = tuple(c.with_({"inner_separator": None}) if c.name in LISTS else c for c in schema.columns)
    return Schema(name=schema.name, format="parquet", columns=columns)


PARQUET = as_parquet(TEXT)
JSON_LINES = PARQUET.with_({"format": "jsonl"})
Fields = list[bytes]


def make_rows(num_rows: int, seed: int, *, odd_frac: float = 0.0) -> list[Fields]:
    """Fields that are right, or odd ones in some rows; none holds a separator of the text."""
    random, rows = Random(seed), list[Fields]()
    for _ in range(num_rows):
        row = [plain_field(random, column) for column in TEXT.columns]
        if random.random() < odd_frac:
            at = random.choice([i for i, column in enumerate(TEXT.columns) if column.kind == "hex" or column == CODES])
            row[at] = odd_field(random, TEXT.columns[at])
            row[TEXT.columns.index(LABEL)] = random.choice((b"0", b"1", b"", b"2"))
        rows.append([field.translate(None, b',\n\r\0"') for field in row])
    return rows


def write_csv(path: Path, rows: list[Fields]) -> Path:
    path.write_bytes(b"".join(b",".join(row) + b"\n" for row in rows))
    return path


def _value(field: bytes, column: Column) -> Any:
    if column.name in LISTS:
        assert column.inner_separator is not None
        alone = column.with_({"inner_separator": None, "name": "alone"})
        items = [_value(item, alone) for item in field.split(column.inner_separator.encode())]
        return items if field else None
    if not field and column.kind != "string":
        return None
    if column.inner_separator is not None or column.kind in (None, "hex", "string"):
        return field.decode("utf-8", "surrogateescape").encode("utf-8", "surrogateescape")
    return float(field) if column.kind == "float" else int(field)


def to_table(rows: list[Fields], *, is_compact: bool = False) -> pa.Table:
    """Every field in its type: the usual ones, or dictionaries, long offsets, small integers and a boolean label."""
    arrays = dict[str, pa.Array]()
    for i, column in enumerate(TEXT.columns):
        values = [_value(row[i], column) for row in rows]
        is_number = column.kind in ("int", "float") and column.inner_separator is None
        if column.name in LISTS:
            inner = pa.int64() if column.kind == "int" else pa.large_binary() if is_compact else pa.binary()
            arrays[column.name] = pa.array(values, pa.large_list(inner) if is_compact else pa.list_(inner))
        elif is_number:
            arrays[column.name] = pa.array(values, pa.float64() if column.kind == "float" else pa.int64())
        else:
            arrays[column.name] = pa.array(values, pa.binary())
    if is_compact:
        labels = arrays["clicked"].to_pylist()
        if {*labels} <= {0, 1, None}:
            arrays["clicked"] = pa.array([None if v is None else bool(v) for v in labels])
        for name in ("city", "device", "codes"):
            arrays[name] = arrays[name].dictionary_encode()
        arrays["devices"] = arrays["devices"].cast(pa.large_binary())
    # another order than the schema's, and a column that it does not name
    names = sorted(arrays)
    return pa.table({"extra": pa.array([0.5] * len(rows)), **{name: arrays[name] for name in names}})


def write_parquet(path: Path, table: pa.Table, *, group_rows: int = 50) -> Path:
    pq.write_table(table, path, row_group_size=group_rows)
    return path


def _as_json(value: Any) -> bytes:
    if isinstance(value, list):
        return b"[" + b",".join(map(_as_json, value)) + b"]"
    if isinstance(value, bytes):  # not always UTF-8
        return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\t", b"\\t") + b'"'
    return b"null" if value is None else repr(value).encode()


def to_json_lines(rows: list[Fields], *, is_compact: bool = False) -> bytes:
    """Every field in its type; compact ones leave out what is missing, and their labels are true or false."""
    lines = list[bytes]()
    for row in rows:
        values = {column.name: _value(field, column) for field, column in zip(row, TEXT.columns, strict=True)}
        if is_compact:
            values = {name: value for name, value in values.items() if value is not None}
        cells = {name: _as_json(value) for name, value in values.items()}
        if is_compact and values.get("clicked") in (0, 1):
            cells["clicked"] = b"true" if values["clicked"] else b"false"
        pairs = [b'"%s":%s' % (name.encode(), cells[name]) for name in sorted(cells)]
        lines.append(b'{"extra":{"a":[0.5,"}"]},' + b", ".join(pairs) + b"}\n")
    return b"".join(lines)
