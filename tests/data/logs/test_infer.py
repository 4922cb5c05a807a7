"""An inferred schema reads the text it was inferred from, and says what a person would say of each column."""

import csv
import io
import tomllib
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recmill.data.infer.schema_file import render
from recmill.data.logs.infer import infer
from recmill.data.logs.raw_format import AskedColumns
from recmill.data.text.reference import Row, read_row
from recmill.errors import DataError
from recmill.settings.columns import Schema
from recmill.settings.tree import from_tree
from tests.data.lines import FIXED_SCHEMAS, lines_of

CITIES = ("Oslo", "Rome", "Lima", "Bath")


def _columns(random: Random) -> dict[str, Callable[[], str]]:
    return {
        "hour": lambda: str(random.randrange(24) // 2),
        "clicked": lambda: str(random.randrange(2)),
        "price": lambda: random.choice(("", f"{random.random() * 500:.2f}")),
        "rating": lambda: f"{random.random() * 5:.1f}",
        "views": lambda: str(random.randrange(10_000)),
        "balance": lambda: str(random.randint(-300, 9000)),
        "city": lambda: random.choice(CITIES),
        "user_id": lambda: str(random.randrange(10**9)),
        "device": lambda: f"{random.getrandbits(32):08x}",
        "tags": lambda: "~".join(random.sample(("red", "blue", "old", "new", "big"), random.randrange(5))),
        "source": lambda: "web",
        "empty": lambda: "",
    }


EXPECTED = {
    "hour": ("category", "int"),
    "clicked": ("label", "int"),
    "price": ("dense", "float"),
    "rating": ("dense", "float"),
    "views": ("dense", "int"),
    "balance": ("dense", "int"),
    "city": ("category", "string"),
    "user_id": ("category", "int"),
    "device": ("category", "hex"),
    "tags": ("category", "string"),
    "source": ("ignored", None),
    "empty": ("ignored", None),
}


def _text(*, separator: str = ",", header: bool = True, quote: str = "", num_rows: int = 401) -> bytes:
    makers = _columns(Random(3))
    quotes = {"city": quote}
    rows = [
        [quotes.get(name, "") + make() + quotes.get(name, "") for name, make in makers.items()] for _ in range(num_rows)
    ]
    lines = [separator.join(makers)] * header + [separator.join(row) for row in rows]
    return "\n".join(lines).encode() + b"\n"


def _inferred(*samples: bytes, label: str | None = None) -> Schema:
    return from_tree(Schema, tomllib.loads(render(*infer(samples, name="shop", asked=AskedColumns(label)))))


def _assert_reads(schema: Schema, text: bytes) -> None:
    for line in lines_of(text)[schema.header :]:
        assert isinstance(read_row(line, schema), Row), line


@pytest.mark.parametrize("quote", ["", '"'], ids=["bare", "quoted"])
@pytest.mark.parametrize("header", [True, False], ids=["header", "no header"])
@pytest.mark.parametrize("separator", ["\t", ",", ";", "|"])
def test_the_columns_are_recognised(separator: str, header: bool, quote: str) -> None:
    text = _text(separator=separator, header=header, quote=quote)
    schema = _inferred(text)
    assert (schema.separator, schema.header, schema.quoted) == (separator, header, bool(quote))
    found = [(column.role, column.kind) for column in schema.columns]
    wanted = dict(EXPECTED) if header else {**EXPECTED, "user_id": ("dense", "int")}  # only its name gives it away
    assert found == list(wanted.values())
    if header:
        assert [column.name for column in schema.columns] == list(EXPECTED)
    _assert_reads(schema, text)


@settings(max_examples=100, deadline=None)
@example(rows=[["-", ".", "a"], ["-", ".", "a"], ["", "", ""], ["", "", "0"]])  # a row like the header is a row
@given(
    rows=st.lists(
        st.lists(st.text(st.sampled_from("01289abf.-xy \xe9"), max_size=9), min_size=3, max_size=3),
        min_size=1,
        max_size=30,
    ),
)
def test_an_inferred_schema_reads_its_sample(rows: list[list[str]]) -> None:
    text = "".join("\t".join(row) + "\n" for row in rows).encode()
    try:
        schema = _inferred(text)
    except DataError:
        return  # a header alone
    if schema.separator == "\t":  # a space in every line is as good a separator
        _assert_reads(schema, text)


def test_every_guess_says_what_it_rests_on() -> None:
    text = render(*infer([_text()], name="shop"))
    lines = {line.split('name = "')[1].split('"')[0]: line for line in text.splitlines() if "{ name" in line}
    assert lines["clicked"].endswith("# the label: 0 or 1, and called so")
    assert lines["source"].endswith("# always 'web'")
    assert lines["empty"].endswith("# always empty")
    assert "# 4 distinct values" in lines["city"]
    assert "almost all differ" in lines["user_id"]
    assert "empty" in lines["price"]
    assert "# from 0 to 5" in lines["rating"]
    assert "from 401 lines" in text


def test_dense_encodings_suit_the_numbers() -> None:
    columns = {column.name: column for column in _inferred(_text()).columns}
    assert columns["rating"].encoding == "identity"
    assert columns["views"].encoding == "log(x+3)"
    assert columns["balance"].encoding == "log(x-min+2)"
    assert columns["balance"].min is not None
    assert columns["balance"].min < -200


def test_tables_have_room_for_what_was_seen_and_more_for_what_still_comes() -> None:
    columns = {column.name: column for column in _inferred(_text()).columns}
    assert columns["hour"].rows == 24  # 0 … 11, the missing one, and room for numbers that the sample lacks
    assert columns["city"].rows == 1000
    assert columns["device"].rows == 40 * 401


def test_a_field_of_several_values_is_recognised() -> None:
    columns = {column.name: column for column in _inferred(_text()).columns}
    assert (columns["tags"].inner_separator, columns["tags"].max_values, columns["tags"].rows) == ("~", 4, 1000)
    assert [name for name, column in columns.items() if column.inner_separator] == ["tags"]


def test_the_label_may_be_named() -> None:
    text = b"a,b,c\n0,1,5\n1,0,7\n1,1,9\n"
    with pytest.raises(DataError, match=r"several columns hold 0 and 1 only.*: a, b; name the label with --label"):
        _inferred(text)
    assert [column.role for column in _inferred(text, label="b").columns][:2] == ["category", "label"]
    with pytest.raises(DataError, match=r"--label c: a label is 0 or 1, and this column holds 5, 7, 9"):
        _inferred(text, label="c")
    with pytest.raises(DataError, match=r"--label d: there is no such column; the columns are a, b, c"):
        _inferred(text, label="d")


def test_a_name_comes_before_the_first_place() -> None:
    text = b"male,Target,c\n0,1,5\n1,0,7\n1,1,9\n"
    assert [column.role for column in _inferred(text).columns][:2] == ["category", "label"]


def test_the_header_of_every_file_is_left_out() -> None:
    schema = _inferred(_text(num_rows=50), _text(num_rows=50))
    assert [(column.role, column.kind) for column in schema.columns] == list(EXPECTED.values())


def test_carriage_returns_are_part_of_line_ends() -> None:
    assert render(*infer([_text().replace(b"\n", b"\r\n")], name="shop")) == render(*infer([_text()], name="shop"))


@pytest.mark.parametrize(
    ("sample", "complaint"),
    [
        (b"", "there is no line to infer a schema from"),
        (b"\n\n", "there is no line to infer a schema from"),
        (b"a,b\n", "there is a header and no row below it"),
        (b"a,a\n1,2\n", "names a column twice or not at all"),
    ],
)
def test_text_without_columns_is_refused(sample: bytes, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        infer([sample], name="shop")


@pytest.mark.parametrize("schema", FIXED_SCHEMAS, ids=lambda schema: schema.name)
def test_a_rendered_schema_is_read_back(schema: Schema) -> None:
    assert from_tree(Schema, tomllib.loads(render(schema))) == schema


def _times(name: str, values: list[str]) -> dict[str, tuple[str, str | None, str | None, str | None]]:
    text = f"{name},y,amount\n" + "".join(f"{value},{i % 2},{i * 7.5}\n" for i, value in enumerate(values))
    columns = from_tree(Schema, tomllib.loads(render(*infer([text.encode()], name="times")))).columns
    return {c.name: (c.role, c.time_format, c.source, c.part) for c in columns if c.name not in ("y", "amount")}


@pytest.mark.parametrize(
    ("name", "values", "time_format", "parts"),
    [
        ("seen", ["2024-05-31 23:59:59", "", "2024-06-01T00:00Z"], "iso", ["hour", "weekday"]),
        ("seen", ["2024-05-31", "2024-06-01"], "iso", ["weekday"]),
        ("created_at", ["1700000000", "1700003600.5"], "epoch_s", ["hour", "weekday"]),
        ("ts", ["1700000000000", "1700003600000"], "epoch_ms", ["hour", "weekday"]),
        ("hour", ["14102100"] * 3, "YYMMDDHH", ["hour", "weekday"]),
        ("key", ["20240531", "20240601"], "YYYYMMDD", ["weekday"]),
    ],
)
def test_times_are_recognised_and_taken_apart(name: str, values: list[str], time_format: str, parts: list[str]) -> None:
    of_parts = {f"{name}_{part}": ("category", None, name, part) for part in parts}
    assert _times(name, values) == {name: ("time", time_format, None, None), **of_parts}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("amount_paid", ["1700000000", "1700003600"]),  # nothing says that these are times
        ("times", ["3", "17", "20240531"]),
        ("day", ["1", "2", "31"]),
        ("user", ["20240531", "20249931"]),
        ("when", ["2024-05-31", "never"]),
    ],
)
def test_other_numbers_and_words_are_no_times(name: str, values: list[str]) -> None:
    assert [role for role, *_ in _times(name, values).values()] != ["time"]
    assert len(_times(name, values)) == 1


