"""Parquet rows are the rows of the text they stand for, in any order, at any place; what is no row is named."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recmill.data.logs import parquet_file as parquet_source
from recmill.data.logs.opening import open_log
from recmill.data.logs.parquet_file import ParquetSegment, ParquetSource
from recmill.data.logs.parquet_rows import ParquetLog
from recmill.data.logs.raw import read_raw
from recmill.data.logs.raw_format import RawSegment
from recmill.data.logs.split import Splits, find_days, split_by_day, split_tail
from recmill.data.stream.raw_reader import RawReader, build_reader
from recmill.data.stream.stream import Order, Stream
from recmill.errors import BadRowError, ConfigError, DataError
from recmill.settings.columns import Column, Schema
from recmill.settings.data import SPLIT_NAMES, BadRowPolicy
from recmill.settings.encoding import Encoding
from tests.data.lines import CITY, COUNT, DEVICE, DEVICES, LABEL, PRICE, SHOP, TAGS, assert_same_raw
from tests.data.tables import PARQUET, TEXT, Fields, make_rows, to_table, write_csv, write_parquet
from tests.laws.encode import assert_same_rows
from tests.laws.resume import assert_resumes_everywhere

TABLE_ROWS = (1_000_003,) * len(TEXT.category_names)


def _reader(schema: Schema, bad_rows: BadRowPolicy = "fail", encoding: Encoding | None = None) -> Any:
    return build_reader(schema, encoding or Encoding(), TABLE_ROWS[: len(schema.category_names)], bad_rows)


def _both(directory: Path, rows: list[Fields], *, is_compact: bool = False) -> tuple[RawSegment, RawSegment]:
    """The rows as text and as Parquet."""
    text = open_log(write_csv(directory / "rows.csv", rows), TEXT)
    table = to_table(rows, is_compact=is_compact)
    return text.whole(), open_log(write_parquet(directory / "rows.parquet", table), PARQUET).whole()


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of 50 rows are decoded in three pieces."""
    monkeypatch.setattr(parquet_source, "DECODED_ROWS", 17)


@pytest.mark.parametrize("is_compact", [False, True], ids=["plain", "compact"])
@pytest.mark.parametrize("category", ["modulo", "hash"])
def test_law_encode(tmp_path: Path, is_compact: bool, category: Any) -> None:
    text, table = _both(tmp_path, make_rows(777, 1), is_compact=is_compact)
    encoding = Encoding(category=category)
    with (
        Stream(_reader(TEXT, encoding=encoding), [text], Order(60)) as expected,
        Stream(_reader(PARQUET, encoding=encoding), [table], Order(60, block_extent=32)) as actual,
    ):
        assert_same_rows(actual, expected)


def test_a_shuffled_block_is_in_the_order_of_its_text(tmp_path: Path) -> None:
    """Where text and Parquet are cut alike, the shuffled batches are the same too."""
    text, table = _both(tmp_path, make_rows(300, 2))
    order = Order(64, seed=5, epochs=3)
    with (
        Stream(_reader(TEXT), [text], order) as expected,
        Stream(_reader(PARQUET), [table], order) as actual,
    ):
        assert_same_rows(actual, expected)


@pytest.mark.parametrize("is_compact", [False, True], ids=["plain", "compact"])
def test_raw_rows_and_bad_ones_are_those_of_the_text(tmp_path: Path, is_compact: bool) -> None:
    text, table = _both(tmp_path, make_rows(700, 3, odd_frac=0.4), is_compact=is_compact)
    expected, actual = read_raw(text, TEXT), read_raw(table, PARQUET)
    assert_same_raw(actual.raw, expected.raw)
    assert 100 < actual.num_bad == expected.num_bad
    assert [at for at, _ in actual.bad] == [at for at, _ in expected.bad]
    assert [bad.column for _, bad in actual.bad] == [bad.column for _, bad in expected.bad]
    assert [bad.reason for _, bad in actual.bad] == [bad.reason for _, bad in expected.bad]


def test_law_encode_with_bad_rows_ignored(tmp_path: Path) -> None:
    text, table = _both(tmp_path, make_rows(400, 4, odd_frac=0.3))
    with (
        Stream(_reader(TEXT, "skip"), [text], Order(50)) as expected,
        Stream(_reader(PARQUET, "skip"), [table], Order(50, block_extent=16)) as actual,
    ):
        ours, theirs = list(actual), list(expected)
    assert_same_rows(ours, theirs)
    assert sum(b.num_skipped for b in ours) + actual.trailing_skipped > 50
    assert (
        sum(b.num_skipped for b in ours) + actual.trailing_skipped
        == sum(b.num_skipped for b in theirs) + expected.trailing_skipped
    )


