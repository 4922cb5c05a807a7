"""Batches in an order that depends on seed, epoch and files alone; every row once an epoch; nothing left behind."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.ahead import Background, ReadAhead
from recmill.data.batch import Batch, Cursor, Position
from recmill.data.encode import Encoding
from recmill.data.reader import BadRowPolicy, Block, TextReader
from recmill.data.source import Segment
from recmill.data.split import whole
from recmill.data.stream import Blocks, Order, Part, Stream
from recmill.errors import BadRowError, DataError
from tests.data.lines import COUNT, LABEL, SHOP, new_source, schema_of
from tests.laws.resume import assert_resumes_everywhere, assert_same_batches

# A row is known by its count, which no other row has; the label and the shop follow from it.
SCHEMA = schema_of(LABEL, COUNT, SHOP)
NUMBERED = Encoding(dense="identity")
NUM_SHOPS = 37


def _line(number: int) -> bytes:
    return b"%d,%d,%d" % (number % 2, number, number * 7)


def _reader(bad_rows: BadRowPolicy = "fail") -> TextReader:
    return TextReader(SCHEMA, NUMBERED, (NUM_SHOPS,), bad_rows)


def _segments(
    directory: Path, sizes: Sequence[int], *, bad_every: int = 0, newline_at_end: bool = True
) -> list[Segment]:
    """Files of so many rows, numbered on from file to file; before every so many-th row a line that is none."""
    segments, first = list[Segment](), 0
    for i, size in enumerate(sizes):
        lines = list[bytes]()
        for number in range(first, first + size):
            if bad_every and number % bad_every == 0:
                lines.append(b"bad line")
            lines.append(_line(number))
        first += size
        text = b"".join(line + b"\n" for line in lines)
        segments.append(whole(new_source(directory / f"day_{i}", text if newline_at_end else text[:-1])))
    return segments


def _numbers(batches: Sequence[Batch]) -> list[int]:
    """Which rows the batches hold, having checked that their other columns are of the same row."""
    numbers = np.concatenate([np.empty(0), *(batch.columns.dense[:, 0] for batch in batches)]).astype(int).tolist()
    ids = [row for batch in batches for row in batch.columns.ids[:, 0].tolist()]
    labels = [label for batch in batches for label in batch.columns.labels.tolist()]
    assert ids == [number * 7 % (NUM_SHOPS - 1) + 1 for number in numbers]
    assert labels == [number % 2 for number in numbers]
    return list(numbers)


def _all(
    segments: Sequence[Segment],
    order: Order,
    *,
    reader: TextReader | None = None,
    part: Part = Part(),  # noqa: B008 frozen
    ahead: ReadAhead = ReadAhead(),  # noqa: B008 frozen
) -> list[Batch]:
    with Stream(reader or _reader(), segments, order, part=part, ahead=ahead) as stream:
        return list(stream)


def _epoch(segments: Sequence[Segment], order: Order, epoch: int) -> list[int]:
    """The numbers of one epoch's rows, in their order."""
    start = Position((Cursor(epoch),) * len(order.lanes))
    with Stream(_reader(), segments, replace(order, epochs=epoch + 1), start=start) as stream:
        return _numbers(list(stream))


@pytest.fixture(autouse=True)
def _no_thread_stays_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stream")


# Law resume.

RESUMED_ORDERS = {
    "sequential": Order(7),
    "shuffled": Order(16, seed=3, num_lanes=4, block_extent=100),
    "across epochs": Order(16, seed=3, epochs=3, num_lanes=4, block_extent=150),
    "uneven lanes": Order(11, seed=5, epochs=2, num_lanes=3, block_extent=64),
    "blocks of a few bytes": Order(10, seed=5, epochs=2, num_lanes=2, block_extent=8),
    "one block a lane": Order(13, seed=6, epochs=2, num_lanes=5, block_extent=1 << 20),
    "batch larger than all": Order(1000, seed=1, epochs=3, num_lanes=4, block_extent=100),
}
every_order = pytest.mark.parametrize("order", RESUMED_ORDERS.values(), ids=RESUMED_ORDERS.keys())


