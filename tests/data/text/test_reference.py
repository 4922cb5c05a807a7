"""Every kind of bad line is rejected by the name of its column, its text and the reason."""

import csv
import io
import math
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY
from recmill.data.text.kernel import MAX_LINE_BYTES
from recmill.data.text.reference import BadRow, Row, read_row, split_line
from recmill.errors import BadRowError
from recmill.settings.columns import Column, Schema
from recmill.settings.criteo import CRITEO
from tests.data.lines import COUNT, DEVICE, LABEL, MIXED, PRICE, QUOTED, SHOP, SHOPS, new_source, schema_of, text_reader

GOOD_CRITEO = b"\t".join([b"1", *(b"%d" % i for i in range(13)), *(b"%08x" % i for i in range(26))])
GOOD_MIXED = b"1,0.5,Oslo,42,anything,0badf00d,7"
NOT_INT = "not an integer of 64 bits"
NOT_HEX = "a category of this kind is exactly 8 hexadecimal digits"
NOT_FLOAT = "not a finite decimal number"
NOT_LABEL = "a label is 0 or 1; of others the schema says which are positive (positive = ...)"
NUL = "a NUL byte; is the file binary or damaged?"
WAY_OUT = "(fix the file, or pass --bad-rows skip to count such rows and go on)"


def _criteo(column: int, text: bytes) -> bytes:
    fields = GOOD_CRITEO.split(b"\t")
    fields[column] = text
    return b"\t".join(fields)


def _mixed(column: int, text: bytes) -> bytes:
    fields = GOOD_MIXED.split(b",")
    fields[column] = text
    return b",".join(fields)


