"""A schema inferred from files reads all of their rows, has a table row for every small integer, and does as asked."""

import gzip
import json
import tomllib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.infer import schema as schema_module
from recmill.data.infer.schema import infer_schema
from recmill.data.logs.opening import open_log
from recmill.data.logs.raw import read_raw
from recmill.data.logs.raw_format import NOTHING_ASKED, AskedColumns
from recmill.data.stream.raw_reader import build_reader
from recmill.errors import ConfigError, DataError
from recmill.settings.columns import Schema, schema_from_tree
from recmill.settings.encoding import Encoding

Table = dict[str, list[Any]]
FORMATS = ("csv", "csv.gz", "jsonl", "parquet")
RANDOM = Random(5)
SHOP: Table = {
    "clicked": [row % 2 for row in range(300)],
    "flag": [row % 3 % 2 for row in range(300)],
    "when": [1_700_000_000 + 60 * row for row in range(300)],
    "seen": [f"2024-05-{1 + row // 30:02}" for row in range(300)],
    "price": [RANDOM.randrange(10_000) for _ in range(300)],
}


def _write(directory: Path, table: Table, ending: str) -> Path:
    path = directory / f"own data.{ending}"
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    text = "\n".join([",".join(table), *(",".join(map(str, row.values())) for row in rows)]) + "\n"
    if ending == "parquet":
        pq.write_table(pa.table(table), path)
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    return path


def _inferred(*paths: Path, asked: AskedColumns = NOTHING_ASKED) -> Schema:
    return schema_from_tree(tomllib.loads(infer_schema(paths, name="own", asked=asked).text), "inferred")


def _assert_reads(path: Path, schema: Schema, num_rows: int) -> None:
    chunk = read_raw(open_log(path, schema).whole(), schema)
    assert (chunk.num_bad, len(chunk.raw.labels)) == (0, num_rows)


@settings(max_examples=40, deadline=None)
@given(
    codes=st.lists(st.integers(0, 19), min_size=3, max_size=200),
    odd=st.sampled_from(("7", "x", "2.5", "", "-3", "12345678901234567890")),
    seed=st.integers(0, 99),
)
def test_all_rows_are_read_and_small_integers_share_no_row(
    tmp_path_factory: pytest.TempPathFactory, codes: list[int], odd: str, seed: int
) -> None:
    random, num_rows = Random(seed), len(codes)
    table: Table = {
        "click": [row % 2 for row in range(num_rows)],
        "code": codes,
        "odd": [random.randrange(50) for _ in range(num_rows - 1)] + [odd],
        "word": [random.choice("abc") for _ in range(num_rows)],
    }
    path = _write(tmp_path_factory.mktemp("own"), table, "csv")
    schema = _inferred(path)
    _assert_reads(path, schema, num_rows)
    if (column := next(c for c in schema.columns if c.name == "code")).role != "category":
        assert len(set(codes)) == 1
        return
    assert column.rows is not None
    sizes = tuple(c.rows or 0 for c in schema.of_role("category"))
    ids = build_reader(schema, Encoding(), sizes).read([open_log(path, schema).whole()]).columns.ids
    place = schema.category_names.index("code")
    assert len(np.unique(ids[:, place])) == len(set(codes))


@pytest.mark.parametrize("ending", FORMATS)
def test_what_is_asked_for_comes_before_every_guess(tmp_path: Path, ending: str) -> None:
    path = _write(tmp_path, SHOP, ending)
    asked = AskedColumns("clicked", "when", ("seen", "flag"), ("price",))
    schema = _inferred(path, asked=asked)
    roles = {column.name: (column.role, column.time_format) for column in schema.fields}
    assert roles == {
        "clicked": ("label", None),
        "flag": ("ignored", None),
        "when": ("time", "epoch_s"),
        "seen": ("ignored", None),
        "price": ("category", None),
    }
    _assert_reads(path, schema, 300)
    assert _inferred(path, asked=AskedColumns("flag")).of_role("label")[0].name == "flag"
    by_seen = {c.name: c.role for c in _inferred(path, asked=AskedColumns("clicked", "seen")).columns}
    assert by_seen["seen"] == "time"


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            AskedColumns(time="whn"),
            r"--time whn: there is no such column; the columns are clicked, .*; did you mean when\?",
        ),
        (
            AskedColumns(ignored=("zzz",)),
            r"--ignore zzz: there is no such column; the columns are clicked, flag, .*price$",
        ),
        (AskedColumns(categories=("prices",)), r"--categories prices: .* did you mean price\?"),
        (AskedColumns("clickd"), r"--label clickd: .* did you mean clicked\?"),
        (
            AskedColumns("clicked", "price"),
            r"--time price: the column holds .*iso: .*YYYYMMDD: .*epoch_s: .*name another",
        ),
    ],
)
def test_names_and_times_that_are_none_are_rejected(
    tmp_path: Path, ending: str, asked: AskedColumns, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _inferred(_write(tmp_path, SHOP, ending), asked=asked)


def test_options_that_contradict_each_other_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"--label a and --ignore a contradict each other"):
        AskedColumns("a", ignored=("a",))
    with pytest.raises(ConfigError, match=r"--ignore b and --categories b contradict each other"):
        AskedColumns(ignored=("b",), categories=("b",))