def test_law_resume(tmp_path: Path) -> None:
    segments = [
        open_log(write_parquet(tmp_path / f"{i}.parquet", to_table(make_rows(n, i, odd_frac=0.1))), PARQUET).whole()
        for i, n in enumerate((130, 0, 1, 211))
    ]
    order = Order(90, seed=3, epochs=2, num_lanes=5, block_extent=20)
    assert_resumes_everywhere(lambda start: Stream(_reader(PARQUET, "skip"), segments, order, start=start))


def test_a_group_is_decoded_once_however_small_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_group, decoded, lock = ParquetLog.read_group, Counter[int](), threading.Lock()

    def counted(log: ParquetLog, group: int, max_rows: int) -> Iterator[Any]:
        with lock:
            decoded[group] += 1
        return read_group(log, group, max_rows)

    monkeypatch.setattr(ParquetLog, "read_group", counted)
    _, table = _both(tmp_path, make_rows(500, 6))
    with Stream(_reader(PARQUET), [table], Order(100, seed=1, epochs=3, num_lanes=8, block_extent=7)) as stream:
        assert sum(batch.num_rows for batch in stream) == 1500
    assert decoded == dict.fromkeys(range(10), 1)


def test_nothing_is_decoded_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParquetLog, "read_group", lambda *_: pytest.fail("rows are counted without reading them"))
    _, table = _both(tmp_path, make_rows(120, 7))
    assert (table.count_rows(), table.extent) == (120, 120)


def test_days_and_tails_are_cut_where_those_of_the_text_are(tmp_path: Path) -> None:
    for day, num_rows in enumerate((60, 51)):
        write_parquet(tmp_path / f"day_{day}.parquet", to_table(make_rows(num_rows, day)))
    days = find_days(tmp_path)
    assert [path.name for path in days] == ["day_0.parquet", "day_1.parquet"]
    splits = split_by_day(days, lambda path: open_log(path, PARQUET))
    assert [[(s.start, s.stop) for s in splits.of(name)] for name in SPLIT_NAMES] == [[(0, 60)], [(0, 26)], [(26, 51)]]
    segments = [open_log(path, PARQUET).whole() for path in days]
    splits = split_tail(segments, num_rows=61)
    assert [[(s.start, s.stop) for s in splits.of(name)] for name in SPLIT_NAMES] == [
        [(0, 50)],
        [(50, 60), (0, 21)],
        [(21, 51)],
    ]
    with pytest.raises(DataError, match=r"day_0\.parquet has lines in both train and test; a split may share none"):
        Splits((segments[0],), (), (segments[0].part(59, 60),))


def test_closing_gives_the_scratch_file_back_and_rows_are_decoded_anew(tmp_path: Path) -> None:
    _, table = _both(tmp_path, make_rows(60, 8))
    before = read_raw(table, PARQUET).raw
    table.source.close()
    assert_same_raw(read_raw(table, PARQUET).raw, before)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    _, table = _both(tmp_path, make_rows(60, 8))
    monkeypatch.setattr("os.posix_fallocate", refuse)
    with pytest.raises(DataError, match=r"decoding .*rows\.parquet takes [\d,]+ bytes in .*: No space left on device"):
        read_raw(table, PARQUET)


# Cells that are no values.

