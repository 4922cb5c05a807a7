"""The kernel and the slow reader agree on every line, bit for bit, and the kernel never reads past its range."""

import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recmill.data.encode.transforms import encode_categories, encode_dense
from recmill.data.logs.text_file import Segment, Source
from recmill.data.text import hashing
from recmill.data.text.fields import MISSING_CATEGORY, RawColumns
from recmill.data.text.kernel import FINISHED, FULL, MAX_LINE_BYTES, ODD_LINE, count_lines, parse_rows
from recmill.data.text.layout import layout_of
from recmill.data.text.reference import BadRow, Row, read_row
from recmill.errors import BadRowError
from recmill.settings.columns import Column, Schema
from recmill.settings.criteo import CRITEO
from tests.data.guarded import GuardedMemory
from tests.data.lines import (
    CITY,
    COUNT,
    FIXED_SCHEMAS,
    LABEL,
    MIXED,
    NOTE,
    PRICE,
    SHOP,
    TELLING_BYTES,
    MakeSource,
    accepted_rows,
    almost_right_text,
    assert_same_raw,
    bits,
    lines_of,
    new_source,
    plain_line,
    raw_columns,
    schema_of,
    schemas,
    text_reader,
    workspace,
)

MISLEADING = b"0123456789abcdef\n1\t2,3\n00000000"

any_text = st.binary(max_size=60) | st.text(alphabet=list(map(chr, TELLING_BYTES)), max_size=60).map(
    lambda text: text.encode("latin-1")
)
seeds = st.integers(0, 2**32 - 1)
fixed_schemas = pytest.mark.parametrize("schema", FIXED_SCHEMAS, ids=lambda schema: schema.name)


@pytest.fixture(scope="module")
def memory() -> GuardedMemory:
    return GuardedMemory()


@pytest.fixture(scope="module")
def make_source(tmp_path_factory: pytest.TempPathFactory) -> MakeSource:
    path = tmp_path_factory.mktemp("text") / "lines"
    return lambda text: new_source(path, text)


def _with_newline(text: bytes) -> bytes:
    return text if text.endswith(b"\n") or not text else text + b"\n"


def _parse(
    buffer: NDArray[np.uint8], start: int, stop: int, schema: Schema, room: int
) -> tuple[RawColumns, list[bytes]]:
    """What the kernel accepts of a range, and the lines it gives back."""
    taken, odd = [workspace(schema, 0).raw], list[bytes]()
    at, status = start, FULL
    while status != FINISHED:
        work, began = workspace(schema, room), at
        count, at, status = parse_rows(buffer, at, stop, layout_of(schema), work)
        raw = work.raw
        assert 0 <= count <= room
        assert start <= at <= stop
        taken.append(raw.rows(0, count))
        if status == FULL:
            assert began < at < stop
        elif status == ODD_LINE:
            line = buffer[at:stop].tobytes().partition(b"\n")[0]
            odd.append(line)
            at += len(line) + 1
    assert at == stop
    return RawColumns._make(map(np.concatenate, zip(*taken, strict=True))), odd


def _assert_kernel_agrees(buffer: NDArray[np.uint8], start: int, stop: int, schema: Schema, room: int) -> None:
    """Every line the kernel accepts is a row of the same bits; whatever is wrong with a line, it gives it back."""
    actual, odd = _parse(buffer, start, stop, schema, room)
    text = buffer[start:stop].tobytes()
    unclaimed, kept = list(odd), list[Row]()
    for line in lines_of(text):
        if unclaimed and line == unclaimed[0]:
            unclaimed.pop(0)
            continue
        verdict = read_row(line, schema)
        assert isinstance(verdict, Row), (line, verdict)
        kept.append(verdict)
    assert not unclaimed
    assert_same_raw(actual, raw_columns(schema, kept))


