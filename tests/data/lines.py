"""Schemas, and lines of text for them: right, almost right, and arbitrary."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import get_args

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from recmill.data.logs.text_file import Source
from recmill.data.stream.text_reader import TextReader
from recmill.data.text.fields import RawColumns, Workspace
from recmill.data.text.kernel import new_workspace
from recmill.data.text.reference import Row, read_row
from recmill.settings.columns import ROLE_KINDS, Column, Kind, Schema, TimeFormat, TimePart
from recmill.settings.criteo import CRITEO, CRITEO_UNLABELLED
from recmill.settings.data import BadRowPolicy
from recmill.settings.encoding import Encoding


def schema_of(*columns: Column, separator: str = ",", name: str = "small") -> Schema:
    return Schema(name=name, separator=separator, columns=columns)


LABEL = Column(name="clicked", role="label", kind="int")
ANSWER = Column(
    name="answer", role="label", kind="string", positive=("yes", "buy", 3, "longer than thirty-two bytes by far")
)
STARS = Column(name="stars", role="label", kind="float", positive=">= 4")
BOUGHT = Column(name="bought", role="label", kind="int", positive=(2, 12345678901234567, -1))
WEIGHT = Column(name="weight", role="weight", kind="float")
TIMES = Column(name="times", role="weight", kind="int")
PRICE = Column(name="price", role="dense", kind="float")
COUNT = Column(name="count", role="dense", kind="int")
CITY = Column(name="city", role="category", kind="string")
SHOP = Column(name="shop", role="category", kind="int")
DEVICE = Column(name="device", role="category", kind="hex")
NOTE = Column(name="note", role="ignored")
TAGS = Column(name="tags", role="category", kind="string", inner_separator="|", max_values=3)
SHOPS = Column(name="shops", role="category", kind="int", inner_separator=";", max_values=2)
DEVICES = Column(name="devices", role="category", kind="hex", inner_separator="|", max_values=4)


def time_column(time_format: str, role: str = "time", name: str = "when") -> Column:
    return Column(name=name, role=role, kind="time", time_format=time_format)


def part_of(source: Column, part: str) -> Column:
    role = "dense" if part in ("days", "age") else "category"
    return Column(name=f"{source.name}_{part}", role=role, source=source.name, part=part)


TIME_FORMATS = get_args(TimeFormat)
PARTS = tuple(part for part in get_args(TimePart) if part != "age")  # an age needs two times
MIXED = schema_of(LABEL, PRICE, CITY, SHOP, NOTE, DEVICE, COUNT, name="mixed")
UNLABELLED = schema_of(CITY, DEVICE, COUNT, NOTE, PRICE, SHOP, separator="|", name="unlabelled")
SINGLE = [schema_of(c, separator="\t", name=f"only-{c.name}") for c in (LABEL, PRICE, COUNT, CITY, SHOP, DEVICE, NOTE)]
ENDING_IN_TEXT = [schema_of(LABEL, SHOP, last, name=f"last-{last.name}") for last in (PRICE, CITY, NOTE)]
QUOTED = MIXED.with_({"name": "quoted", "quoted": True})
SEVERAL = schema_of(LABEL, TAGS, DEVICE, DEVICES, COUNT, SHOPS, CITY, name="several")
RULED = [schema_of(COUNT, label, CITY, name=f"label-{label.name}") for label in (ANSWER, STARS, BOUGHT)]
WEIGHTED = [schema_of(CITY, LABEL, weight, COUNT, name=f"weight-{weight.name}") for weight in (WEIGHT, TIMES)]
TIMED = [
    schema_of(
        LABEL,
        part_of(time, "weekday"),
        COUNT,
        PRICE,
        time,
        SHOP,
        *(part_of(time, part) for part in PARTS[2:]),
        CITY,
        part_of(time, "hour"),
        PRICE.with_({"name": "cost"}),
        name=f"time-{time.time_format}-{time.role}",
    )
    for time in map(time_column, TIME_FORMATS, ("time", "ignored", "time", "ignored", "time"))
]
AGED = [
    schema_of(
        *(LABEL, part_of(signup, "age"), signup, COUNT, seen, part_of(signup, "weekday"), part_of(seen, "days")),
        name=f"age-{seen.time_format}-{signup.time_format}",
    )
    for seen, signup in zip(
        map(time_column, TIME_FORMATS),
        (time_column(each, "ignored", "signup") for each in (*TIME_FORMATS[1:], "iso")),
        strict=True,
    )
]
FIXED_SCHEMAS = [
    *AGED,
    *TIMED,
    *WEIGHTED,
    CRITEO,
    MIXED,
    UNLABELLED,
    CRITEO_UNLABELLED,
    QUOTED,
    SEVERAL,
    *SINGLE,
    *ENDING_IN_TEXT,
    *RULED,
]

_POSITIVES = {
    "int": (None, 1, (0, 3), ">= 2", "< -5"),
    "float": (0.5, "-3", ("5", 0.25, 7), ">.5", "<= 0"),
    "string": ("Oslo", ("a",), ("a", 0, 7), "é"),
}

ONLY_ONE = ("label", "weight", "time")


def _label_of(draw: st.DrawFn, name: str, kind: Kind | None) -> Column:
    return Column(name=name, role="label", kind=kind, positive=draw(st.sampled_from(_POSITIVES[str(kind)])))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """Any few columns, at most one of them a label."""
    pairs = draw(st.lists(st.sampled_from(list(ROLE_KINDS)), min_size=1, max_size=6))
    roles = [role for role, _ in pairs]
    kept = [(role, kind) for i, (role, kind) in enumerate(pairs) if role not in ONLY_ONE or role not in roles[:i]]
    columns = [
        _label_of(draw, f"c{i}", kind) if role == "label" else Column(name=f"c{i}", role=role, kind=kind)
        for i, (role, kind) in enumerate(kept)
    ]
    several = {"inner_separator": draw(st.sampled_from("^~")), "max_values": draw(st.integers(1, 4))}
    columns = [c.with_(several) if c.role == "category" and draw(st.booleans()) else c for c in columns]
    columns = [
        c.with_({"time_format": draw(st.sampled_from(TIME_FORMATS))}) if c.kind == "time" else c for c in columns
    ]
    for time in [column for column in columns if column.kind == "time"]:
        for part in draw(st.lists(st.sampled_from(PARTS), unique=True, max_size=3)):
            columns.insert(draw(st.integers(0, len(columns))), part_of(time, part))
    schema = schema_of(*columns, separator=draw(st.sampled_from("\t,;| x")))
    return schema.with_({"quoted": draw(st.booleans())})


# The neighbours of every range of characters that the kernel tells apart, and the ones with a meaning.
TELLING_BYTES = b'0123456789abcdefABCDEF/:@G`g-+.eE \t,;|x"\r\n\0\x80\xb0\xe1\xff_'

_INTEGERS = (b"7", b"-1", b"1234567", b"12345678", b"123456789", b"-99999999", b"1234567890123456", b"-0", b"007")
_WIDE_INTEGERS = (b"12345678901234567", b"-9223372036854775807", b"9223372036854775807", b"0" * 30 + b"5")
_FLOATS = (b"0.5", b"-3", b"5.", b".25", b"-.125", b"-0.0", b"123456789.123456", b"0.00000000000001", b"0")
_WIDE_FLOATS = (
    b"0.000000000000001",
    b"1e5",
    b"-2.5E-3",
    b"0.1234567890123456789",
    b"9" * 30,
    b"1e-400",
    b"4.9e-324",
    b"1.5e+10",
)
_STRINGS = (
    b"Oslo",
    b"a",
    b"San Francisco",
    b"\xc3\xa9",
    b"0",
    b"#" * 31,
    b"#" * 32,
    b"longer than thirty-two bytes by far",
)

_FIELDS: dict[tuple[str, str | None], tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]] = {
    # plain; right but not for the kernel; wrong
    ("label", "int"): (
        (b"0", b"1", b"1"),
        (b"true", b"False", b"TRUE", b"fALSE"),
        (b"", b"2", b"-", b"00", b"1.0", b"tru"),
    ),
    ("label", "float"): (_FLOATS, _WIDE_FLOATS, (b"", b".", b"nan", b"yes")),
    ("label", "string"): ((*_STRINGS, b"yes", b"buy", b"3"), (), (b"", b"\0")),
    ("weight", "int"): ((b"0", b"7", b"12345678", b"-0"), (b"1234567890123456789",), (b"", b"-1", b"1.5", b"9" * 19)),
    ("weight", "float"): ((b"0", b"0.5", b"3", b"-0.0"), (b"1e5", b"1e-400"), (b"", b"-1", b"1e39", b"nan", b"inf")),
    ("dense", "int"): (_INTEGERS, _WIDE_INTEGERS, (b"--1", b"1.5", b"+1", b"-", b"9" * 19, b"-9223372036854775808")),
    ("dense", "float"): (_FLOATS, _WIDE_FLOATS, (b".", b"-", b"inf", b"nan", b"1e999", b"1e", b"0x1p3", b"1.2.3")),
    ("category", "hex"): (
        (b"0badf00d", b"DEADBEEF", b"00000000", b"fFfFfFfF"),
        (),
        (b"0badf00", b"0badf00d0", b"0badfo0d"),
    ),
    ("category", "int"): (_INTEGERS, _WIDE_INTEGERS, (b"9223372036854775808", b"-9223372036854775808", b"1e3", b"x")),
    ("category", "string"): (_STRINGS, (), (b"nul\0", b"\0")),
    ("ignored", None): ((*_STRINGS, b"nan"), (), (b"\0",)),
}


_WRONG_TIMES = (b"2023-02-29", b"2024-13-01", b"20230229", b"24010124", b"0000-01-01", b"9" * 17, b"-", b"1.2.3")
_TIMES: dict[str, tuple[tuple[bytes, ...], tuple[bytes, ...]]] = {
    # plain; right but not for the kernel
    "iso": (
        (
            *(b"2024-02-29", b"2024-05-31 23:59:59.75", b"1969-12-31T23:59:59", b"0001-01-01", b"9999-12-31 23:59"),
            *(b"2000-01-01T00:00:00+02:30", b"1999-12-31 22:01Z", b"2024-01-01T00:00:00.123456-23:59"),
        ),
        (b"2024-05-31T23:59:59,5Z", b"2024-05-31 23:59+02", b"2024-05-31 23:59-0230"),
    ),
    "epoch_s": ((b"0", b"1700000000", b"-1", b"253402300799", b"-62135596800"), (b"1700000000.75", b"-0.5", b"1.")),
    "epoch_ms": ((b"0", b"1700000000999", b"-1", b"253402300799999"), (b"1700000000.75", b"-0.5", b"0" * 20)),
    "YYMMDDHH": ((b"14102100", b"24022923", b"00010100", b"99123123"), ()),
    "YYYYMMDD": ((b"20240229", b"19691231", b"00010101", b"99991231"), ()),
}


def _plain_fields(column: Column) -> tuple[bytes, ...]:
    return _TIMES[str(column.time_format)][0] if column.kind == "time" else _FIELDS[column.role, column.kind][0]


def _odd_fields(column: Column) -> tuple[bytes, ...]:
    if column.kind == "time":
        return *_TIMES[str(column.time_format)][1], *_WRONG_TIMES
    _, wide, wrong = _FIELDS[column.role, column.kind]
    return *wide, *wrong


def plain_field(random: Random, column: Column) -> bytes:
    """A field that the kernel accepts."""
    may_be_missing = column.role not in ("label", "weight")
    if may_be_missing and random.random() < 0.15:
        return b""
    if column.inner_separator is not None:
        inner, alone = column.inner_separator.encode(), column.with_({"inner_separator": None})
        return inner.join(plain_field(random, alone).replace(inner, b"_") for _ in range(random.randrange(6)))
    if column.kind == "hex" and random.random() < 0.7:
        return b"%08x" % random.getrandbits(32)
    if column.kind == "int" and column.role not in ONLY_ONE and random.random() < 0.5:
        return b"%d" % random.randint(-(10 ** random.randint(0, 16)) + 1, 10 ** random.randint(0, 16) - 1)
    return random.choice(_plain_fields(column))


def odd_field(random: Random, column: Column) -> bytes:
    """A field with one byte changed, one the kernel does not accept, or one of another kind."""
    field = bytearray(plain_field(random, column))
    if field and random.random() < 0.6:
        field[random.randrange(len(field))] = random.choice(TELLING_BYTES)
        return bytes(field)
    odd = _odd_fields(column)
    if column.inner_separator is not None:
        odd += (bytes(field) + column.inner_separator.encode() + random.choice(odd),) if odd else ()
        odd += (column.inner_separator.encode() * 3, b"-9223372036854775806")
    other = random.choice(_FIELDS[random.choice(list(_FIELDS))][0])
    return random.choice((*odd, other))


def plain_line(random: Random, schema: Schema) -> bytes:
    separator = schema.separator.encode()
    fields = [plain_field(random, column).replace(separator, b"_") for column in schema.fields]
    return separator.join(fields)


def quoted_field(random: Random, field: bytes, separator: bytes) -> bytes:
    """A field in quotes, with a separator or a doubled quote inside now and then, and a damaged one rarely."""
    inside = field.replace(b'"', b'""') + random.choice((b"", b"", separator, b'""', separator + b'""'))
    return b'"' + inside + random.choice((b'"', b'"', b'"', b"", b'" '))


def odd_line(random: Random, schema: Schema) -> bytes:
    """A line with one odd field, a few changed bytes, a field too many or too few, or another line end."""
    if schema.quoted and random.random() < 0.5:
        return _line_with_quotes(random, schema)
    line = bytearray(plain_line(random, schema))
    separator = schema.separator.encode()
    change = random.randrange(8)
    if change > 3:
        fields = bytes(line).split(separator)
        at = random.randrange(len(fields))
        fields[at] = odd_field(random, schema.fields[at])
        return separator.join(fields)
    if change == 0:
        return random.choice((bytes(line) + separator, bytes(line).partition(separator)[2], separator + bytes(line)))
    if change == 1:
        return bytes(line) + random.choice((b"\r", b"\r\r", b" ", b"\0"))
    if change == 2:
        return bytes(line[: random.randrange(len(line) + 1)])
    for _ in range(random.randint(1, 3)):
        at, byte = random.randrange(len(line) + 1), random.choice(TELLING_BYTES)
        line[at : at + random.randrange(2)] = bytes([byte]) * random.randrange(2)
    return bytes(line)


def _line_with_quotes(random: Random, schema: Schema) -> bytes:
    separator = schema.separator.encode()
    fields = plain_line(random, schema).split(separator)
    return separator.join(quoted_field(random, f, separator) if random.random() < 0.3 else f for f in fields)


def almost_right_text(random: Random, schema: Schema, num_lines: int) -> bytes:
    """Mostly right lines; half the time the last one lacks its newline."""
    odd_frac = random.choice((0.0, 0.1, 0.5))
    lines = [(odd_line if random.random() < odd_frac else plain_line)(random, schema) for _ in range(num_lines)]
    return b"\n".join(lines) + random.choice((b"\n", b""))


def lines_of(text: bytes) -> list[bytes]:
    """The lines of a file: what lies behind the last newline is one only if it is not empty."""
    lines = text.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def accepted_rows(text: bytes, schema: Schema) -> list[Row]:
    verdicts = [read_row(line, schema) for line in lines_of(text)]
    return [verdict for verdict in verdicts if isinstance(verdict, Row)]


def workspace(schema: Schema, num_rows: int) -> Workspace:
    """Room for raw rows, filled with what no row holds."""
    widths = len(schema.dense_names), schema.num_slots, len(schema.fields)
    work = new_workspace(num_rows, *widths, quoted=schema.quoted, has_weight=schema.has_weight)
    work.raw.numbers[:], work.raw.values[:] = 77.0, 77
    return work


def raw_columns(schema: Schema, rows: list[Row]) -> RawColumns:
    raw = RawColumns(
        np.zeros(len(rows), np.float32),
        np.zeros((len(rows), len(schema.dense_names))),
        np.zeros((len(rows), schema.num_slots), np.uint64),
        np.zeros(len(rows) if schema.has_weight else 0, np.float32),
    )
    for at, row in enumerate(rows):
        raw.labels[at] = row.label
        raw.numbers[at] = row.numbers
        raw.values[at] = row.values
        if schema.has_weight:
            raw.weights[at] = row.weight
    return raw


def bits(array: NDArray[np.float64] | NDArray[np.float32]) -> NDArray[np.uint64] | NDArray[np.uint32]:
    """Floats as the words they are, so that NaN equals NaN and −0 differs from 0."""
    words = np.ascontiguousarray(array)
    return words.view(np.uint64) if array.dtype == np.float64 else words.view(np.uint32)


def assert_same_raw(actual: RawColumns, expected: RawColumns) -> None:
    np.testing.assert_array_equal(actual.labels, expected.labels)
    np.testing.assert_array_equal(bits(actual.numbers), bits(expected.numbers))
    np.testing.assert_array_equal(actual.values, expected.values)
    np.testing.assert_array_equal(actual.weights, expected.weights)


def text_reader(schema: Schema, bad_rows: BadRowPolicy = "fail", encoding: Encoding | None = None) -> TextReader:
    return TextReader(schema, encoding or Encoding(), (1_000_003,) * len(schema.category_names), bad_rows)


def new_source(path: Path, text: bytes) -> Source:
    """A fresh file: what an older source of the same name maps is left alone."""
    path.unlink(missing_ok=True)
    path.write_bytes(text)
    return Source(path)


MakeSource = Callable[[bytes], Source]