MARK = -9223372036854775806
CODES = Column(name="codes", role="category", kind="int", max_values=2)
BAD_CELLS: list[tuple[Column, pa.Array, str]] = [
    (
        LABEL,
        pa.array([1, None]),
        "column clicked holds 'null': a label is 0 or 1; of others the schema says which are positive (positive = ...)",
    ),
    (
        LABEL,
        pa.array([1, 2], pa.int8()),
        "column clicked holds '2': a label is 0 or 1; of others the schema says which are positive (positive = ...)",
    ),
    (
        LABEL,
        pa.array([1.0, 0.5]),
        "column clicked holds '0.5': a label is 0 or 1; of others the schema says which are positive (positive = ...)",
    ),
    (
        LABEL,
        pa.array([1.0, np.nan]),
        "column clicked holds 'nan': a label is 0 or 1; of others the schema says which are positive (positive = ...)",
    ),
    (PRICE, pa.array([1.0, -np.inf]), "column price holds '-inf': not a finite decimal number"),
    (COUNT, pa.array([1, 1 << 63], pa.uint64()), "column count holds '9223372036854775808': not an integer of 64 bits"),
    (SHOP, pa.array([1, -(1 << 63)]), "column shop holds '-9223372036854775808': not an integer of 64 bits"),
    (SHOP, pa.array(["1", "1.5"]), "column shop holds '1.5': not an integer of 64 bits"),
    (DEVICE, pa.array(["0badf00d", "0badf00"]), "column device holds '0badf00': a category of this kind is exactly 8"),
    (DEVICES, pa.array(["", "0badf00d|zz"]), "column devices holds '0badf00d|zz': a category of this kind is exactly"),
    (CODES, pa.array([[1], [None, 2, MARK]]), f"column codes holds '{MARK}': in a column of several values this one"),
]


@pytest.mark.parametrize(("column", "array", "complaint"), BAD_CELLS, ids=[case[2][:40] for case in BAD_CELLS])
def test_a_bad_cell_is_named_by_file_row_and_column(
    tmp_path: Path, column: Column, array: pa.Array, complaint: str
) -> None:
    labels = [] if column is LABEL else [LABEL]
    schema = Schema(name="small", format="parquet", columns=(*labels, column))
    columns = {**{c.name: pa.array([0, 1]) for c in labels}, column.name: array}
    path = write_parquet(tmp_path / "bad.parquet", pa.table(columns), group_rows=1)
    segment = open_log(path, schema).whole()
    with pytest.raises(BadRowError) as caught:
        _reader(schema).read([segment])
    assert str(caught.value).startswith(f"{path}, row 2: {complaint}")
    assert str(caught.value).endswith("(fix the file, or pass --bad-rows skip to count such rows and go on)")
    block = _reader(schema, "skip").read([segment])
    assert (block.columns.num_rows, block.num_skipped) == (1, 1)


def test_values_behind_the_last_slot_are_not_looked_at(tmp_path: Path) -> None:
    schema = Schema(name="small", format="parquet", columns=(LABEL, CODES))
    table = pa.table({"clicked": [1], "codes": [[3, None, 4, MARK]]})
    block = _reader(schema).read([open_log(write_parquet(tmp_path / "a.parquet", table), schema).whole()])
    assert block.columns.ids.tolist() == [[4, 5]]


def test_what_is_missing_is_null_nan_or_without_a_byte(tmp_path: Path) -> None:
    tags = TAGS.with_({"inner_separator": None})
    schema = Schema(name="small", format="parquet", columns=(LABEL, PRICE, CITY, tags))
    table = pa.table(
        {
            "clicked": pa.array([0.0, 1.0, 1.0], pa.float32()),
            "price": pa.array([None, np.nan, 2.0], pa.float32()),
            "city": [None, "", "Oslo"],
            "tags": [None, [], [None, ""]],
        }
    )
    segment = open_log(write_parquet(tmp_path / "a.parquet", table), schema).whole()
    assert isinstance(segment, ParquetSegment)
    raw = segment.source.read(0, 3).raw
    assert np.isnan(raw.numbers[:, 0]).tolist() == [True, True, False]
    block = _reader(schema).read([segment])
    assert block.columns.labels.tolist() == [0, 1, 1]
    assert (block.columns.ids[:, 0] == 0).tolist() == [True, True, False]
    assert block.columns.ids[:, 1:].tolist() == [[0, -1, -1]] * 3


# Files that are not what the schema says.