@every_order
@pytest.mark.parametrize("sizes", [(90,), (40, 0, 1, 35), (1, 2, 1, 1, 3)], ids=["one file", "several", "tiny"])
@pytest.mark.parametrize("bad_every", [0, 5], ids=["clean", "bad rows"])
def test_a_stream_resumes_everywhere(tmp_path: Path, order: Order, sizes: tuple[int, ...], bad_every: int) -> None:
    segments = _segments(tmp_path, sizes, bad_every=bad_every)
    assert_resumes_everywhere(lambda at: Stream(_reader("skip"), segments, order, start=at))


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_every_process_resumes_everywhere(tmp_path: Path, rank: int) -> None:
    segments = _segments(tmp_path, (50, 30), bad_every=9)
    order = Order(15, seed=2, epochs=2, num_lanes=7, block_extent=60)
    assert_resumes_everywhere(lambda at: Stream(_reader("skip"), segments, order, start=at, part=Part(rank, 3)))


def test_an_endless_stream_resumes_everywhere(tmp_path: Path) -> None:
    segments = _segments(tmp_path, (20, 13), bad_every=7)
    order = Order(9, seed=2, epochs=None, num_lanes=2, block_extent=80)
    assert_resumes_everywhere(lambda at: Stream(_reader("skip"), segments, order, start=at), num_batches=25)


@pytest.mark.parametrize("where", ["first", "last", "everywhere but one"])
@pytest.mark.parametrize(("seed", "num_lanes"), [(None, 1), (4, 2)])
def test_blocks_of_bad_rows_alone_are_counted_once(
    tmp_path: Path, where: str, seed: int | None, num_lanes: int
) -> None:
    bad, good = b"bad line\n" * 30, b"".join(_line(i) + b"\n" for i in range(20))
    text = {"first": bad + good, "last": good + bad, "everywhere but one": bad + _line(0) + b"\n" + bad}[where]
    segments = [whole(new_source(tmp_path / "day_0", text))]
    order = Order(4, seed, epochs=2, num_lanes=num_lanes, block_extent=40)
    assert_resumes_everywhere(lambda at: Stream(_reader("skip"), segments, order, start=at))
    with Stream(_reader("skip"), segments, order) as stream:
        num_skipped = sum(batch.num_skipped for batch in stream)
        assert num_skipped + stream.trailing_skipped == 2 * text.count(b"bad line")


def test_a_stream_opened_at_its_end_is_empty(tmp_path: Path) -> None:
    segments, order = _segments(tmp_path, (30,)), Order(7, seed=1, epochs=2, num_lanes=2, block_extent=50)
    last = _all(segments, order)[-1]
    with Stream(_reader(), segments, order, start=last.position) as stream:
        assert list(stream) == []


# Every row once.


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 25), min_size=1, max_size=4).filter(any),
    num_lanes=st.integers(1, 6),
    extra=st.integers(0, 30),
    block_bytes=st.integers(1, 400),
    seed=st.one_of(st.none(), st.integers(0, 99)),
    bad_every=st.sampled_from((0, 1, 4)),
    newline_at_end=st.booleans(),
)
def test_every_row_of_every_epoch_comes_once(
    directory: Path,
    sizes: list[int],
    num_lanes: int,
    extra: int,
    block_bytes: int,
    seed: int | None,
    bad_every: int,
    newline_at_end: bool,
) -> None:
    segments = _segments(directory, sizes, bad_every=bad_every, newline_at_end=newline_at_end)
    order = Order(num_lanes + extra, seed, 2, num_lanes, block_bytes)
    with Stream(_reader("skip"), segments, order) as stream:
        batches = list(stream)
        num_skipped = sum(batch.num_skipped for batch in batches) + stream.trailing_skipped
        assert stream.extent == sum(segment.num_bytes for segment in segments)
    assert sorted(_numbers(batches)) == sorted([*range(sum(sizes))] * 2)
    if bad_every == 0:
        for epoch in range(2):
            assert sorted(_epoch(segments, order, epoch)) == list(range(sum(sizes)))
    assert all(0 < batch.num_rows <= order.global_batch for batch in batches)
    assert num_skipped == (2 * len(range(0, sum(sizes), bad_every)) if bad_every else 0)


def test_no_lane_is_left_unread_by_a_small_batch(tmp_path: Path) -> None:
    """A lane whose share of a batch is no row must not keep its rows."""
    segments = _segments(tmp_path, (100,))
    batches = _all(segments, Order(3, seed=1, num_lanes=7, block_extent=50))
    assert sorted(_numbers(batches)) == list(range(100))


