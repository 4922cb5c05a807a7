"""Text is read the same however it is cut, by however many threads."""

import gzip
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.batch import Columns
from recmill.data.logs.text_file import Segment, Source
from recmill.data.stream.block import Block
from recmill.data.stream.text_reader import TextReader, read_all
from recmill.data.text.kernel import WORKSPACE_ROWS
from recmill.errors import BadRowError, ConfigError
from recmill.settings.columns import Schema
from recmill.settings.criteo import CRITEO
from recmill.settings.encoding import Encoding
from tests.data.lines import (
    COUNT,
    LABEL,
    MIXED,
    SHOP,
    accepted_rows,
    almost_right_text,
    bits,
    lines_of,
    new_source,
    plain_line,
    schema_of,
    text_reader,
)

SMALL = schema_of(LABEL, COUNT, SHOP)


def _assert_same(actual: Block, expected: Block) -> None:
    np.testing.assert_array_equal(bits(actual.columns.dense), bits(expected.columns.dense))
    np.testing.assert_array_equal(actual.columns.ids, expected.columns.ids)
    np.testing.assert_array_equal(actual.columns.labels, expected.columns.labels)
    assert actual.num_skipped == expected.num_skipped


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reader")


def _sources(directory: Path, texts: list[bytes]) -> list[Segment]:
    return [new_source(directory / str(i), text).whole() for i, text in enumerate(texts)]


@pytest.mark.parametrize("schema", [CRITEO, MIXED, SMALL], ids=lambda schema: schema.name)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    threads=st.integers(1, 4),
    chunk_bytes=st.one_of(st.integers(1, 60), st.integers(60, 3000)),
)
def test_read_all_equals_read(
    directory: Path, schema: Schema, seed: int, sizes: list[int], threads: int, chunk_bytes: int
) -> None:
    random = Random(seed)
    texts = [almost_right_text(random, schema, size) if size else b"" for size in sizes]
    segments = _sources(directory, texts)
    reader = text_reader(schema, "skip")
    expected = reader.read(segments)
    assert expected.columns.num_rows == sum(len(accepted_rows(text, schema)) for text in texts)
    assert expected.columns.num_rows + expected.num_skipped == sum(len(lines_of(text)) for text in texts)
    _assert_same(read_all(reader, segments, threads=threads, chunk_bytes=chunk_bytes), expected)


def test_read_all_of_many_rows(directory: Path) -> None:
    random = Random(2)
    lines = [plain_line(random, CRITEO) for _ in range(5 * WORKSPACE_ROWS + 1)]
    segments = _sources(directory, [b"\n".join(lines)])
    reader = text_reader(CRITEO)
    expected = reader.read(segments)
    assert expected.columns.num_rows == len(lines)
    for threads, chunk_bytes in ((1, 1 << 30), (2, 100_000), (3, 7_777)):
        _assert_same(read_all(reader, segments, threads=threads, chunk_bytes=chunk_bytes), expected)


def test_segments_are_read_in_their_order(directory: Path) -> None:
    first, second = _sources(directory, [b"1,1,1\n1,2,2\n", b"1,3,3\n1,4,4"])
    reader = text_reader(SMALL, encoding=Encoding(dense="identity"))
    assert reader.read([second, first, second]).columns.dense[:, 0].tolist() == [3, 4, 1, 2, 3, 4]
    assert read_all(reader, [second, first], threads=2, chunk_bytes=3).columns.dense[:, 0].tolist() == [3, 4, 1, 2]


def test_nothing_gives_no_rows(directory: Path) -> None:
    reader = text_reader(SMALL)
    for segments in ([], _sources(directory, [b""]), _sources(directory, [b"", b""])):
        for block in (reader.read(segments), read_all(reader, segments, threads=2)):
            assert block.columns.num_rows == 0
            assert block.num_skipped == 0


def test_only_bad_rows_give_no_rows(directory: Path) -> None:
    segments = _sources(directory, [b"x\ny\nz", b"w\n"])
    reader = text_reader(SMALL, "skip")
    for block in (reader.read(segments), read_all(reader, segments, threads=2, chunk_bytes=2)):
        assert block.columns.num_rows == 0
        assert block.num_skipped == 4


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_first_bad_row_is_named_whoever_meets_it(directory: Path, threads: int) -> None:
    good, bad = b"1,2,3\n" * 50, b"1,two,3\n"
    segments = _sources(directory, [good, good + bad + good + bad])
    message = rf"{segments[1].source.path}:51: column count holds 'two': not an integer of 64 bits \(fix the file"
    with pytest.raises(BadRowError, match=message):
        read_all(text_reader(SMALL), segments, threads=threads, chunk_bytes=64)


def test_a_bad_line_leaves_no_trace_in_the_rows_beside_it(directory: Path) -> None:
    reader = text_reader(SMALL, "skip", Encoding(dense="identity", dense_missing=-5.0))
    segments = _sources(directory, [b"1,8,8\n1,9,x\n0,,\n0,7,y\n1,12345678901234567,3"])
    block = reader.read(segments)
    assert block.columns.dense[:, 0].tolist() == [8, -5, np.float32(12345678901234567)]
    assert block.columns.ids[:, 0].tolist() == [9, 0, 4]
    assert block.columns.labels.tolist() == [1, 0, 1]
    assert block.num_skipped == 2


def test_rows_without_a_label_have_label_zero(directory: Path) -> None:
    columns = text_reader(schema_of(COUNT)).read(_sources(directory, [b"5\n\n99999999999999999\n6"])).columns
    assert columns.labels.tolist() == [0, 0, 0, 0]


def test_read_into_fills_from_a_row_on(directory: Path) -> None:
    segment = _sources(directory, [b"1,5,5\nx\n1,6,6\n"])[0]
    reader = text_reader(SMALL, "skip", Encoding(dense="identity"))
    out: Columns = reader.room_for(5)
    for column in out:
        column.fill(-1)
    assert reader.read_into(segment, out, 2) == (4, 1)
    assert out.dense[:, 0].tolist() == [-1, -1, 5, 6, -1]
    assert out.ids[:, 0].tolist() == [-1, -1, 6, 7, -1]
    assert out.labels.tolist() == [-1, -1, 1, 1, -1]


def test_a_table_too_small_is_refused_before_reading() -> None:
    with pytest.raises(ConfigError, match=r"^the table of shop has 1 rows; it needs at least 2$"):
        TextReader(SMALL, Encoding(), (1,))


def test_a_file_may_be_packed(tmp_path: Path) -> None:
    path = tmp_path / "day_0.gz"
    path.write_bytes(gzip.compress(b"1,5,5\n0,x,1\n"))
    with pytest.raises(BadRowError, match=rf"^{path}:2: column count holds 'x'"):
        text_reader(SMALL).read([Source(path).whole()])