# What is wrong, the schema, the line, the whole complaint.
BAD_LINES: list[tuple[str, Schema, bytes, str]] = [
    (
        "a field too few",
        CRITEO,
        GOOD_CRITEO.rpartition(b"\t")[0],
        r"the line has 39 fields, schema criteo expects 40 fields separated by '\t': "
        r"'1\t0\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t00000000\t'...",
    ),
    (
        "a field too many",
        MIXED,
        GOOD_MIXED + b",8",
        "the line has 8 fields, schema mixed expects 7 fields separated by ',': '1,0.5,Oslo,42,anything,0badf00d,7,8'",
    ),
    ("empty line", MIXED, b"", "the line has 1 fields, schema mixed expects 7 fields separated by ',': ''"),
    (
        "truncated last line",
        CRITEO,
        b"1\t0\t1\t2",
        r"the line has 4 fields, schema criteo expects 40 fields separated by '\t': '1\t0\t1\t2'",
    ),
    ("truncated in its last field", CRITEO, GOOD_CRITEO[:-3], f"column cat_25 holds '00000': {NOT_HEX}"),
    ("not hex", CRITEO, _criteo(14, b"0badc0fg"), f"column cat_0 holds '0badc0fg': {NOT_HEX}"),
    ("7 hex digits", CRITEO, _criteo(39, b"0badf00"), f"column cat_25 holds '0badf00': {NOT_HEX}"),
    ("9 hex digits", CRITEO, _criteo(20, b"0badf00d1"), f"column cat_6 holds '0badf00d1': {NOT_HEX}"),
    ("not a number", CRITEO, _criteo(1, b"many"), f"column int_0 holds 'many': {NOT_INT}"),
    ("a decimal point", CRITEO, _criteo(13, b"1.5"), f"column int_12 holds '1.5': {NOT_INT}"),
    ("a plus", MIXED, _mixed(6, b"+1"), f"column count holds '+1': {NOT_INT}"),
    ("a space", MIXED, _mixed(6, b" 1"), f"column count holds ' 1': {NOT_INT}"),
    ("an underscore", MIXED, _mixed(3, b"1_0"), f"column shop holds '1_0': {NOT_INT}"),
    ("a minus alone", MIXED, _mixed(3, b"-"), f"column shop holds '-': {NOT_INT}"),
    ("65 bits", MIXED, _mixed(3, b"18446744073709551616"), f"column shop holds '18446744073709551616': {NOT_INT}"),
    ("64 bits", MIXED, _mixed(6, b"9223372036854775808"), f"column count holds '9223372036854775808': {NOT_INT}"),
    ("least int64", MIXED, _mixed(3, b"-9223372036854775808"), f"column shop holds '-9223372036854775808': {NOT_INT}"),
    ("label 2", CRITEO, _criteo(0, b"2"), f"column label holds '2': {NOT_LABEL}"),
    ("label 0.0", MIXED, _mixed(0, b"0.0"), f"column clicked holds '0.0': {NOT_LABEL}"),
    ("label missing", MIXED, _mixed(0, b""), f"column clicked holds '': {NOT_LABEL}"),
    ("NUL in a string", MIXED, _mixed(2, b"Os\0lo"), rf"column city holds 'Os\x00lo': {NUL}"),
    ("NUL in an ignored field", MIXED, _mixed(4, b"\0"), rf"column note holds '\x00': {NUL}"),
    ("NUL in a category", CRITEO, _criteo(14, b"0badf00\0"), rf"column cat_0 holds '0badf00\x00': {NUL}"),
    ("NUL in a number", CRITEO, _criteo(1, b"1\0"), rf"column int_0 holds '1\x00': {NUL}"),
    ("CR inside", MIXED, _mixed(6, b"7\r\r"), rf"column count holds '7\r': {NOT_INT}"),
    ("infinity", MIXED, _mixed(1, b"inf"), f"column price holds 'inf': {NOT_FLOAT}"),
    ("not a number by name", MIXED, _mixed(1, b"nan"), f"column price holds 'nan': {NOT_FLOAT}"),
    ("beyond float64", MIXED, _mixed(1, b"-1e999"), f"column price holds '-1e999': {NOT_FLOAT}"),
    ("hex float", MIXED, _mixed(1, b"0x1p3"), f"column price holds '0x1p3': {NOT_FLOAT}"),
    ("only a point", MIXED, _mixed(1, b"."), f"column price holds '.': {NOT_FLOAT}"),
    (
        "open quotes",
        QUOTED,
        b'1,0.5,"Oslo,42',
        "column city holds '\"Oslo,42': the quote at its begin never closes; close it, or double it",
    ),
    (
        "quotes open after a doubled one",
        QUOTED,
        b'1,0.5,"Oslo""',
        'column city holds \'"Oslo""\': the quote at its begin never closes; close it, or double it',
    ),
    (
        "text behind quotes",
        QUOTED,
        b'1,0.5,"Oslo"n,42',
        "column city holds '\"Oslo\"n,42': something follows the closing quote",
    ),
    (
        "a quote inside",
        QUOTED,
        b'1,0.5,O"o,42',
        "column city holds 'O\"o': a quote within a field that does not begin with one; double it and quote the field",
    ),
    (
        "over-long",
        MIXED,
        b"z" * MAX_LINE_BYTES,
        f"the line has 1,048,576 bytes, more than 1,048,575: '{'z' * 40}'...",
    ),
]
cases = pytest.mark.parametrize(
    ("schema", "line", "complaint"), [case[1:] for case in BAD_LINES], ids=[case[0] for case in BAD_LINES]
)


@cases
def test_a_bad_line_is_described(schema: Schema, line: bytes, complaint: str) -> None:
    verdict = read_row(line, schema)
    assert isinstance(verdict, BadRow)
    assert verdict.describe() == complaint


def _assert_refused(path: Path, schema: Schema, ending: bytes, message: str) -> None:
    good = GOOD_CRITEO if schema is CRITEO else GOOD_MIXED
    source = new_source(path, (good + b"\n") * 4 + ending)
    with pytest.raises(BadRowError) as caught:
        text_reader(schema).read([source.whole()])
    assert str(caught.value) == message


@cases
def test_the_reader_adds_file_and_line(tmp_path: Path, schema: Schema, line: bytes, complaint: str) -> None:
    path = tmp_path / "day_3"
    message = f"{path}:5: {complaint} {WAY_OUT}"
    _assert_refused(path, schema, line + b"\n", message)
    _assert_refused(path, schema, line + b"\nanother bad line\n", message)
    if line:
        _assert_refused(path, schema, line, message)