def test_segments_may_be_parts_of_files(tmp_path: Path) -> None:
    first, second = _segments(tmp_path, (40, 40))
    middle = second.source.line_start(second.num_bytes // 2)
    parts = [first.part(0, 100), Segment(second.source, middle, second.stop)]
    expected = [n for p in parts for n in _numbers([Batch(_reader().read([p]).columns, Position(()))])]
    assert 2 < len(expected) < 70
    assert sorted(_numbers(_all(parts, Order(9, 1, 1, 3, 33)))) == expected
    assert _numbers(_all(parts, Order(9, block_extent=33))) == expected


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    num_lanes=st.integers(1, 5),
    block_bytes=st.integers(1, 300),
)
def test_blocks_cover_all_lines_once(directory: Path, sizes: list[int], num_lanes: int, block_bytes: int) -> None:
    segments = _segments(directory, sizes)
    blocks = Blocks(segments, Order(5, 1, 1, num_lanes, block_bytes))
    pieces = [piece for number in range(blocks.num_blocks) for piece in blocks.pieces(number)]
    for segment in segments:
        mine = [(p.start, p.stop) for p in pieces if p.source is segment.source and p.num_bytes]
        assert [start for start, _ in mine[1:]] == [stop for _, stop in mine[:-1]]
        assert [*mine[:1], *mine[-1:]] == (
            [] if segment.num_bytes == 0 else [(0, mine[0][1]), (mine[-1][0], segment.stop)]
        )


@pytest.mark.parametrize("seed", [None, 4])
def test_every_lane_is_dealt_as_many_blocks(tmp_path: Path, seed: int | None) -> None:
    blocks = Blocks(_segments(tmp_path, (300, 500)), Order(54, seed, 1, 6, 100))
    for epoch in range(3):
        dealt = blocks.deal(epoch)
        assert dealt.shape == (6, blocks.per_lane)
        assert sorted(dealt.ravel().tolist()) == list(range(blocks.num_blocks))
        bytes_per_lane = [sum(p.num_bytes for n in lane for p in blocks.pieces(n)) for lane in dealt.tolist()]
        assert sum(bytes_per_lane) == blocks.extent
        longest_line = 16  # a block may be off by one line at both ends, and by the byte that division rounds away
        assert max(bytes_per_lane) - min(bytes_per_lane) <= blocks.per_lane * 2 * longest_line


@given(global_batch=st.integers(1, 5000), num_lanes=st.integers(1, 300))
def test_shares_add_up_and_differ_by_one_at_most(global_batch: int, num_lanes: int) -> None:
    order = Order(global_batch, num_lanes=num_lanes)
    shares = [order.share(lane) for lane in order.lanes]
    assert min(num_lanes, global_batch) / 2 < len(shares) <= min(num_lanes, global_batch)
    assert min(shares) > 0
    assert sum(shares) == global_batch
    assert max(shares) - min(shares) <= 1


# The order.


def test_the_sequential_order_is_that_of_the_files(tmp_path: Path) -> None:
    batches = _all(_segments(tmp_path, (33, 0, 40)), Order(10, epochs=2, block_extent=50))
    assert _numbers(batches) == list(range(73)) * 2
    assert [batch.num_rows for batch in batches] == [10] * 14 + [6]
    assert [batch.position.epoch for batch in batches] == [0] * 7 + [1] * 7 + [2]


@every_order
def test_the_order_is_the_same_for_any_read_ahead(tmp_path: Path, order: Order) -> None:
    segments = _segments(tmp_path, (50, 60), bad_every=6)
    expected = _all(segments, order, reader=_reader("skip"), ahead=ReadAhead(1, 1))
    for ahead in (
        ReadAhead(1, 9),
        ReadAhead(2, 1),
        ReadAhead(3, 4),
        ReadAhead(16, 2),
        ReadAhead(1, 0),
        ReadAhead(3, 0),
    ):
        assert_same_batches(_all(segments, order, reader=_reader("skip"), ahead=ahead), expected)


def test_epochs_and_seeds_have_orders_of_their_own(tmp_path: Path) -> None:
    segments = _segments(tmp_path, (200,))
    orders = list[tuple[int, ...]]()
    for seed in range(3):
        orders += [tuple(_epoch(segments, Order(20, seed, 2, 4, 100), epoch)) for epoch in range(2)]
    orders.append(tuple(range(200)))
    assert len(set(orders)) == 7
    first_places = [order.index(0) for order in orders[:-1]]
    assert len(set(first_places)) > 1


