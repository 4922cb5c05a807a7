"""A marked read holds the rows of a plain one, and says of every other line where it is and what is wrong with it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.logs.opening import open_log
from recmill.data.logs.raw_format import RawSegment
from recmill.data.stream.block import Block, LogReader, MarkedBlock
from recmill.data.stream.multi_hot import MultiHotReader, MultiHotTables
from recmill.data.stream.raw_reader import RawReader, build_reader
from recmill.data.stream.text_reader import TextReader
from recmill.data.text.reference import BadRow, read_row
from recmill.errors import BadRowError
from recmill.settings.columns import Schema
from recmill.settings.criteo import CRITEO
from recmill.settings.data import BadRowPolicy
from recmill.settings.encoding import Encoding
from recmill.settings.multi_hot import MultiHot
from tests.data.lines import (
    LABEL,
    MIXED,
    PRICE,
    QUOTED,
    SEVERAL,
    SHOP,
    almost_right_text,
    bits,
    lines_of,
    new_source,
    plain_line,
    schema_of,
)
from tests.data.tables import PARQUET, TEXT, make_rows, to_table, write_csv, write_parquet

SMALL = schema_of(LABEL, PRICE, SHOP)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marked")


def _reader(schema: Schema, bad_rows: BadRowPolicy = "fail") -> LogReader:
    return build_reader(schema, Encoding(), (1_000_003,) * len(schema.category_names), bad_rows)


def _assert_same_columns(actual: MarkedBlock, expected: Block) -> None:
    np.testing.assert_array_equal(bits(actual.columns.dense), bits(expected.columns.dense))
    np.testing.assert_array_equal(actual.columns.ids, expected.columns.ids)
    np.testing.assert_array_equal(actual.columns.labels, expected.columns.labels)


def assert_marks(schema: Schema, segment: RawSegment) -> MarkedBlock:
    """The law: good and bad places cover all rows, each once, and the good ones are those of a read that skips."""
    marked, plain = _reader(schema).read_marked(segment), _reader(schema, "skip").read([segment])
    _assert_same_columns(marked, plain)
    assert len(marked.bad) == plain.num_skipped
    assert marked.num_rows == segment.count_rows()
    bad_places = [place for place, _ in marked.bad]
    assert bad_places == sorted(bad_places)
    assert sorted([*bad_places, *marked.good_places.tolist()]) == list(range(marked.num_rows))
    assert len(marked.good_places) == marked.columns.num_rows
    return marked


@pytest.mark.parametrize("schema", [CRITEO, MIXED, QUOTED, SEVERAL], ids=lambda schema: schema.name)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), num_lines=st.integers(0, 60), cut=st.floats(0, 1))
def test_law_marked_text(directory: Path, schema: Schema, seed: int, num_lines: int, cut: float) -> None:
    text = almost_right_text(Random(seed), schema, num_lines) if num_lines else b""
    whole = new_source(directory / "text", text).whole()
    found = [read_row(line, schema) for line in lines_of(text)]
    expected = [(place, row.describe()) for place, row in enumerate(found) if isinstance(row, BadRow)]
    assert list(assert_marks(schema, whole).bad) == expected
    parts = whole.part(0, round(cut * len(text))), whole.part(round(cut * len(text)), len(text))
    first, second = (assert_marks(schema, part) for part in parts)
    assert [*first.bad, *((place + first.num_rows, why) for place, why in second.bad)] == expected


@pytest.mark.parametrize(
    ("text", "num_rows", "bad"),
    [
        (b"", 0, {}),
        (b"1,2,3\n", 1, {}),
        (b"1,2,3\n1,x,3", 2, {1: "column price holds 'x': not a finite decimal number"}),
        (b"1,x,3\n0,2,3", 2, {0: "column price holds 'x': not a finite decimal number"}),
        (b"\n1,2,3\n\n", 3, dict.fromkeys((0, 2), "the line has 1 fields, schema small expects 3 fields")),
        (b"1,2,3\r\n0,2,3\r\n", 2, {}),
        (b"1,2,3\n0,2,3\r\n1,,\n0,4,5\r", 4, {}),
    ],
    ids=["nothing", "plain", "no newline, bad", "no newline, good", "blank", "all CR LF", "some CR LF"],
)
def test_odd_ends_of_lines_are_marked(directory: Path, text: bytes, num_rows: int, bad: dict[int, str]) -> None:
    marked = assert_marks(SMALL, new_source(directory / "ends", text).whole())
    assert marked.num_rows == num_rows
    assert [place for place, _ in marked.bad] == list(bad)
    for place, why in marked.bad:
        assert why.startswith(bad[place])


def test_quoted_fields_are_rows_and_broken_quotes_are_marked(directory: Path) -> None:
    schema = SMALL.with_({"quoted": True})
    segment = new_source(directory / "quoted", b'1,"2",3\n1,"2,3\n0,2,"3"\n1,2"2,3\n').whole()
    marked = assert_marks(schema, segment)
    assert marked.good_places.tolist() == [0, 2]
    assert [why.partition(":")[0] for _, why in marked.bad] == [
        "column price holds '\"2,3'",
        "column price holds '2\"2'",
    ]


@pytest.mark.parametrize("is_compact", [False, True], ids=["plain", "compact"])
def test_law_marked_parquet_and_its_text_alike(tmp_path: Path, is_compact: bool) -> None:
    rows = make_rows(330, 3, odd_frac=0.4)
    text = assert_marks(TEXT, open_log(write_csv(tmp_path / "rows.csv", rows), TEXT).whole())
    path = write_parquet(tmp_path / "rows.parquet", to_table(rows, is_compact=is_compact))
    segment = open_log(path, PARQUET).whole()
    table = assert_marks(PARQUET, segment)
    assert 50 < len(table.bad) < 280
    assert [place for place, _ in table.bad] == [place for place, _ in text.bad]
    assert [why.rpartition(": ")[2] for _, why in table.bad] == [why.rpartition(": ")[2] for _, why in text.bad]
    part = assert_marks(PARQUET, segment.part(45, 207))  # begins and ends within a group
    assert part.bad == tuple((place - 45, why) for place, why in table.bad if 45 <= place < 207)


@pytest.mark.parametrize("schema", [TEXT, PARQUET], ids=lambda schema: schema.format)
def test_all_rows_bad_or_none(tmp_path: Path, schema: Schema) -> None:
    for name, odd_frac in (("good", 0.0), ("bad", 1.0)):
        rows = make_rows(60, 5, odd_frac=odd_frac)
        if odd_frac:
            rows = [[b"7" if column == LABEL else x for x, column in zip(r, TEXT.columns, strict=True)] for r in rows]
        write = {
            "text": lambda path, r: write_csv(path, r),
            "parquet": lambda path, r: write_parquet(path, to_table(r)),
        }
        path = write[schema.format](tmp_path / f"{name}.{schema.format}", rows)
        marked = assert_marks(schema, open_log(path, schema).whole())
        assert len(marked.bad) == (60 if odd_frac else 0)


def test_threads_share_a_reader(directory: Path) -> None:
    reader, random = _reader(CRITEO), Random(9)
    text = almost_right_text(random, CRITEO, 900) + b"\n" + plain_line(random, CRITEO)
    whole = new_source(directory / "threads", text).whole()
    parts = whole.cut(3000)
    expected = [reader.read_marked(part) for part in parts]
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(reader.read_marked, parts))
    for mine, theirs in zip(actual, expected, strict=True):
        _assert_same_columns(mine, Block(theirs.columns))
        assert (mine.num_rows, mine.bad) == (theirs.num_rows, theirs.bad)


def test_multi_hot_rows_are_marked_too(directory: Path) -> None:
    segment = new_source(directory / "wide", b"1,2,3\nx\n0,2,4\n").whole()
    tables = MultiHotTables(MultiHot(sizes=(3,)), (50,))
    reader = TextReader(SMALL, Encoding(), (50,), "skip")
    marked = MultiHotReader(reader, tables).read_marked(segment)
    np.testing.assert_array_equal(marked.columns.ids, tables.widen(reader.read([segment]).columns.ids))
    assert [place for place, _ in marked.bad] == [1]


def test_any_format_can_be_read_by_the_general_reader(directory: Path) -> None:
    """Text by it is text by its own reader: a format needs no reader of its own."""
    text = almost_right_text(Random(4), MIXED, 200) + b"\nno row\n" + plain_line(Random(5), MIXED)
    segment: Any = new_source(directory / "general", text).whole()
    table_rows = (1_000_003,) * len(MIXED.category_names)
    general, own = (kind(MIXED, Encoding(), table_rows, "skip") for kind in (RawReader, TextReader))
    _assert_same_columns(general.read_marked(segment), own.read([segment]))
    assert general.read_marked(segment).bad == own.read_marked(segment).bad
    assert general.read([segment]).num_skipped == own.read([segment]).num_skipped
    complaints = list[str]()
    for kind in (RawReader, TextReader):
        with pytest.raises(BadRowError) as caught:
            kind(MIXED, Encoding(), table_rows).read([segment])
        complaints.append(str(caught.value))
    assert complaints[0] == complaints[1]


@pytest.mark.parametrize("line", [b'"\n', b'1,"\n', b'"\r\n'])
def test_a_quote_alone_is_a_bad_line_and_nothing_worse(directory: Path, line: bytes) -> None:
    """Its length without quotes would be negative, and the kernel would write in front of its array."""
    marked = assert_marks(QUOTED, new_source(directory / "quotes", line * 3000).whole())
    assert len(marked.bad) == marked.num_rows == 3000
