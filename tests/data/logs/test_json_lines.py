"""JSON lines are the rows of the text and of the Parquet they stand for, however cut; what is no row is named."""

import bz2
import gzip
import tomllib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import zstandard

from recmill.data.infer.schema import infer_schema
from recmill.data.logs import json_arrow, json_lines_file
from recmill.data.logs.formats import format_named
from recmill.data.logs.json_line import read_values
from recmill.data.logs.opening import open_log
from recmill.data.logs.raw import read_raw
from recmill.data.logs.raw_format import AskedColumns, RawChunk
from recmill.data.logs.split import find_days
from recmill.data.stream.raw_reader import build_reader
from recmill.data.stream.stream import Order, Stream
from recmill.errors import BadRowError, ConfigError, DataError
from recmill.settings.columns import Column, Schema, schema_from_tree
from recmill.settings.data import BadRowPolicy
from recmill.settings.encoding import Encoding
from tests.data.lines import (
    ANSWER,
    BOUGHT,
    CITY,
    COUNT,
    DEVICE,
    LABEL,
    PRICE,
    SHOP,
    STARS,
    TAGS,
    WEIGHT,
    assert_same_raw,
)
from tests.data.tables import JSON_LINES, PARQUET, TEXT, make_rows, to_json_lines, to_table, write_csv, write_parquet
from tests.laws.encode import assert_same_rows
from tests.laws.resume import assert_resumes_everywhere

TABLE_ROWS = (1_000_003,) * len(TEXT.category_names)
LIST = TAGS.with_({"inner_separator": None})
CODES = Column(name="codes", role="category", kind="int", max_values=2)


def _reader(schema: Schema, bad_rows: BadRowPolicy = "fail") -> Any:
    return build_reader(schema, Encoding(), TABLE_ROWS[: len(schema.category_names)], bad_rows)


def _schema(*columns: Column) -> Schema:
    return Schema(name="small", format="jsonl", columns=columns)


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _read(path: Path, schema: Schema) -> RawChunk:
    return read_raw(open_log(path, schema).whole(), schema)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines_file, "MANY_BYTES", 20_000)
    monkeypatch.setattr(json_lines_file, "FEW_LINES", 7)


@pytest.mark.parametrize("is_compact", [False, True], ids=["plain", "compact"])
def test_law_the_same_rows_as_csv_parquet_and_json_lines_give_the_same_batches(
    tmp_path: Path, is_compact: bool
) -> None:
    rows = make_rows(777, 1)
    text = open_log(write_csv(tmp_path / "rows.csv", rows), TEXT).whole()
    table = open_log(write_parquet(tmp_path / "rows.parquet", to_table(rows)), PARQUET).whole()
    path = _write(tmp_path / "rows.jsonl", to_json_lines(rows, is_compact=is_compact))
    lines = open_log(path, JSON_LINES).whole()
    for schema, segment in ((TEXT, text), (PARQUET, table)):
        with (
            Stream(_reader(schema), [segment], Order(60)) as expected,
            Stream(_reader(JSON_LINES), [lines], Order(60, block_extent=9_000)) as actual,
        ):
            assert_same_rows(actual, expected)


@pytest.mark.parametrize("is_compact", [False, True], ids=["plain", "compact"])
def test_raw_rows_and_bad_ones_are_those_of_the_text(tmp_path: Path, is_compact: bool) -> None:
    rows = make_rows(700, 3, odd_frac=0.4)
    expected = _read(write_csv(tmp_path / "rows.csv", rows), TEXT)
    actual = _read(_write(tmp_path / "rows.jsonl", to_json_lines(rows, is_compact=is_compact)), JSON_LINES)
    assert_same_raw(actual.raw, expected.raw)
    assert 100 < actual.num_bad == expected.num_bad
    assert [(at, bad.column, bad.reason) for at, bad in actual.bad] == [
        (at, bad.column, bad.reason) for at, bad in expected.bad
    ]