def test_sizes_are_of_all_rows_and_rare_oddities_widen_a_column(tmp_path: Path) -> None:
    num_rows = 120_000  # the sample is a megabyte of it
    table: Table = {
        "click": [row % 2 for row in range(num_rows)],
        "level": [row * 15 // num_rows for row in range(num_rows)],
        "shop_id": [row // 100 for row in range(num_rows)],
        "amount": [(row * 7919) % 4001 for row in range(num_rows - 1)] + ["2.5"],
        "zone_id": [row % 50 for row in range(num_rows - 1)] + ["north"],
        "session_id": [row * 31 for row in range(num_rows)],
        "user_id": [RANDOM.randrange(10**9, 10**9 + 200_000) for _ in range(num_rows)],  # in the sample, most differ
    }
    path = _write(tmp_path, table, "csv")
    text = infer_schema([path], name="own").text
    schema = schema_from_tree(tomllib.loads(text), "inferred")
    columns = {column.name: column for column in schema.columns}
    assert columns["shop_id"].rows == 1199 + 2 + 1199 // 4
    assert "1,200 distinct values in all 120,000 rows" in text
    assert (columns["amount"].kind, columns["zone_id"].kind) == ("float", "string")
    assert columns["session_id"].role == "ignored"
    assert columns["user_id"].role == "category"
    assert "almost all differ" not in text
    _assert_reads(path, schema, num_rows)


def test_of_long_files_the_sample_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path, SHOP, "csv")
    monkeypatch.setattr(schema_module, "are_cheap_to_read", lambda _paths: False)
    text = infer_schema([path], name="own", asked=AskedColumns("clicked", categories=("price",))).text
    assert "distinct values in the sample, and room for those to come" in text


def test_numbers_that_are_names_are_no_amounts(tmp_path: Path) -> None:
    num_rows = 1500
    table: Table = {
        "click": [row % 2 for row in range(num_rows)],
        "row": list(range(num_rows)),
        "big": [2**62 + row % 700 for row in range(num_rows)],
        "huge": [10**25 + row % 700 for row in range(num_rows)],
        "code": [f"{row % 700:05}" for row in range(num_rows)],
        "amount": [row * row % 10_007 for row in range(num_rows)],
        "same": [4] * num_rows,
    }
    path = _write(tmp_path, table, "csv")
    columns = {c.name: (c.role, c.kind) for c in _inferred(path).columns}
    assert columns["row"] == columns["same"] == ("ignored", None)
    assert columns["big"] == columns["code"] == ("category", "int")
    assert columns["huge"] == ("category", "string")
    assert columns["amount"] == ("dense", "int")


def test_a_line_that_does_not_fit_is_named_above_the_schema(tmp_path: Path) -> None:
    num_rows = 150_000
    table: Table = {
        "click": [row % 2 for row in range(num_rows)],
        "amount": [(row * 7919) % 4001 + 0.5 for row in range(num_rows - 1)] + ["none"],
        "city": ["abc"[row % 3] for row in range(num_rows)],
    }
    found = infer_schema([_write(tmp_path, table, "csv")], name="own")
    assert (found.num_bad, found.num_lines) == (1, num_rows)
    assert (
        f"# 1 of 150,000 lines do not fit it, the first is {tmp_path}/own data.csv:150001: column amount" in found.text
    )
