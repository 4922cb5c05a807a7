"""How streams end: by their own, closed early, by an error of a reader or a consumer, or before they begin."""

import threading
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from recmill.data.batch import Batch, Cursor, Position
from recmill.data.logs.text_file import Segment
from recmill.data.stream.ahead import Background, ReadAhead
from recmill.data.stream.block import Block
from recmill.data.stream.stream import Order, Part, Stream
from recmill.data.stream.text_reader import TextReader
from recmill.errors import BadRowError, DataError
from tests.data.lines import new_source
from tests.data.numbered_rows import (
    NUM_SHOPS,
    NUMBERED,
    SCHEMA,
    line_of,
    numbers_of,
    read_all,
    reader_of,
    segments_of,
)

pytestmark = pytest.mark.usefixtures("no_thread_stays_behind")


def test_a_stream_left_early_ends_its_threads(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, (400,))
    before = set(threading.enumerate())
    for taken in (0, 1, 3):
        for ahead in (ReadAhead(1, 1), ReadAhead(4, 2), ReadAhead(2, 100), ReadAhead(1, 0), ReadAhead(4, 0)):
            stream = Stream(reader_of(), segments, Order(5, 1, None, 5, 50), ahead=ahead)
            assert len(list(islice(stream, taken))) == taken
            assert ahead.batches == 0 or set(threading.enumerate()) > before
            stream.close()
            assert set(threading.enumerate()) <= before
            assert list(stream) == [], "a closed stream is at its end"
            stream.close()


def test_a_stream_closed_while_its_producer_waits_for_room_ends(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, (400,))
    with Stream(reader_of(), segments, Order(5, 1, None, 5, 50), ahead=ReadAhead(1, 1)) as stream:
        assert isinstance(stream._batches, Background)
        while not stream._batches._ready.full():
            pass
    assert not stream._batches._thread.is_alive()
    assert stream._batches._ready.empty(), "no batch is kept"


def test_a_consumer_that_fails_ends_the_threads(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, (400,))
    before = set(threading.enumerate())

    def fail() -> None:
        with Stream(reader_of(), segments, Order(5, 1, None, 5, 50)) as stream:
            raise ZeroDivisionError(next(stream).num_rows)

    with pytest.raises(ZeroDivisionError):
        fail()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("ahead", [ReadAhead(1, 2), ReadAhead(3, 2), ReadAhead(1, 0), ReadAhead(3, 0)])
@pytest.mark.parametrize("seed", [None, 1])
def test_a_bad_row_arrives_with_file_and_line(tmp_path: Path, seed: int | None, ahead: ReadAhead) -> None:
    segments = segments_of(tmp_path, (50, 80))
    text = segments[1].source.buffer.tobytes().splitlines(keepends=True)
    text[30] = b"1,many,3\n"
    segments[1] = new_source(tmp_path / "day_1", b"".join(text)).whole()
    before = set(threading.enumerate())
    stream = Stream(reader_of(), segments, Order(5, seed, None, 1, 50), ahead=ahead)
    with pytest.raises(BadRowError, match=rf"^{tmp_path / 'day_1'}:31: column count holds 'many': not an integer"):
        list(stream)
    assert set(threading.enumerate()) <= before
    assert list(stream) == []


def test_batches_in_front_of_a_bad_row_still_come(tmp_path: Path) -> None:
    lines = [line_of(i) for i in range(40)]
    lines[25] = b"bad"
    stream = Stream(reader_of(), [new_source(tmp_path / "day_0", b"\n".join(lines)).whole()], Order(4, block_extent=24))
    seen = list[Batch]()
    with pytest.raises(BadRowError, match=r"day_0:26: "):
        seen.extend(stream)
    assert numbers_of(seen) == list(range(4 * len(seen)))
    assert 12 <= 4 * len(seen) <= 25


class _Failing(TextReader):
    def read(self, segments: Sequence[Segment]) -> Block:  # noqa: ARG002
        raise MemoryError("no room for a block")


def test_any_error_of_a_reader_thread_arrives(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, (50,))
    before = set(threading.enumerate())
    with Stream(_Failing(SCHEMA, NUMBERED, (NUM_SHOPS,)), segments, Order(5)) as stream:
        with pytest.raises(MemoryError, match="no room for a block"):
            next(stream)
        assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("epochs", [1, 3, None])
@pytest.mark.parametrize(
    ("text", "why"),
    [(b"", "the files hold no line"), (b"bad\nworse\n", "all lines are bad")],
    ids=["empty", "bad rows alone"],
)
def test_a_split_without_rows_is_refused(tmp_path: Path, text: bytes, why: str, epochs: int | None) -> None:
    segments = [new_source(tmp_path / name, text).whole() for name in ("day_0", "day_1")]
    for order in (Order(5, None, epochs), Order(5, 1, epochs, 3, 2)):
        stream = Stream(reader_of("skip"), segments, order)
        with pytest.raises(DataError, match=rf"^there is no row to read in .*day_0 and 1 more: {why}"):
            next(stream)


def test_no_segments_are_refused() -> None:
    with pytest.raises(DataError, match="there is no row to read"):
        next(Stream(reader_of(), [], Order(5, 1, None)))


def test_a_process_whose_lanes_are_empty_has_no_batches_and_no_complaint(tmp_path: Path) -> None:
    """Two rows for three lanes: the data are small, not absent."""
    segments, order = segments_of(tmp_path, (2,)), Order(6, 1, 1, 3)
    batches = [batch for rank in range(3) for batch in read_all(segments, order, part=Part(rank, 3))]
    assert sorted(numbers_of(batches)) == [0, 1]


def test_a_position_is_where_the_next_row_lies(tmp_path: Path) -> None:
    batches = read_all(segments_of(tmp_path, (10,)), Order(4, block_extent=1 << 20))
    assert [batch.position for batch in batches] == [
        Position((Cursor(0, 0, 4),)),
        Position((Cursor(0, 0, 8),)),
        Position((Cursor(1, 0, 0),)),
    ]
