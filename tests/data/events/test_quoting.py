"""Fields of event files, against a reader that was written from RFC 4180 alone and against Python's csv module."""

import csv
import random
from pathlib import Path

import pytest

from recmill.data.events.interactions import read_text
from recmill.data.events.opening import open_parts
from recmill.data.events.schema import split_fields
from recmill.errors import DataError
from recmill.settings.events import EventSchema

PIECES = (
    "a",
    "b",
    "1",
    '"',
    '""',
    ",",
    "\t",
    " ",
    "\r",
    "é",
    "\ufeff",
    "\x85",
    "\u2028",
    "\x0b",
    "\x1c",
    "\0",
    "'",
    "\\",
    "::",
    ";",
)
Rows = tuple[list[tuple[str, str]], int]


def fields_by_rfc(line: str, separator: str) -> list[str] | None:
    """The fields; None if quotes do not fit."""
    fields, rest = list[str](), line
    while True:
        if not rest.startswith('"'):
            field, found, rest = rest.partition(separator)
        else:
            field, rest = "", rest[1:]
            while True:
                before, quote, rest = rest.partition('"')
                field += before
                if not quote:
                    return None
                if not rest.startswith('"'):
                    break
                field, rest = field + '"', rest[1:]
            found = separator if rest else ""
            if not rest.startswith(found):
                return None
            rest = rest.removeprefix(found)
        fields.append(field)
        if not found:
            return fields


def expected(body: bytes, schema: EventSchema) -> Rows:
    """Users and items, and how many lines are bad."""
    rows, num_bad = list[tuple[str, str]](), 0
    for raw in body.split(b"\n"):
        line = raw.removesuffix(b"\r").decode()
        if not line:
            continue
        fields = fields_by_rfc(line, schema.separator) if schema.quoted else line.split(schema.separator)
        if fields is None or len(fields) != 3 or not all(fields[:2]):
            num_bad += 1
        else:
            rows.append((fields[0], fields[1]))
    return rows, num_bad


def make_field(draw: random.Random, *, quoted: bool) -> str:
    text = draw.choice(("", "a", "b", "c")) + "".join(draw.choices(PIECES, k=draw.choice((0, 1, 1, 2, 3))))
    if not quoted or draw.random() < 0.5:
        return text
    return f'"{text}"' if draw.random() < 0.1 else '"{}"'.format(text.replace('"', '""'))


def find_difference(seed: int, path: Path) -> str | None:
    """A file that is read in parts, and what was expected of it if that was something else."""
    draw = random.Random(seed)
    quoted, header = draw.random() < 0.6, draw.random() < 0.5
    separator = draw.choice((",", "\t", ";", " ") if quoted else (",", "\t", " ", "::"))
    kinds = {"user_kind": "string", "item_kind": "string"}
    schema = EventSchema(separator=separator, header=header, quoted=quoted, columns=("user", "item", "x")).with_(kinds)
    end = draw.choice(("\n", "\r\n"))
    widths = draw.choices((3, 2, 4), (0.96, 0.02, 0.02), k=draw.randint(1, 4))
    lines = [separator.join(make_field(draw, quoted=quoted) for _ in range(width)) for width in widths]
    body = (end.join(lines) + draw.choice(("", end))).encode()
    path.write_bytes((separator.join(schema.columns) + end).encode() * header + body)
    want = expected(body if header else body.removeprefix("\ufeff".encode()), schema)
    rows, num_bad = list[tuple[str, str]](), 0
    try:
        found, parts = open_parts((path,), (schema,), draw.choice((1, 7, 1 << 20)))
    except DataError:  # without a header, the first line is to be an event
        first = body.removeprefix("\ufeff".encode()).split(b"\n")[0]
        return None if not header and not expected(first, schema)[0] else f"{seed}: {path.read_bytes()!r} is rejected"
    for part in parts:
        frame, bad = read_text(part, found, ("user", "item"), "skip")
        rows, num_bad = rows + frame.rows(), num_bad + bad.num_bad
    return None if (rows, num_bad) == want else f"{seed}: {path.read_bytes()!r} is {rows}, {num_bad}; expected {want}"


def test_files_are_read_as_rfc_4180_says(tmp_path: Path) -> None:
    found = (find_difference(seed, tmp_path / "events.csv") for seed in range(2000))
    assert [each for each in found if each] == []


@pytest.mark.slow
def test_many_files_are_read_as_rfc_4180_says(tmp_path: Path) -> None:
    found = (find_difference(seed, tmp_path / "events.csv") for seed in range(10_000, 50_000))
    assert [each for each in found if each] == []


def test_a_field_too_many_does_not_make_up_for_one_that_is_missing(tmp_path: Path) -> None:
    path, kinds = tmp_path / "events.tsv", {"user_kind": "string", "item_kind": "string"}
    path.write_text("user\titem\tx\na\tb\tc\na\tb\na\tb\tc\t\n")
    schema = EventSchema(separator="\t", columns=("user", "item", "x")).with_(kinds)
    found, [part] = open_parts((path,), (schema,), 1 << 20)
    frame, bad = read_text(part, found, ("user", "item"), "skip")
    assert (frame.rows(), bad.num_bad) == ([("a", "b")], 2)


def test_whatever_csv_writes_is_read_back(tmp_path: Path) -> None:
    draw, path = random.Random(0), tmp_path / "rows.csv"
    schema = EventSchema(quoted=True, columns=("user", "item", "x"))
    for _ in range(5000):
        fields = [make_field(draw, quoted=False) for _ in range(3)]
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="").writerow(fields)
        assert split_fields(path.read_bytes().decode(), schema) == fields


def test_a_first_line_with_an_open_quote_is_rejected_by_name(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text('"a,b,c\n')
    schema = EventSchema(
        quoted=True, header=False, columns=("user", "item", "x"), user_kind="string", item_kind="string"
    )
    with pytest.raises(DataError, match=r"events\.csv:1: .*is not what is expected"):
        open_parts((path,), (schema,), 100)