IGNORE = 'or set role = "ignored"'
OTHER_TYPES: list[tuple[Column, pa.DataType, str]] = [
    (
        PRICE,
        pa.timestamp("us"),
        f'timestamp[us], which schema small cannot read as a dense column of kind float; set role = "time" .*{IGNORE}',
    ),
    (
        CITY,
        pa.date32(),
        f'date32[day], which schema small cannot read as a category column of .*; set role = "time" .*{IGNORE}',
    ),
    (PRICE, pa.decimal128(9, 2), f"decimal128(9, 2), which .* cast it to a number, .*{IGNORE}"),
    (PRICE, pa.struct([("a", pa.int8())]), f"struct<a: int8>, which .*{IGNORE}"),
    (PRICE, pa.string(), f"string, which .*; cast it when the file is written, {IGNORE}"),
    (LABEL, pa.string(), 'string, which .*; set kind = "string", and what is positive'),
    (COUNT, pa.float64(), 'double, which .* as a dense column of kind int; set kind = "float"'),
    (CITY, pa.int32(), 'int32, which .*; set kind = "int"'),
    (SHOP, pa.float64(), f"double, which .*; cast it when the file is written, {IGNORE}"),
    (PRICE, pa.list_(pa.int8()), "list<element: int8>, which .*; a list can only be a category; write one number"),
    (CITY, pa.list_(pa.string()), "list<element: string>, which .*; give max_values, how many values of a list"),
    (TAGS, pa.list_(pa.string()), "list<element: string>, which .*; leave out inner_separator, which a list"),
    (CODES, pa.list_(pa.float32()), "list<element: float>, which .*; cast it to a number, a string or a list"),
    (CODES, pa.int64(), "int64, which .*; leave out max_values and inner_separator, or give the inner_separator"),
    (CODES, pa.list_(pa.list_(pa.int8())), f"list<element: list<element: int8>>, which .*{IGNORE}"),
]


@pytest.mark.parametrize(
    ("column", "arrow_type", "complaint"), OTHER_TYPES, ids=[f"{c[0].name}-{c[1]}" for c in OTHER_TYPES]
)
def test_another_type_is_refused_with_a_way_out(
    tmp_path: Path, column: Column, arrow_type: pa.DataType, complaint: str
) -> None:
    path = write_parquet(tmp_path / "a.parquet", pa.table({column.name: pa.array([None], arrow_type)}))
    schema = Schema(name="small", format="parquet", columns=(column,))
    start, _, rest = complaint.partition(".*")
    with pytest.raises(DataError) as caught:
        open_log(path, schema)
    told = str(caught.value)
    assert told.startswith(f"{path}: column {column.name} is of type {start}"), told
    assert all(part in told for part in rest.split(".*")), told
    note = Column(name=column.name, role="ignored")
    open_log(path, Schema(name="small", format="parquet", columns=(note,))).close()


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (("clicked", "Price"), "has no column 'price', which schema small reads; did you mean 'Price'?"),
        (("clicked", "x"), "has no column 'price', which schema small reads; its columns are clicked, x"),
        (("price", "price", "clicked"), "has 2 columns 'price', which schema small reads; did you mean 'price'?"),
    ],
)
def test_a_column_that_is_not_there_once_is_named(tmp_path: Path, names: tuple[str, ...], complaint: str) -> None:
    table = pa.Table.from_arrays([pa.array([1])] * len(names), names)
    path = write_parquet(tmp_path / "a.parquet", table)
    with pytest.raises(DataError) as caught:
        open_log(path, Schema(name="small", format="parquet", columns=(LABEL, PRICE)))
    assert str(caught.value) == f"{path} {complaint}"


def test_a_file_that_is_cut_short_foreign_or_missing_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", to_table(make_rows(60, 1)))
    content = path.read_bytes()
    for kept in (content[:-9], content[: len(content) // 2], b"PAR1", b"", b"clicked,price\n1,2\n"):
        path.write_bytes(kept)
        with pytest.raises(DataError, match=f"^{path} is not a complete Parquet file: .*was it cut short, or"):
            open_log(path, PARQUET)
    path.unlink()
    with pytest.raises(DataError, match=f"^{path} cannot be read: No such file or directory$"):
        open_log(path, PARQUET)


def test_a_damaged_page_is_named_by_its_group(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", to_table(make_rows(100, 1)))
    content = bytearray(path.read_bytes())
    content[4:400] = b"\xff" * 396
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{path} is damaged in its row group 1 of 2: .*; write the file anew$"):
        read_raw(open_log(path, PARQUET).whole(), PARQUET)


def test_parquet_with_a_schema_of_text_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", to_table(make_rows(5, 1)))
    with pytest.raises(ConfigError, match=r"is Parquet, and schema shop is one of text; `recmill schema infer "):
        open_log(path, TEXT)


def test_the_reader_is_the_one_of_the_schemas_format() -> None:
    assert isinstance(_reader(PARQUET), RawReader)
    assert not isinstance(_reader(TEXT), RawReader)


def test_a_source_holds_one_descriptor_however_many_its_groups(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", to_table(make_rows(40, 1)), group_rows=2)
    before = len(list(Path("/proc/self/fd").iterdir()))
    source = ParquetSource(path, PARQUET)
    source.read(0, 40)
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    source.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