def test_epochs_differ_in_the_order_of_blocks_and_of_the_rows_within(tmp_path: Path) -> None:
    segments = _segments(tmp_path, (100,))
    blocks = Blocks(segments, Order(10, seed=1, num_lanes=2, block_extent=50))
    assert blocks.num_blocks > 10
    assert blocks.deal(0).tolist() != blocks.deal(1).tolist()
    order = Order(100, seed=1)
    assert _epoch(segments, order, 0) != _epoch(segments, order, 1), "one block, two orders"


def test_rows_are_shuffled_within_a_block_and_across_blocks(tmp_path: Path) -> None:
    segments = _segments(tmp_path, (400,))
    one_block = _numbers(_all(segments, Order(400, 1)))
    assert np.mean(np.diff(one_block) == 1) < 0.05
    many_blocks = _numbers(_all(segments, Order(400, 1, 1, 1, 100)))
    assert abs(np.corrcoef(range(400), many_blocks)[0, 1]) < 0.5


def test_the_same_seed_gives_the_same_order(tmp_path: Path) -> None:
    segments, order = _segments(tmp_path, (60, 7)), Order(8, 9, 2, 3, 77)
    assert_same_batches(_all(segments, order), _all(segments, order))


# Law world: several processes see the global batches of one.


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("bad_every", [0, 4])
@pytest.mark.parametrize(("global_batch", "num_lanes"), [(24, 6), (17, 5), (12, 12)])
def test_processes_together_see_the_global_batches(
    tmp_path: Path, size: int, bad_every: int, global_batch: int, num_lanes: int
) -> None:
    segments = _segments(tmp_path, (150, 70), bad_every=bad_every)
    order, reader = Order(global_batch, 8, 3, num_lanes, 60), _reader("skip")
    alone = _all(segments, order, reader=reader)
    ranks = [_all(segments, order, reader=reader, part=Part(rank, size)) for rank in range(size)]
    assert max(len(batches) for batches in ranks) == len(alone)
    for step, batch in enumerate(alone):
        shares = [(rank, batches[step]) for rank, batches in enumerate(ranks) if step < len(batches)]
        assert Counter(_numbers([batch])) == Counter(_numbers([share for _, share in shares])), step
        assert batch.num_rows == sum(share.num_rows for _, share in shares)
        for rank, share in shares:
            assert share.position.cursors == batch.position.cursors[rank::size], "lane by lane"


def test_full_batches_take_every_lane_s_share(tmp_path: Path) -> None:
    segments, order = _segments(tmp_path, (500,)), Order(10, 8, 1, 4, 100)
    first = _all(segments, order)[0]
    assert first.num_rows == 10
    firsts = [_all(segments, order, part=Part(lane, 4))[0] for lane in range(4)]
    assert [batch.num_rows for batch in firsts] == [order.share(lane) for lane in range(4)]
    assert _numbers([first]) == _numbers(firsts), "lane after lane"


@pytest.mark.parametrize(
    ("global_batch", "num_lanes", "in_use"),
    [(2048, 64, 64), (100, 64, 50), (1000, 64, 50), (101, 64, 64), (10, 64, 10), (10, 4, 4), (9, 4, 3), (1, 1, 1)],
)
def test_lanes_have_equal_shares_unless_that_costs_half_of_them(global_batch: int, num_lanes: int, in_use: int) -> None:
    order = Order(global_batch, num_lanes=num_lanes)
    shares = [order.share(lane) for lane in order.lanes]
    assert len(shares) == in_use
    assert sum(shares) == global_batch
    assert max(shares) - min(shares) <= (global_batch % in_use > 0)


# Endings.


def test_a_stream_left_early_ends_its_threads(tmp_path: Path) -> None:
    segments = _segments(tmp_path, (400,))
    before = set(threading.enumerate())
    for taken in (0, 1, 3):
        for ahead in (ReadAhead(1, 1), ReadAhead(4, 2), ReadAhead(2, 100), ReadAhead(1, 0), ReadAhead(4, 0)):
            stream = Stream(_reader(), segments, Order(5, 1, None, 5, 50), ahead=ahead)
            assert len(list(islice(stream, taken))) == taken
            assert ahead.batches == 0 or set(threading.enumerate()) > before
            stream.close()
            assert set(threading.enumerate()) <= before
            assert list(stream) == [], "a closed stream is at its end"
            stream.close()


