"""A schema inferred from Parquet reads the file it was inferred from, and says what one from its text says."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from recmill.data.infer.schema_file import render
from recmill.data.logs.infer import infer
from recmill.data.logs.infer_parquet import infer_parquet
from recmill.data.logs.opening import open_log
from recmill.data.logs.raw import read_raw
from recmill.data.logs.raw_format import AskedColumns
from recmill.errors import DataError
from recmill.settings.columns import Schema
from recmill.settings.tree import from_tree
from tests.data.tables import PARQUET, write_parquet

CITIES = ("Oslo", "Rome", "Lima", "Bath")
WORDS = ("red", "blue", "old", "new", "big")


def _row(random: Random) -> dict[str, Any]:
    return {
        "hour": random.randrange(12),
        "clicked": random.randrange(2),
        "price": random.choice((None, round(random.random() * 500, 2))),
        "views": random.choice((None, random.randrange(10_000))),
        "balance": random.randint(-300, 9000),
        "city": random.choice(CITIES),
        "user_id": random.randrange(10**9),
        "device": f"{random.getrandbits(32):08x}",
        "tags": random.sample(WORDS, random.randrange(5)),
        "source": "web",
    }


ROWS = [_row(random) for random in [Random(3)] for _ in range(401)]


def _table(rows: list[dict[str, Any]] = ROWS) -> pa.Table:
    return pa.Table.from_pylist(rows)


def _schema(text: str) -> Schema:
    return from_tree(Schema, tomllib.loads(text))


def _infer(tmp_path: Path, table: pa.Table, label: str | None = None) -> str:
    return render(
        *infer_parquet([write_parquet(tmp_path / "shop.parquet", table)], name="shop", asked=AskedColumns(label))
    )


def _csv(rows: list[dict[str, Any]]) -> bytes:
    lines = [",".join(rows[0])]
    for row in rows:
        fields = {name: "" if value is None else str(value) for name, value in row.items()}
        lines.append(",".join({**fields, "tags": "~".join(row["tags"])}.values()))
    return "\n".join(lines).encode() + b"\n"


def test_it_says_what_one_from_the_text_says(tmp_path: Path) -> None:
    ours, theirs = _schema(_infer(tmp_path, _table())), _schema(render(*infer([_csv(ROWS)], name="shop")))
    assert (ours.format, theirs.format) == ("parquet", "text")
    columns = [c.with_({"inner_separator": None}) for c in theirs.columns]
    assert list(ours.columns) == columns


def test_it_reads_the_file_it_was_inferred_from(tmp_path: Path) -> None:
    schema = _schema(_infer(tmp_path, _table()))
    chunk = read_raw(open_log(tmp_path / "shop.parquet", schema).whole(), schema)
    assert (chunk.num_lines, chunk.num_bad) == (401, 0)


def test_types_come_before_looks(tmp_path: Path) -> None:
    """Numbers in strings are names; whole doubles are doubles; a label may be a boolean or a double."""
    random = Random(1)
    table = pa.table(
        {
            "code": [str(random.randrange(50)) for _ in range(300)],
            "amount": [float(random.randrange(500)) for _ in range(300)],
            "flag": pa.array([str(i % 2) for i in range(300)]),
            "y": pa.array([i % 3 == 0 for i in range(300)]),
            "seen": [datetime(2026, 1, 1 + i % 20, tzinfo=UTC) for i in range(300)],
            "ids": pa.array([[i % 7, None] if i % 3 == 0 else None for i in range(300)], pa.list_(pa.int32())),
            "path": pa.array(["a|b", "b|c|d", "d"] * 100).dictionary_encode(),
            "nothing": pa.array([[]] * 300, pa.list_(pa.int32())),
        }
    )
    text = _infer(tmp_path, table)
    found = {c.name: (c.role, c.kind, c.max_values, c.inner_separator) for c in _schema(text).columns}
    assert found == {
        "code": ("category", "string", None, None),
        "amount": ("dense", "float", None, None),
        "flag": ("category", "string", None, None),
        "y": ("label", "int", None, None),
        "seen": ("time", "time", None, None),
        "seen_weekday": ("category", "int", None, None),
        "ids": ("category", "int", 1, None),
        "path": ("category", "string", None, None),
        "nothing": ("ignored", None, None, None),
    }
    assert "# times from 2026-01-01T00:00:00 to 2026-01-20T00:00:00, taken as UTC" in text
    assert "7 distinct values, up to 1 in one field, 67% empty" in text
    with pytest.raises(DataError, match="--label flag: a label is a number, 0 or 1; this column is string"):
        _infer(tmp_path, table, label="flag")


def test_a_parquet_schema_comes_back_from_its_file() -> None:
    text = render(PARQUET)
    assert 'format = "parquet"' in text
    assert 'separator = "' not in text.replace("inner_separator", "")
    assert _schema(text) == PARQUET


def test_several_files_are_one_sample(tmp_path: Path) -> None:
    paths = [write_parquet(tmp_path / f"{i}.parquet", _table(ROWS[at : at + 200])) for i, at in enumerate((0, 200))]
    assert "and 400 rows" in render(*infer_parquet(paths, name="shop"))
    other = write_parquet(
        tmp_path / "other.parquet", _table().drop_columns("hour").append_column("hour", [["x"] * 401])
    )
    with pytest.raises(DataError, match=r"other\.parquet: column hour is of type string, and in .* of type int64"):
        infer_parquet([paths[0], other], name="shop")
    more = write_parquet(tmp_path / "more.parquet", _table().append_column("new", [[1] * 401]))
    with pytest.raises(
        DataError, match=r"more\.parquet: column new is of type int64, and in .* it is not there; infer"
    ):
        infer_parquet([paths[0], more], name="shop")


def test_a_file_without_rows_or_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"shop\.parquet has no row to infer a schema from"):
        _infer(tmp_path, _table()[:0])
    (tmp_path / "text.parquet").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(DataError, match=r"text\.parquet is not a complete Parquet file"):
        infer_parquet([tmp_path / "text.parquet"], name="text")
