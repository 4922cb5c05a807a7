"""What Python's csv module writes is read as it reads it: by the kernel, the slow reader, and in any segments."""

import bz2
import csv
import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.logs.header import open_source
from recmill.data.logs.text_file import Segment, Source
from recmill.data.logs.text_format import TextFormat
from recmill.data.text.kernel import FINISHED, FULL, parse_rows
from recmill.data.text.layout import layout_of
from recmill.data.text.reference import BadRow, category_value, read_row, split_line
from recmill.errors import BadRowError, ConfigError, DataError
from recmill.settings.columns import Column, Schema
from tests.data.lines import CITY, COUNT, LABEL, NOTE, PRICE, schema_of, text_reader, workspace

BASE = schema_of(LABEL, CITY, COUNT, NOTE, PRICE)
WIDTH = 5
texts = st.text(alphabet='ab ",;\t|\n\r', max_size=30).map(lambda text: text.replace("\0", ""))
rows = st.tuples(
    st.sampled_from("01"),
    texts,
    st.integers(-(10**9), 10**9).map(str) | st.just(""),
    texts,
    st.sampled_from(("", "1.5")),
)
tables = st.lists(rows, min_size=1, max_size=40)
styles = st.fixed_dictionaries(
    {
        "separator": st.sampled_from(",;\t|"),
        "quoting": st.sampled_from((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)),
        "line_end": st.sampled_from(("\n", "\r\n", "mixed")),
        "last_line_end": st.booleans(),
    }
)
Table = Sequence[tuple[str, ...]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quoted") / "rows.csv"


def _schema(separator: str, **settings: Any) -> Schema:
    return BASE.with_({"separator": separator, "quoted": True, **settings})


def _written(table: Table, style: dict[str, Any], random: Random) -> bytes:
    text = b""
    for row in table:
        line_end = random.choice(("\n", "\r\n")) if style["line_end"] == "mixed" else style["line_end"]
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=style["separator"], quoting=style["quoting"]).writerow(row)  # which ends in CR LF
        text += (out.getvalue().removesuffix("\r\n") + line_end).encode()
    return text if style["last_line_end"] else text.removesuffix(b"\n").removesuffix(b"\r")


def _hash(text: str) -> int:
    return category_value(text.encode(), CITY)


def _assert_rows(segments: list[Segment], schema: Schema, table: Table) -> None:
    chunks = [TextFormat().read(segment, schema) for segment in segments]
    assert all(not chunk.bad for chunk in chunks)
    labels, numbers, values = (np.concatenate([chunk.raw[i] for chunk in chunks]) for i in range(3))
    assert labels.tolist() == [float(row[0]) for row in table]
    assert values[:, 0].tolist() == [_hash(row[1]) for row in table]
    expected = [[float(row[i]) if row[i] else np.nan for i in (2, 4)] for row in table]
    np.testing.assert_array_equal(numbers, np.array(expected))
    assert [segment.count_rows() for segment in segments] == [chunk.num_lines for chunk in chunks]


@settings(max_examples=300, deadline=None)
@given(table=tables, style=styles, seed=st.integers(0, 2**32))
def test_law_csv_is_read_as_python_reads_it(path: Path, table: Table, style: dict[str, Any], seed: int) -> None:
    text, schema = _written(table, style, Random(seed)), _schema(str(style["separator"]))
    read_back = list(csv.reader(io.StringIO(text.decode(), newline=""), delimiter=schema.separator))
    assert read_back == [list(row) for row in table]
    path.write_bytes(text)
    source = open_source(path, schema)
    _assert_rows([source.whole()], schema, table)
    at, fields = 0, list[list[bytes]]()
    while at < source.num_bytes:  # the slow reader alone
        found = split_line(source.buffer[at : source.line_end(at)].tobytes(), schema)
        assert not isinstance(found, BadRow)
        fields.append(found)
        at = source.line_end(at) + 1
    assert [[field.decode() for field in row] for row in fields] == read_back