def _assert_reader_agrees(segment: Segment, text: bytes, schema: Schema) -> None:
    """The reader keeps the rows that the slow one accepts, encoded alike, and stops at the first it does not."""
    reader = text_reader(schema, "skip")
    rows, lines = accepted_rows(text, schema), lines_of(text)
    block = reader.read([segment])
    raw = raw_columns(schema, rows)
    expected = reader.room_for(len(rows))
    encode_dense(raw.numbers, reader.plans.encoder.dense, expected.dense)
    encode_categories(raw.values, reader.plans.encoder.categories, expected.ids)
    np.testing.assert_array_equal(block.columns.labels, raw.labels)
    np.testing.assert_array_equal(bits(block.columns.dense), bits(expected.dense))
    np.testing.assert_array_equal(block.columns.ids, expected.ids)
    assert block.num_skipped == len(lines) - len(rows)

    strict = text_reader(schema, "fail")
    first_bad = next((i for i, line in enumerate(lines, 1) if isinstance(read_row(line, schema), BadRow)), None)
    if first_bad is None:
        assert strict.read([segment]).columns.num_rows == len(lines)
        return
    before = segment.source.buffer[: segment.start].tobytes().count(b"\n")
    with pytest.raises(BadRowError) as caught:
        strict.read([segment])
    assert str(caught.value).startswith(f"{segment.source.path}:{before + first_bad}: ")


# The kernel against the slow reader, in memory that ends where the range ends.


@fixed_schemas
@settings(max_examples=60, deadline=None)
@given(seed=seeds, num_lines=st.integers(1, 40), room=st.sampled_from((1, 2, 7, 512)))
def test_kernel_agrees_on_almost_right_lines(
    memory: GuardedMemory, schema: Schema, seed: int, num_lines: int, room: int
) -> None:
    text = _with_newline(almost_right_text(Random(seed), schema, num_lines))
    _assert_kernel_agrees(memory.hold(text), 0, len(text), schema, room)


@settings(max_examples=300, deadline=None)
@given(schema=schemas(), seed=seeds, num_lines=st.integers(1, 20))
def test_kernel_agrees_for_any_schema(memory: GuardedMemory, schema: Schema, seed: int, num_lines: int) -> None:
    text = _with_newline(almost_right_text(Random(seed), schema, num_lines))
    _assert_kernel_agrees(memory.hold(text), 0, len(text), schema, 5)


@settings(max_examples=500, deadline=None)
@given(schema=schemas(), text=any_text)
@example(schema=MIXED, text=b"\n")
@example(schema=MIXED, text=b"")
def test_kernel_agrees_on_arbitrary_bytes(memory: GuardedMemory, schema: Schema, text: bytes) -> None:
    text = _with_newline(text)
    _assert_kernel_agrees(memory.hold(text), 0, len(text), schema, 3)


@settings(max_examples=500, deadline=None)
@given(schema=st.sampled_from(FIXED_SCHEMAS), seed=seeds)
def test_kernel_looks_at_nothing_outside_its_range(memory: GuardedMemory, schema: Schema, seed: int) -> None:
    random = Random(seed)
    text = _with_newline(almost_right_text(random, schema, random.randint(1, 4)))
    before, behind = (MISLEADING[random.randrange(len(MISLEADING)) :] for _ in range(2))
    alone, odd = _parse(memory.hold(text), 0, len(text), schema, 4)
    surrounded = np.frombuffer(before + text + behind, np.uint8)
    inside, odd_inside = _parse(surrounded, len(before), len(before) + len(text), schema, 4)
    assert_same_raw(inside, alone)
    assert odd_inside == odd


@fixed_schemas
def test_kernel_accepts_every_plain_line(schema: Schema) -> None:
    random = Random(5)
    text = b"".join(plain_line(random, schema) + b"\n" for _ in range(300))
    raw, odd = _parse(np.frombuffer(text, np.uint8), 0, len(text), schema, 300)
    assert odd == []
    assert_same_raw(raw, raw_columns(schema, accepted_rows(text, schema)))