def test_the_first_bad_column_is_named() -> None:
    verdict = read_row(b"2,x,Oslo,y,,z,w", MIXED)
    assert isinstance(verdict, BadRow)
    assert (verdict.column, verdict.text) == ("clicked", b"2")


def test_a_good_line_becomes_its_values() -> None:
    assert read_row(GOOD_CRITEO, CRITEO) == Row(1.0, tuple(map(float, range(13))), tuple(range(26)))
    row = read_row(b"0,-2.5E-3,,-1,,DEADbeef,007", MIXED)
    assert row == Row(0.0, (-0.0025, 7.0), (int(MISSING_CATEGORY), 2**64 - 1, 0xDEADBEEF))


def test_missing_numbers_are_nan_and_missing_categories_have_their_mark() -> None:
    row = read_row(b"1" + b"\t" * 39, CRITEO)
    assert isinstance(row, Row)
    assert all(math.isnan(number) for number in row.numbers)
    assert set(row.values) == {int(MISSING_CATEGORY)}


def test_the_first_of_several_values_are_kept_and_slots_left_over_are_marked() -> None:
    schema = schema_of(SHOPS)  # two values, separated by ;
    missing, absent = int(MISSING_CATEGORY), int(ABSENT_CATEGORY)
    for text, values in {
        b"5;7": (5, 7),
        b"5": (5, absent),
        b"": (missing, absent),
        b";;": (missing, absent),
        b";5;;7;": (5, 7),
        b"5;7;9": (5, 7),
        b"5;7;not looked at": (5, 7),
        b"5;5": (5, 5),
    }.items():
        assert read_row(text, schema) == Row(0.0, (), values), text
    for text in (b"5;x", b"-9223372036854775806"):
        assert isinstance(read_row(text, schema), BadRow)
    assert read_row(b"-9223372036854775806", schema_of(SHOP)) == Row(0.0, (), (absent,)), "a number like any other"


def test_a_line_without_label_has_label_zero() -> None:
    assert read_row(b"5", schema_of(COUNT)) == Row(0.0, (5.0,), ())


@pytest.mark.parametrize("column", [COUNT, SHOP], ids=["number", "category"])
@pytest.mark.parametrize("text", [b"0" * 5000 + b"9", b"-" + b"0" * 5000, b"9" * 5000], ids=["nine", "zero", "huge"])
def test_integers_of_thousands_of_digits_get_a_verdict(column: Column, text: bytes) -> None:
    """Python itself refuses to convert more than 4,300 digits, leading zeros included."""
    verdict = read_row(text, schema_of(column))
    if text.startswith(b"9"):
        assert isinstance(verdict, BadRow)
        assert verdict.reason == NOT_INT
    else:
        assert isinstance(verdict, Row)
        assert [*verdict.numbers, *verdict.values] == [9 if text.endswith(b"9") else 0]


def test_floats_may_be_tiny_or_long() -> None:
    schema = schema_of(LABEL, PRICE, DEVICE)
    for text in ("1e-999", "4.9e-324", "0." + "1" * 5000, "0" * 5000 + "1.5", "1" * 300, "1.7976931348623157e308"):
        assert read_row(b"1," + text.encode() + b",", schema) == Row(1.0, (float(text),), (int(MISSING_CATEGORY),))


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.text(st.sampled_from('ab,";\t \xe9'), max_size=6), min_size=1, max_size=6),
    separator=st.sampled_from(",;\t"),
    style=st.sampled_from((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)),
)
def test_quoted_fields_are_those_the_csv_module_wrote(rows: list[str], separator: str, style: Literal[0, 1]) -> None:
    columns = [Column(name=f"c{i}", role="ignored") for i in range(len(rows))]
    schema = schema_of(*columns, separator=separator).with_({"quoted": True})
    out = io.StringIO()
    csv.writer(out, delimiter=separator, quoting=style, lineterminator="").writerow(rows)
    assert split_line(out.getvalue().encode(), schema) == [field.encode() for field in rows]
