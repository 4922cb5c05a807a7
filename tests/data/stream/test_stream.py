"""Batches in an order that depends on seed, epoch and files alone; every row once an epoch; nothing left behind."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.batch import Batch, Position
from recmill.data.logs.text_file import Segment
from recmill.data.stream.ahead import ReadAhead
from recmill.data.stream.stream import Blocks, Order, Part, Stream
from tests.data.lines import new_source
from tests.data.numbered_rows import line_of, numbers_of, numbers_of_epoch, read_all, reader_of, segments_of
from tests.laws.resume import assert_resumes_everywhere, assert_same_batches

pytestmark = pytest.mark.usefixtures("no_thread_stays_behind")


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
    segments = segments_of(tmp_path, sizes, bad_every=bad_every)
    assert_resumes_everywhere(lambda at: Stream(reader_of("skip"), segments, order, start=at))


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_every_process_resumes_everywhere(tmp_path: Path, rank: int) -> None:
    segments = segments_of(tmp_path, (50, 30), bad_every=9)
    order = Order(15, seed=2, epochs=2, num_lanes=7, block_extent=60)
    assert_resumes_everywhere(lambda at: Stream(reader_of("skip"), segments, order, start=at, part=Part(rank, 3)))


def test_an_endless_stream_resumes_everywhere(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, (20, 13), bad_every=7)
    order = Order(9, seed=2, epochs=None, num_lanes=2, block_extent=80)
    assert_resumes_everywhere(lambda at: Stream(reader_of("skip"), segments, order, start=at), num_batches=25)


@pytest.mark.parametrize("where", ["first", "last", "everywhere but one"])
@pytest.mark.parametrize(("seed", "num_lanes"), [(None, 1), (4, 2)])
def test_blocks_of_bad_rows_alone_are_counted_once(
    tmp_path: Path, where: str, seed: int | None, num_lanes: int
) -> None:
    bad, good = b"bad line\n" * 30, b"".join(line_of(i) + b"\n" for i in range(20))
    text = {"first": bad + good, "last": good + bad, "everywhere but one": bad + line_of(0) + b"\n" + bad}[where]
    segments = [new_source(tmp_path / "day_0", text).whole()]
    order = Order(4, seed, epochs=2, num_lanes=num_lanes, block_extent=40)
    assert_resumes_everywhere(lambda at: Stream(reader_of("skip"), segments, order, start=at))
    with Stream(reader_of("skip"), segments, order) as stream:
        num_skipped = sum(batch.num_skipped for batch in stream)
        assert num_skipped + stream.trailing_skipped == 2 * text.count(b"bad line")


def test_a_stream_opened_at_its_end_is_empty(tmp_path: Path) -> None:
    segments, order = segments_of(tmp_path, (30,)), Order(7, seed=1, epochs=2, num_lanes=2, block_extent=50)
    last = read_all(segments, order)[-1]
    with Stream(reader_of(), segments, order, start=last.position) as stream:
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
    segments = segments_of(directory, sizes, bad_every=bad_every, newline_at_end=newline_at_end)
    order = Order(num_lanes + extra, seed, 2, num_lanes, block_bytes)
    with Stream(reader_of("skip"), segments, order) as stream:
        batches = list(stream)
        num_skipped = sum(batch.num_skipped for batch in batches) + stream.trailing_skipped
        assert stream.extent == sum(segment.num_bytes for segment in segments)
    assert sorted(numbers_of(batches)) == sorted([*range(sum(sizes))] * 2)
    if bad_every == 0:
        for epoch in range(2):
            assert sorted(numbers_of_epoch(segments, order, epoch)) == list(range(sum(sizes)))
    assert all(0 < batch.num_rows <= order.global_batch for batch in batches)
    assert num_skipped == (2 * len(range(0, sum(sizes), bad_every)) if bad_every else 0)


def test_no_lane_is_left_unread_by_a_small_batch(tmp_path: Path) -> None:
    """A lane whose share of a batch is no row must not keep its rows."""
    segments = segments_of(tmp_path, (100,))
    batches = read_all(segments, Order(3, seed=1, num_lanes=7, block_extent=50))
    assert sorted(numbers_of(batches)) == list(range(100))


def test_segments_may_be_parts_of_files(tmp_path: Path) -> None:
    first, second = segments_of(tmp_path, (40, 40))
    middle = second.source.line_start(second.num_bytes // 2)
    parts = [first.part(0, 100), Segment(second.source, middle, second.stop)]
    expected = [n for p in parts for n in numbers_of([Batch(reader_of().read([p]).columns, Position(()))])]
    assert 2 < len(expected) < 70
    assert sorted(numbers_of(read_all(parts, Order(9, 1, 1, 3, 33)))) == expected
    assert numbers_of(read_all(parts, Order(9, block_extent=33))) == expected


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    num_lanes=st.integers(1, 5),
    block_bytes=st.integers(1, 300),
)
def test_blocks_cover_all_lines_once(directory: Path, sizes: list[int], num_lanes: int, block_bytes: int) -> None:
    segments = segments_of(directory, sizes)
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
    blocks = Blocks(segments_of(tmp_path, (300, 500)), Order(54, seed, 1, 6, 100))
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
    batches = read_all(segments_of(tmp_path, (33, 0, 40)), Order(10, epochs=2, block_extent=50))
    assert numbers_of(batches) == list(range(73)) * 2
    assert [batch.num_rows for batch in batches] == [10] * 14 + [6]
    assert [batch.position.epoch for batch in batches] == [0] * 7 + [1] * 7 + [2]


@every_order
def test_the_order_is_the_same_for_any_read_ahead(tmp_path: Path, order: Order) -> None:
    segments = segments_of(tmp_path, (50, 60), bad_every=6)
    expected = read_all(segments, order, reader=reader_of("skip"), ahead=ReadAhead(1, 1))
    for ahead in (
        ReadAhead(1, 9),
        ReadAhead(2, 1),
        ReadAhead(3, 4),
        ReadAhead(16, 2),
        ReadAhead(1, 0),
        ReadAhead(3, 0),
    ):
        assert_same_batches(read_all(segments, order, reader=reader_of("skip"), ahead=ahead), expected)


def test_epochs_and_seeds_have_orders_of_their_own(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, (200,))
    orders = list[tuple[int, ...]]()
    for seed in range(3):
        orders += [tuple(numbers_of_epoch(segments, Order(20, seed, 2, 4, 100), epoch)) for epoch in range(2)]
    orders.append(tuple(range(200)))
    assert len(set(orders)) == 7
    first_places = [order.index(0) for order in orders[:-1]]
    assert len(set(first_places)) > 1


def test_epochs_differ_in_the_order_of_blocks_and_of_the_rows_within(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, (100,))
    blocks = Blocks(segments, Order(10, seed=1, num_lanes=2, block_extent=50))
    assert blocks.num_blocks > 10
    assert blocks.deal(0).tolist() != blocks.deal(1).tolist()
    order = Order(100, seed=1)
    assert numbers_of_epoch(segments, order, 0) != numbers_of_epoch(segments, order, 1), "one block, two orders"


def test_rows_are_shuffled_within_a_block_and_across_blocks(tmp_path: Path) -> None:
    segments = segments_of(tmp_path, (400,))
    one_block = numbers_of(read_all(segments, Order(400, 1)))
    assert np.mean(np.diff(one_block) == 1) < 0.05
    many_blocks = numbers_of(read_all(segments, Order(400, 1, 1, 1, 100)))
    assert abs(np.corrcoef(range(400), many_blocks)[0, 1]) < 0.5


def test_the_same_seed_gives_the_same_order(tmp_path: Path) -> None:
    segments, order = segments_of(tmp_path, (60, 7)), Order(8, 9, 2, 3, 77)
    assert_same_batches(read_all(segments, order), read_all(segments, order))


# Law world: several processes see the global batches of one.


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("bad_every", [0, 4])
@pytest.mark.parametrize(("global_batch", "num_lanes"), [(24, 6), (17, 5), (12, 12)])
def test_processes_together_see_the_global_batches(
    tmp_path: Path, size: int, bad_every: int, global_batch: int, num_lanes: int
) -> None:
    segments = segments_of(tmp_path, (150, 70), bad_every=bad_every)
    order, reader = Order(global_batch, 8, 3, num_lanes, 60), reader_of("skip")
    alone = read_all(segments, order, reader=reader)
    ranks = [read_all(segments, order, reader=reader, part=Part(rank, size)) for rank in range(size)]
    assert max(len(batches) for batches in ranks) == len(alone)
    for step, batch in enumerate(alone):
        shares = [(rank, batches[step]) for rank, batches in enumerate(ranks) if step < len(batches)]
        assert Counter(numbers_of([batch])) == Counter(numbers_of([share for _, share in shares])), step
        assert batch.num_rows == sum(share.num_rows for _, share in shares)
        for rank, share in shares:
            assert share.position.cursors == batch.position.cursors[rank::size], "lane by lane"


def test_full_batches_take_every_lane_s_share(tmp_path: Path) -> None:
    segments, order = segments_of(tmp_path, (500,)), Order(10, 8, 1, 4, 100)
    first = read_all(segments, order)[0]
    assert first.num_rows == 10
    firsts = [read_all(segments, order, part=Part(lane, 4))[0] for lane in range(4)]
    assert [batch.num_rows for batch in firsts] == [order.share(lane) for lane in range(4)]
    assert numbers_of([first]) == numbers_of(firsts), "lane after lane"


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