def test_a_second_time_is_only_the_source_of_its_parts() -> None:
    lines = [f"2024-05-{i % 28 + 1:02},2024-06-01 {i % 24:02}:00,{i % 2},x\n" for i in range(60)]
    text = "born,seen,y,born_weekday\n" + "".join(lines)
    schema = from_tree(Schema, tomllib.loads(render(*infer([text.encode()], name="times"))))
    found = {column.name: (column.role, column.source) for column in schema.columns}
    assert found["born"] == ("time", None)
    assert found["born_weekday_part"] == ("category", "born")
    assert found["seen"] == ("ignored", None)
    assert found["seen_hour"] == ("category", "seen")
    assert all(isinstance(read_row(line.encode(), schema), Row) for line in "".join(lines).splitlines())


# Line breaks inside quotes.


def _with_breaks(separator: str, line_end: str, num_rows: int) -> list[list[str]]:
    random = Random(5)
    texts = ("plain", f"two{line_end}lines", f'a "word"{line_end}{line_end}more', f"with{separator}mark{line_end}1", "")
    return [
        [f"{random.random():.3f}", random.choice(texts), str(random.randrange(2)), str(row)] for row in range(num_rows)
    ]


def _quoted_text(rows: list[list[str]], separator: str, line_end: str) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=separator, lineterminator=line_end).writerows([["x", "review", "click", "order"], *rows])
    return out.getvalue()


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CR LF"])
@pytest.mark.parametrize("separator", ["\t", ",", ";", "|"], ids=["tab", "comma", "semicolon", "bar"])
def test_newlines_inside_quotes_end_no_line(separator: str, line_end: str) -> None:
    text = _quoted_text(_with_breaks(separator, line_end, 200), separator, line_end).encode()
    schema = _inferred(text)
    assert (schema.separator, schema.header, schema.quoted) == (separator, True, True)
    assert [column.name for column in schema.columns] == ["x", "review", "click", "order"]
    assert [(column.role, column.kind) for column in schema.columns] == [
        ("dense", "float"),
        ("category", "string"),
        ("label", "int"),
        ("ignored", None),  # it counts the rows
    ]


def test_wherever_a_sample_is_cut_its_schema_is_the_same() -> None:
    text = _quoted_text(_with_breaks(",", "\n", 300), ",", "\n")
    newlines = [i for i, character in enumerate(text) if character == "\n"]
    for newline in newlines[-40:]:
        schema = _inferred(text[: newline + 1].encode())
        assert [column.role for column in schema.columns] == ["dense", "category", "label", "ignored"]


def test_quotes_that_are_no_quotes_join_no_lines() -> None:
    """Text with a mark of inches, or an opening quote that never closes, in a file without quoting."""
    rows = [f"{i}\t{i % 2}\t{('5' + chr(34), chr(34) + 'hello', 'word')[i % 3]}" for i in range(90)]
    schema = _inferred("\n".join(rows).encode())
    assert (schema.separator, schema.quoted, len(schema.columns)) == ("\t", False, 3)
    assert "from 90 lines" in render(*infer(["\n".join(rows).encode()], name="x"))