def test_a_stream_closed_while_its_producer_waits_for_room_ends(tmp_path: Path) -> None:
    segments = _segments(tmp_path, (400,))
    with Stream(_reader(), segments, Order(5, 1, None, 5, 50), ahead=ReadAhead(1, 1)) as stream:
        assert isinstance(stream._batches, Background)
        while not stream._batches._ready.full():
            pass
    assert not stream._batches._thread.is_alive()
    assert stream._batches._ready.empty(), "no batch is kept"


def test_a_consumer_that_fails_ends_the_threads(tmp_path: Path) -> None:
    segments = _segments(tmp_path, (400,))
    before = set(threading.enumerate())

    def fail() -> None:
        with Stream(_reader(), segments, Order(5, 1, None, 5, 50)) as stream:
            raise ZeroDivisionError(next(stream).num_rows)

    with pytest.raises(ZeroDivisionError):
        fail()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("ahead", [ReadAhead(1, 2), ReadAhead(3, 2), ReadAhead(1, 0), ReadAhead(3, 0)])
@pytest.mark.parametrize("seed", [None, 1])
def test_a_bad_row_arrives_with_file_and_line(tmp_path: Path, seed: int | None, ahead: ReadAhead) -> None:
    segments = _segments(tmp_path, (50, 80))
    text = segments[1].source.buffer.tobytes().splitlines(keepends=True)
    text[30] = b"1,many,3\n"
    segments[1] = whole(new_source(tmp_path / "day_1", b"".join(text)))
    before = set(threading.enumerate())
    stream = Stream(_reader(), segments, Order(5, seed, None, 1, 50), ahead=ahead)
    with pytest.raises(BadRowError, match=rf"^{tmp_path / 'day_1'}:31: column count holds 'many': not an integer"):
        list(stream)
    assert set(threading.enumerate()) <= before
    assert list(stream) == []


def test_batches_in_front_of_a_bad_row_still_come(tmp_path: Path) -> None:
    lines = [_line(i) for i in range(40)]
    lines[25] = b"bad"
    stream = Stream(_reader(), [whole(new_source(tmp_path / "day_0", b"\n".join(lines)))], Order(4, block_extent=24))
    seen = list[Batch]()
    with pytest.raises(BadRowError, match=r"day_0:26: "):
        seen.extend(stream)
    assert _numbers(seen) == list(range(4 * len(seen)))
    assert 12 <= 4 * len(seen) <= 25


class _Failing(TextReader):
    def read(self, segments: Sequence[Segment]) -> Block:  # noqa: ARG002
        raise MemoryError("no room for a block")


def test_any_error_of_a_reader_thread_arrives(tmp_path: Path) -> None:
    segments = _segments(tmp_path, (50,))
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
    segments = [whole(new_source(tmp_path / name, text)) for name in ("day_0", "day_1")]
    for order in (Order(5, None, epochs), Order(5, 1, epochs, 3, 2)):
        stream = Stream(_reader("skip"), segments, order)
        with pytest.raises(DataError, match=rf"^there is no row to read in .*day_0 and 1 more: {why}"):
            next(stream)


def test_no_segments_are_refused() -> None:
    with pytest.raises(DataError, match="there is no row to read"):
        next(Stream(_reader(), [], Order(5, 1, None)))


def test_a_process_whose_lanes_are_empty_has_no_batches_and_no_complaint(tmp_path: Path) -> None:
    """Two rows for three lanes: the data are small, not absent."""
    segments, order = _segments(tmp_path, (2,)), Order(6, 1, 1, 3)
    batches = [batch for rank in range(3) for batch in _all(segments, order, part=Part(rank, 3))]
    assert sorted(_numbers(batches)) == [0, 1]


def test_waiting_is_measured(tmp_path: Path) -> None:
    with Stream(_reader(), _segments(tmp_path, (50,)), Order(5)) as stream:
        assert stream.blocked_s == 0
        waits = [stream.blocked_s for _ in stream]
    assert all(wait > 0 for wait in waits)


def test_a_position_is_where_the_next_row_lies(tmp_path: Path) -> None:
    batches = _all(_segments(tmp_path, (10,)), Order(4, block_extent=1 << 20))
    assert [batch.position for batch in batches] == [
        Position((Cursor(0, 0, 4),)),
        Position((Cursor(0, 0, 8),)),
        Position((Cursor(1, 0, 0),)),
    ]