@settings(max_examples=200, deadline=None)
@given(table=tables, style=styles, seed=st.integers(0, 2**32), cuts=st.lists(st.floats(0, 1), max_size=6))
def test_law_any_segments_have_the_same_rows(
    path: Path, table: Table, style: dict[str, Any], seed: int, cuts: list[float]
) -> None:
    schema = _schema(str(style["separator"]))
    path.write_bytes(_written(table, style, Random(seed)))
    whole = open_source(path, schema).whole()
    borders = sorted({0, whole.num_bytes, *(round(cut * whole.num_bytes) for cut in cuts)})
    _assert_rows([whole.part(a, b) for a, b in pairwise(borders)], schema, table)
    _assert_rows(whole.cut(17), schema, table)
    num_rows = seed % (len(table) + 1)
    first, rest = whole.cut_at(num_rows)
    assert (first.count_rows(), rest.count_rows()) == (num_rows, len(table) - num_rows)
    _assert_rows([first, rest], schema, table)
    for row in range(1, len(table)):
        assert whole.source.line_number(whole.cut_at(row)[0].stop) == row + 1


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CR LF"])
def test_the_kernel_reads_quotes_itself(line_end: str) -> None:
    """Nothing goes to the slow reader, be it doubled quotes, separators or line breaks inside quotes."""
    schema = _schema(",")
    rows = [(str(i % 2), f'a "{i}", b\nc' * (i % 4), str(i), "n" * (i % 70), "0.5") for i in range(900)]
    style = {"separator": ",", "quoting": csv.QUOTE_MINIMAL, "line_end": line_end, "last_line_end": True}
    written = _written(rows, style, Random(0))
    text, stop = np.frombuffer(written + b"\0" * 64, np.uint8), len(written)
    work, layout = workspace(schema, 256), layout_of(schema)._replace(has_breaks=True)
    at, num_rows, status = 0, 0, FULL
    while status == FULL:
        count, at, status = parse_rows(text, at, stop, layout, work)
        assert work.raw.values[:count, 0].tolist() == [_hash(row[1]) for row in rows[num_rows : num_rows + count]]
        num_rows += count
    assert (status, num_rows) == (FINISHED, 900)


def test_lines_that_do_not_fit_into_the_room_for_quotes_are_read_in_parts(path: Path) -> None:
    schema = _schema(",")
    table = [("1", "x" * 900_000 + '"' * (i % 2), "1", "", "1.5") for i in range(7)]
    style = {"separator": ",", "quoting": csv.QUOTE_ALL, "line_end": "\n", "last_line_end": True}
    path.write_bytes(_written(table, style, Random(0)))
    _assert_rows([open_source(path, schema).whole()], schema, table)


def test_a_long_file_is_found_from_any_byte(path: Path) -> None:
    """Longer than the distance between two places of its index."""
    table = [(str(i % 2), f"{i}\n\n,", str(i), "z" * (i % 50), "") for i in range(9000)]
    style = {"separator": ",", "quoting": csv.QUOTE_MINIMAL, "line_end": "\n", "last_line_end": True}
    path.write_bytes(_written(table, style, Random(0)))
    whole = open_source(path, _schema(",")).whole()
    assert whole.num_bytes > 4 << 16
    _assert_rows(whole.cut(10_007), _schema(","), table)
    assert abs(whole.estimate_rows() - 9000) < 10


# Quotes that are wrong.


def test_a_quote_that_never_closes_is_a_bad_line(path: Path) -> None:
    path.write_bytes(b'1,a,1,,\n1,"b,2,,\n0,c,3,,\n' + b"0,d,4,,\n" * 100_000)
    segment = open_source(path, _schema(",")).whole()
    with pytest.raises(BadRowError) as caught:
        text_reader(_schema(",")).read([segment])
    assert str(caught.value).startswith(f"{path}:2: column city holds '\"b,2,,': the quote at its begin never closes")
    block = text_reader(_schema(","), "skip").read([segment])
    assert (block.columns.num_rows, block.num_skipped) == (100_002, 1)


@pytest.mark.parametrize("bad", [b'1,"b,2,,\n', b'1,b"b,2,,\n', b'1,"b"b,2,,\n0,"x",1,,\n'])
def test_behind_line_breaks_inside_quotes_it_is_an_error(path: Path, bad: bytes) -> None:
    path.write_bytes(b'1,"a\n\nb",1,,\n' + bad + b"0,c,3,,\n" * 1000)
    with pytest.raises(DataError) as caught:
        open_source(path, _schema(","))
    assert str(caught.value).startswith(f"{path}:4: a quote in the row that begins here never closes")