def _right_values(column: Column, values: Sequence[str]) -> list[str]:
    lines = {value: f'{{"{column.name}": {value}}}'.encode() for value in values}
    right = [value for value, line in lines.items() if isinstance(read_values(line, _schema(column)), dict)]
    return [value for value in right if value not in ("1e400", "9" * 19, "9" * 40)]  # most lines are read fast


def test_law_fast_and_slow_parsers_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any value in any place, and lines that are none: nothing depends on who has read a line."""
    random = Random(5)
    values = (
        *(
            "0",
            "1",
            "-0",
            "-0.0",
            "7",
            "2.0",
            "0.5",
            "1e3",
            "1e-400",
            "1e400",
            "9" * 19,
            "9" * 40,
            "-9223372036854775808",
        ),
        *(
            "9223372036854775807",
            "12345678901234567",
            "-9223372036854775806",
            "true",
            "false",
            "null",
            "NaN",
            "-Infinity",
        ),
        *("Inf", '""', '"a"', '"7"', '"yes"', '"0badf00d"', '"\\u00e9\\n"', '"\\ud83d\\ude00"', '"\\ud800"', '"tab\t"'),
        *("[]", "[null]", '["a","","b"]', '["a", 1]', "[1,2,3]", "[true]", "[1.5]", "[[1]]", "{}", '{"a":1}', '"a|b"'),
    )
    columns = (PRICE, COUNT, SHOP, CITY, DEVICE, TAGS, LIST.with_({"name": "list"}), CODES, WEIGHT)
    for label in (LABEL, ANSWER, STARS, BOUGHT) * 3:
        schema = _schema(label, *columns)
        lines = list[str]()
        usual = {column.name: random.choice(_right_values(column, values)) for column in schema.columns}
        for _ in range(600):
            cells = usual | {random.choice(list(usual)): random.choice(values) for _ in range(random.random() < 0.15)}
            line = "{" + ", ".join(f'"{name}": {value}' for name, value in cells.items()) + "}"
            odd = (line + line, line[:-1], line + " x}", " " + line, line + "\r", "[]", "", "{}", line + "\0}")
            lines.append(random.choice(odd) if random.random() < 0.05 else line)
        path = _write(tmp_path / f"{label.name}.jsonl", "\n".join(lines).encode())
        segment = json_lines_file.JsonLinesFormat().open(path, schema).whole()
        fast = json_lines_file.JsonLinesFormat().read(segment, schema, max_bad=None)
        with monkeypatch.context() as patch:
            patch.setattr(json_arrow, "read_many", lambda *_: None)
            slow = json_lines_file.JsonLinesFormat().read(segment, schema, max_bad=None)
        assert_same_raw(fast.raw, slow.raw)
        assert (fast.num_lines, fast.bad) == (slow.num_lines, slow.bad)


def test_plain_lines_are_read_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines_file._Reading, "_read_slowly", lambda *_: pytest.fail("these lines are plain"))
    data = to_json_lines(make_rows(400, 3), is_compact=True)
    assert len(_read(_write(tmp_path / "a.jsonl", data), JSON_LINES).raw.labels) == 400
    assert len(_read(_write(tmp_path / "b.jsonl", data.replace(b"\n", b"\r\n")), JSON_LINES).raw.labels) == 400


def test_any_cut_gives_the_same_rows(tmp_path: Path) -> None:
    data = to_json_lines(make_rows(200, 4, odd_frac=0.2)).rstrip(b"\n")  # the last line is unfinished
    whole = open_log(_write(tmp_path / "rows.jsonl", data), JSON_LINES).whole()
    expected = read_raw(whole, JSON_LINES)
    for num_bytes in (1, 100, 333, 5_000, 1 << 20):
        parts = [read_raw(part, JSON_LINES) for part in whole.cut(num_bytes)]
        joined = [np.concatenate(pieces) for pieces in zip(*(part.raw for part in parts), strict=True)]
        assert_same_raw(type(expected.raw)(*joined), expected.raw)
        assert sum(part.num_lines for part in parts) == expected.num_lines == whole.count_rows()


def test_law_resume(tmp_path: Path) -> None:
    segments = [
        open_log(_write(tmp_path / f"{i}.ndjson", to_json_lines(make_rows(n, i, odd_frac=0.1))), JSON_LINES).whole()
        for i, n in enumerate((130, 0, 1, 211))
    ]
    order = Order(90, seed=3, epochs=2, num_lanes=5, block_extent=6_000)
    assert_resumes_everywhere(lambda start: Stream(_reader(JSON_LINES, "skip"), segments, order, start=start))


PACKERS: dict[str, Any] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


@pytest.mark.parametrize("packing", PACKERS)
def test_packed_files_are_json_lines_too(tmp_path: Path, packing: str) -> None:
    data = b"\xef\xbb\xbf" + to_json_lines(make_rows(50, 6)) + b"\n\r\n"
    plain, packed = (
        _write(tmp_path / "a.jsonl", data),
        _write(tmp_path / f"day_0.jsonl{packing}", PACKERS[packing](data)),
    )
    assert format_named(packed) == "jsonl"
    assert find_days(tmp_path) == [packed]
    assert_same_raw(_read(packed, JSON_LINES).raw, _read(plain, JSON_LINES).raw)
    assert _read(packed, JSON_LINES).num_lines == 50
    assert infer_schema([packed], name="a", asked=AskedColumns("clicked")) == infer_schema(
        [plain], name="a", asked=AskedColumns("clicked")
    )


BAD_LINES = [
    ('{"clicked": 2}', "column clicked holds '2': a label is 0 or 1"),
    ("{}", "column clicked holds 'null': a label is 0 or 1"),
    ('{"clicked": 1, "price": "3"}', "column price holds '3': a text; a dense of kind float is an integer or a number"),
    ('{"clicked": 1, "price": -Infinity}', "column price holds '-inf': not a finite decimal number"),
    ('{"clicked": 1, "count": 1.5}', "column count holds '1.5': a number with decimals; a dense of kind int is an int"),
    (f'{{"clicked": 1, "count": {1 << 63}}}', f"column count holds '{1 << 63}': not an integer of 64 bits"),
    ('{"clicked": 1, "city": 5}', "column city holds '5': an integer; a category of kind string is a text"),
    ('{"clicked": 1, "city": ["a"]}', "column city holds '[\"a\"]': a list of values; give max_values"),
    ('{"clicked": 1, "tags": "a"}', "column tags holds 'a': not a list; write a list, or give the inner_separator"),
    ('{"clicked": 1, "tags": ["a", {"b": 1}]}', 'column tags holds \'["a", {"b": 1}]\': an object; a category of'),
    ('{"clicked": 1, "city": "\\ud800"}', "column city holds '?': not Unicode: an escape is half of a pair"),
    ('{"clicked": 1', "the line is no JSON object (Expecting ',' delimiter, at its character 14): '{\"clicked\": 1'"),
    ("", "the line is no JSON object (it is empty): ''"),
    ("[1]", "the line is JSON, but no object in braces: '[1]'"),
    ('{"clicked": 1}{"clicked": 1}', "the line is no JSON object (Extra data, at its character 15)"),
]


@pytest.mark.parametrize(("line", "complaint"), BAD_LINES, ids=[case[0][:40] for case in BAD_LINES])
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    schema = _schema(LABEL, PRICE, COUNT, CITY, LIST)
    path = _write(tmp_path / "bad.jsonl", f'{{"clicked": 1}}\n{line}\n{{"clicked": false}}\n'.encode())
    segment = open_log(path, schema).whole()
    with pytest.raises(BadRowError) as caught:
        _reader(schema).read([segment])
    assert str(caught.value).startswith(f"{path}:2: {complaint}")
    assert str(caught.value).endswith("(fix the file, or pass --bad-rows skip to count such rows and go on)")
    block = _reader(schema, "skip").read([segment])
    assert (block.columns.labels.tolist(), block.num_skipped) == ([1, 0], 1)


def test_what_is_missing_is_a_missing_key_null_nan_or_without_a_byte(tmp_path: Path) -> None:
    schema = _schema(LABEL, PRICE, CITY, LIST)
    lines = (
        b'{"clicked":0}\n{"clicked":1.0,"price":NaN,"city":"","tags":[]}\n{"clicked":true,"city":null,"tags":[null,""]}'
    )
    raw = _read(_write(tmp_path / "a.jsonl", lines), schema).raw
    assert raw.labels.tolist() == [0, 1, 1]
    assert np.isnan(raw.numbers).all()
    block = _reader(schema).read([open_log(tmp_path / "a.jsonl", schema).whole()])
    assert block.columns.ids.tolist() == [[0, 0, -1, -1]] * 3


def test_true_and_false_are_numbers_and_categories(tmp_path: Path) -> None:
    schema = _schema(LABEL, PRICE, SHOP)
    lines = b'{"clicked":true,"price":true,"shop":false}\n{"clicked":false,"price":2.5,"shop":true}\n'
    raw = _read(_write(tmp_path / "a.jsonl", lines), schema).raw
    assert (raw.numbers.tolist(), raw.values.tolist()) == ([[1.0], [2.5]], [[0], [1]])


def test_a_name_that_is_only_almost_there_is_rejected(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", b'{"clicked":1,"prices":3}\n')
    with pytest.raises(
        DataError, match=r"first 1 lines have no 'price', which schema small reads; did you mean 'prices'\?"
    ):
        open_log(path, _schema(LABEL, PRICE))
    open_log(path, _schema(LABEL, PRICE, Column(name="prices", role="ignored")))
    with pytest.raises(DataError, match=r"none of the columns that schema small reads \(shop\); its first lines have"):
        open_log(path, _schema(SHOP))


def test_a_schema_of_another_format_is_rejected(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl.gz", gzip.compress(b"{}\n"))
    with pytest.raises(ConfigError, match="is JSON lines, and schema shop is one of text"):
        open_log(path, TEXT)
    with pytest.raises(ConfigError, match="header is for text; leave it out of a schema of JSON lines"):
        JSON_LINES.with_({"header": True})


def test_a_schema_is_inferred_from_types(tmp_path: Path) -> None:
    random, lines = Random(1), list[str]()
    for i in range(300):
        tags = ",".join(f'"t{random.randrange(9)}"' for _ in range(random.randrange(4)))
        clicked, known = random.choice(("true", "false")), random.choice(("", ', "late": 1.5', ', "late": 2'))
        lines.append(
            f'{{"click": {clicked}, "price": {i / 7}, "tags": [{tags}], "shop_id": {i % 9}, "where": {{"x": {i}}}, '
            f'"odd": {random.choice(("1", chr(34) + "a" + chr(34)))}{known}}}'
        )
    path = _write(tmp_path / "a.jsonl", "\n".join(lines).encode())
    text = infer_schema([path], name="shop").text
    schema = schema_from_tree(tomllib.loads(text), "inferred")
    assert schema.format == "jsonl"
    found = {column.name: (column.role, column.kind) for column in schema.columns}
    assert found == {
        "click": ("label", "int"),
        "price": ("dense", "float"),
        "tags": ("category", "string"),
        "shop_id": ("category", "int"),
        "where": ("ignored", None),
        "odd": ("ignored", None),
        "late": ("dense", "float"),
    }
    assert len(_read(path, schema).raw.labels) == 300
    with pytest.raises(DataError, match=r"b\.jsonl:2: the line is no JSON object"):
        infer_schema([_write(tmp_path / "b.jsonl", b"{}\nx\n")], name="b")
    with pytest.raises(DataError, match="has no line to infer a schema from"):
        infer_schema([_write(tmp_path / "c.jsonl", b"")], name="c")