@pytest.mark.skipif(sys.platform != "linux", reason="the guard page is mprotect's")
def test_the_guard_page_guards() -> None:
    """What the tests above rely on: one byte too far is the end of the process."""
    program = """
from recmill.data.text.kernel import count_lines
from tests.data.guarded import GuardedMemory
count_lines(GuardedMemory().hold(b"a\\n"), 0, 3)
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, check=False)
    assert done.returncode == -signal.SIGSEGV, done.stderr.decode()


# The reader, from files.


@fixed_schemas
@settings(max_examples=40, deadline=None)
@given(seed=seeds, num_lines=st.integers(1, 25))
def test_reader_agrees_on_almost_right_lines(
    make_source: MakeSource, schema: Schema, seed: int, num_lines: int
) -> None:
    text = almost_right_text(Random(seed), schema, num_lines)
    _assert_reader_agrees(make_source(text).whole(), text, schema)


@settings(max_examples=200, deadline=None)
@given(schema=schemas(), text=any_text)
def test_reader_agrees_on_arbitrary_bytes(make_source: MakeSource, schema: Schema, text: bytes) -> None:
    _assert_reader_agrees(make_source(text).whole(), text, schema)


@settings(max_examples=100, deadline=None)
@given(schema=st.sampled_from(FIXED_SCHEMAS), seed=seeds)
def test_reader_agrees_on_a_segment_inside_a_file(make_source: MakeSource, schema: Schema, seed: int) -> None:
    random = Random(seed)
    before, text = (_with_newline(almost_right_text(random, schema, random.randint(1, 9))) for _ in range(2))
    source = make_source(before + text + MISLEADING)
    _assert_reader_agrees(Segment(source, len(before), len(before) + len(text)), text, schema)


def test_reader_agrees_on_more_rows_than_its_workspace_holds(make_source: MakeSource) -> None:
    random = Random(1)
    text = b"\n".join(almost_right_text(random, CRITEO, 60).removesuffix(b"\n") for _ in range(40))
    assert len(lines_of(text)) > 2000
    _assert_reader_agrees(make_source(text).whole(), text, CRITEO)


# Why the kernel comes back.


def _status(text: bytes, schema: Schema, room: int) -> tuple[int, int, int]:
    count, at, status = parse_rows(
        np.frombuffer(text, np.uint8), 0, len(text), layout_of(schema), workspace(schema, room)
    )
    return count, at, status


def test_kernel_finishes_with_the_range() -> None:
    schema = schema_of(LABEL, COUNT)
    assert _status(b"", schema, 2) == (0, 0, FINISHED)
    assert _status(b"1,2\n", schema, 2) == (1, 4, FINISHED)
    assert _status(b"1,2\n0,3\n", schema, 2) == (2, 8, FINISHED), "full and finished is finished"


def test_kernel_stops_when_the_columns_are_full() -> None:
    schema = schema_of(LABEL, COUNT)
    assert _status(b"1,2\n0,3\n1,4\n", schema, 2) == (2, 8, FULL)
    assert _status(b"1,2\n", schema, 0) == (0, 0, FULL)


def test_kernel_stops_at_the_first_odd_line() -> None:
    schema = schema_of(LABEL, COUNT)
    assert _status(b"1,2\n0,x\n1,4\n", schema, 9) == (1, 4, ODD_LINE)
    assert _status(b"\n", schema, 9) == (0, 0, ODD_LINE)
    assert _status(b"1,2\n0,12345678901234567\n", schema, 9) == (1, 4, ODD_LINE), "right, but not for the kernel"


def test_kernel_stops_at_a_quote_only_where_fields_may_be_quoted() -> None:
    plain = schema_of(LABEL, CITY)
    quoted = plain.with_({"quoted": True})
    for far in (0, 40, 200):  # in the first 64 bytes that are looked at, and behind them
        text = b"1," + b"z" * far + b'\n0,"a\n1,b\n'
        assert _status(text, plain, 9) == (3, len(text), FINISHED)
        assert _status(text, quoted, 9) == (1, 3 + far, ODD_LINE)


# Single cases that fuzzing meets rarely.


@pytest.mark.parametrize("last", [NOTE, CITY], ids=["ignored", "string"])
@pytest.mark.parametrize("extra", [-1, 0])
def test_the_longest_line(make_source: MakeSource, last: Column, extra: int) -> None:
    schema = schema_of(LABEL, last)
    line = b"1," + b"z" * (MAX_LINE_BYTES + extra - 2)
    assert isinstance(read_row(line, schema), Row if extra < 0 else BadRow)
    assert _status(line + b"\n", schema, 9)[2] == (FINISHED if extra < 0 else ODD_LINE)
    for text in (line, line + b"\n"):
        _assert_reader_agrees(make_source(text).whole(), text, schema)


def test_the_largest_integers_keep_all_their_bits() -> None:
    schema = schema_of(COUNT, SHOP)
    for number in (2**53 + 1, 2**63 - 1, -(2**63) + 1, 10**16 - 1, -(10**16) + 1, 10**15 + 1):
        text = b"%d,%d\n" % (number, number)
        actual, odd = _parse(np.frombuffer(text, np.uint8), 0, len(text), schema, 1)
        rows = accepted_rows(text, schema)
        assert rows == [Row(0.0, (float(number),), (number % 2**64,))]
        assert odd == ([text[:-1]] if abs(number) >= 10**16 else [])
        if not odd:
            assert_same_raw(actual, raw_columns(schema, rows))


@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_floats_are_rounded_as_python_does(memory: GuardedMemory, seed: int) -> None:
    random, schema = Random(seed), schema_of(PRICE)
    digits = [f"{random.getrandbits(60):018}"[: random.randint(1, 18)] for _ in range(50)]
    points = [random.randint(0, len(number)) for number in digits]
    numbers = [random.choice(("", "-")) + n[:p] + "." + n[p:] for n, p in zip(digits, points, strict=True)]
    text = "".join(f"{number}\n" for number in numbers).encode()
    _assert_kernel_agrees(memory.hold(text), 0, len(text), schema, 8)
    assert accepted_rows(text, schema) == [Row(0.0, (float(number),), ()) for number in numbers]


def _string_that_hashes_to(wanted: int, suffix: bytes) -> bytes:
    """Eight bytes and a suffix of one whose XXH64 is given: the hash is run backwards."""
    modulus, p1, p2, p3, p4, p5 = 2**64, *(int(getattr(hashing, f"_P{i}")) for i in range(1, 6))

    def unshift(word: int, by: int) -> int:
        out = word
        for _ in range(64 // by):
            out = word ^ (out >> by)
        return out

    def unmultiply(word: int, factor: int) -> int:
        return word * pow(factor, -1, modulus) % modulus

    def rotate_right(word: int, by: int) -> int:
        return (word >> by | word << (64 - by)) % modulus

    hashed = unshift(unmultiply(unshift(unmultiply(unshift(wanted, 32), p3), 29), p2), 33)
    hashed = rotate_right(unmultiply(hashed, p1), 11) ^ (suffix[0] * p5 % modulus)
    hashed = rotate_right(unmultiply((hashed - p4) % modulus, p1), 27) ^ (p5 + 9)
    word = unmultiply(rotate_right(unmultiply(hashed, p1), 31), p2)
    return word.to_bytes(8, "little") + suffix


def test_a_string_whose_hash_marks_the_missing_one_gives_way() -> None:
    schema = schema_of(CITY)
    candidates = [_string_that_hashes_to(int(MISSING_CATEGORY), bytes([i])) for i in range(33, 127) if i != ord(",")]
    string = next(c for c in candidates if not set(c) & set(b",\n\r\0"))
    assert hashing.xxh64(np.frombuffer(string, np.uint8), 0, len(string), np.uint64(0)) == MISSING_CATEGORY
    assert read_row(string, schema) == Row(0.0, (), (int(MISSING_CATEGORY) + 1,))
    work = workspace(schema, 1)
    parse_rows(np.frombuffer(string + b"\n", np.uint8), 0, len(string) + 1, layout_of(schema), work)
    assert work.raw.values[0, 0] == MISSING_CATEGORY + np.uint64(1)


def test_a_missing_category_is_what_no_value_is() -> None:
    schema = schema_of(SHOP)
    assert read_row(b"", schema) == Row(0.0, (), (int(MISSING_CATEGORY),))
    assert isinstance(read_row(b"-9223372036854775808", schema), BadRow)


# Counting lines.


@settings(max_examples=500, deadline=None)
@given(
    text=st.binary(max_size=80) | st.lists(st.sampled_from(b"\n\x0b\x8a\x09\0\xff"), max_size=80).map(bytes),
    data=st.data(),
)
def test_count_lines_counts_newlines(memory: GuardedMemory, text: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    assert count_lines(np.frombuffer(text, np.uint8), start, stop) == text.count(b"\n", start, stop)
    assert count_lines(memory.hold(text), start, len(text)) == text.count(b"\n", start)


def test_count_lines_of_a_source(make_source: MakeSource) -> None:
    source: Source = make_source(b"\n" * 100_003)
    assert count_lines(source.buffer, 0, source.num_bytes) == 100_003