def test_a_bad_row_is_named_by_its_line_in_an_editor(path: Path) -> None:
    path.write_bytes(b'1,"a\n\nb",1,,\n1,"c\nd",x,,\n')
    segment = open_source(path, _schema(",")).whole()
    with pytest.raises(BadRowError, match=f"{path}:4: column count holds 'x'"):
        text_reader(_schema(",")).read([segment])


# A decimal comma.


@settings(max_examples=100, deadline=None)
@given(numbers=st.lists(st.floats(-1e6, 1e6).map(lambda number: f"{number:.4f}"), min_size=1), quoted=st.booleans())
def test_law_a_decimal_comma_is_a_point(path: Path, numbers: list[str], quoted: bool) -> None:
    point = schema_of(LABEL, PRICE).with_({"quoted": quoted, "separator": "," if quoted else ";"})
    comma = point.with_({"decimal": ","})
    mark = '"' if quoted else ""
    lines = [f"1{point.separator}{mark}{number}{mark}\n" for number in numbers]
    raws = []
    for schema, text in ((point, "".join(lines)), (comma, "".join(lines).replace(".", ","))):
        path.write_bytes(text.encode())
        raws.append(TextFormat().read(open_source(path, schema).whole(), schema).raw.numbers.tolist())
        assert [read_row(line.encode().rstrip(), point) for line in lines] == [
            read_row(line.replace(".", ",").encode().rstrip(), comma) for line in lines
        ]
    assert raws[0] == raws[1] == [[float(number)] for number in numbers]


def test_with_a_decimal_comma_a_point_is_bad() -> None:
    schema = schema_of(LABEL, PRICE).with_({"separator": ";", "decimal": ","})
    assert read_row(b"1;1.5", schema) == BadRow("price", b"1.5", "not a finite decimal number")


def test_a_decimal_comma_needs_another_separator_or_quotes() -> None:
    with pytest.raises(ConfigError, match="is what separates fields too"):
        schema_of(LABEL, PRICE).with_({"decimal": ","})


# The begin and the end of a file.


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("header", [b"", b"clicked,city,count,note,price\r\n"], ids=["no header", "header"])
@pytest.mark.parametrize("end", [b"", b"\r\n", b"\n", b"\n\n", b"\r\n\r\n\r\n"], ids=repr)
@pytest.mark.parametrize("quoted", [False, True], ids=["plain", "quoted"])
def test_files_of_other_programs(path: Path, mark: bytes, header: bytes, end: bytes, quoted: bool) -> None:
    schema = _schema(",", quoted=quoted, header=bool(header))
    path.write_bytes(mark + header + b"1,Oslo,7,,\r\n0,Rome,8,,0.5" + end)
    _assert_rows(
        [open_source(path, schema).whole()], schema, [("1", "Oslo", "7", "", ""), ("0", "Rome", "8", "", "0.5")]
    )


def test_names_of_columns_may_have_spaces_and_line_breaks(path: Path) -> None:
    columns = tuple(Column(name=name, role="dense", kind="int") for name in ("a b", "c\nd", 'e "f"'))
    schema = Schema(name="odd", separator=";", header=True, quoted=True, columns=columns)
    path.write_bytes(b'a b;"c\nd";"e ""f"""\n1;2;3\n')
    assert TextFormat().read(open_source(path, schema).whole(), schema).raw.numbers.tolist() == [[1.0, 2.0, 3.0]]


def test_of_a_single_column_a_blank_line_is_a_row(path: Path) -> None:
    path.write_bytes(b"a\n\n")
    assert open_source(path, schema_of(CITY)).whole().count_rows() == 2


def test_a_cr_inside_a_line_is_part_of_its_field() -> None:
    assert read_row(b"a\rb", schema_of(CITY)) == read_row(b"a\rb\r", schema_of(CITY))
    assert read_row(b"a\rb", schema_of(CITY)) != read_row(b"ab", schema_of(CITY))


# Packed by bzip2.


def test_bzip2_of_several_streams(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.bz2"
    path.write_bytes(bz2.compress(b"1,2\n") + bz2.compress(b"3,4\n"))
    assert Source(path).buffer.tobytes() == b"1,2\n3,4\n"


@pytest.mark.parametrize("damage", [b"", b"no bzip2", bz2.compress(b"1,2\n" * 999)[:-9]], ids=["empty", "other", "cut"])
def test_damaged_bzip2_is_refused(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "rows.csv.bz2"
    path.write_bytes(damage)
    with pytest.raises(DataError, match="is damaged or cut short"):
        Source(path)
