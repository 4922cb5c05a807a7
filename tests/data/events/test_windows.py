"""Windows: cut, dealt, hidden and resumed."""

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from recmill.data.batch import Position
from recmill.data.events.windows import (
    SequenceBatch,
    Sequences,
    Task,
    WindowOrder,
    WindowStream,
    cut_windows,
    heldout_users,
    read_histories,
)
from recmill.data.stream.stream import Part
from recmill.errors import DataError
from recmill.settings.sequences import Masking

NUM_ITEMS = 40


def make_sequences(lengths: list[int], *, seed: int = 0) -> Sequences:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    events = np.random.default_rng(seed).integers(1, NUM_ITEMS + 1, offsets[-1]).astype(np.int32)
    train = np.array([max(n - 2, 0) if n >= 3 else n for n in lengths], np.int32)
    last = np.array([n - 1 if n >= 3 else -1 for n in lengths], np.int32)
    return Sequences(events, offsets, train, np.where(last > 0, last - 1, -1).astype(np.int32), last, NUM_ITEMS)


LENGTHS = [1, 2, 3, 4, 9, 12, 30, 7, 5, 3, 25]


def order(task: Task = "masked", **changes: int) -> WindowOrder:
    return WindowOrder(task, **{"max_length": 5, "step": 2, "global_batch": 4, "seed": 3, "epochs": 3, **changes})


def open_stream(task: Task, start: Position | None = None, part: Part = Part(), **changes: int) -> WindowStream:  # noqa: B008
    return WindowStream(make_sequences(LENGTHS), order(task, **changes), Masking(), start=start, part=part)


def assert_same(actual: list[SequenceBatch], expected: list[SequenceBatch]) -> None:
    assert [batch.position for batch in actual] == [batch.position for batch in expected]
    for one, other in zip(actual, expected, strict=True):
        for name in ("ids", "targets", "lengths"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("task", ["next", "masked"])
def test_a_stream_opened_behind_any_batch_yields_exactly_the_rest(task: Task) -> None:
    batches = list(open_stream(task))
    assert len(batches) > 10
    for spent, batch in enumerate(batches, start=1):
        position = Position.from_json(json.loads(json.dumps(batch.position.to_json())))
        assert_same(list(open_stream(task, position)), batches[spent:])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("task", ["next", "masked"])
def test_processes_together_see_the_batches_of_one(task: Task, size: int) -> None:
    whole = list(open_stream(task, global_batch=6))
    ranks = [list(open_stream(task, part=Part(rank, size), global_batch=6)) for rank in range(size)]
    for number, batch in enumerate(whole):
        rows = np.split(batch.ids, np.cumsum(batch.lengths)[:-1])
        targets = np.split(batch.targets, np.cumsum(batch.lengths)[:-1])
        for rank, batches in enumerate(ranks):
            mine = batches[number]
            assert mine.position == batch.position
            np.testing.assert_array_equal(mine.ids, np.concatenate([[], *rows[rank::size]]))
            np.testing.assert_array_equal(mine.targets, np.concatenate([[], *targets[rank::size]]))


@pytest.mark.parametrize(("task", "width"), [("next", 6), ("masked", 5)])
@pytest.mark.parametrize("step", [0, 1, 2, 5])
def test_windows_are_cut_from_the_end(task: Task, width: int, step: int) -> None:
    sequences = make_sequences(LENGTHS)
    windows = cut_windows(sequences, order(task, step=step))
    expected = []
    for user, length in enumerate(sequences.train_lengths.tolist()):
        stop = length
        while stop >= 2:
            start = max(0, stop - width)
            expected.append((sequences.offsets[user] + start, sequences.offsets[user] + stop))
            if start == 0 or step == 0:
                break
            stop -= step
    assert list(zip(windows.starts, windows.stops, strict=True)) == expected


def test_every_epoch_deals_every_window_once_in_another_order() -> None:
    stream = open_stream("next", global_batch=1)
    rows = [(*batch.ids.tolist(), int(batch.targets[-1])) for batch in stream]
    epochs = [rows[i : i + stream.num_windows] for i in range(0, len(rows), stream.num_windows)]
    assert len(epochs) == 3
    assert all(Counter(epoch) == Counter(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_batches_are_full_but_for_the_last_and_cross_epochs() -> None:
    stream = open_stream("masked")
    sizes = [batch.num_rows for batch in stream]
    assert sum(sizes) == 3 * stream.num_windows
    assert set(sizes[:-1]) == {4}


def test_rows_do_not_depend_on_the_batch_they_are_in() -> None:
    def rows(global_batch: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        told = []
        for batch in open_stream("masked", global_batch=global_batch):
            cuts = np.cumsum(batch.lengths)[:-1]
            pairs = zip(np.split(batch.ids, cuts), np.split(batch.targets, cuts), strict=True)
            told += [(tuple(ids), tuple(targets)) for ids, targets in pairs]
        return told

    assert rows(1) == rows(4) == rows(7)


def test_targets_of_next_are_the_ids_behind() -> None:
    for batch in open_stream("next"):
        cuts = np.cumsum(batch.lengths)[:-1]
        for ids, targets in zip(np.split(batch.ids, cuts), np.split(batch.targets, cuts), strict=True):
            assert ids[1:].tolist() == targets[:-1].tolist()
            assert targets.min() > 0


def masked_rows(masking: Masking, epochs: int = 200) -> list[tuple[np.ndarray, np.ndarray]]:
    stream = WindowStream(make_sequences([12] * 20), order(max_length=10, step=0, epochs=epochs), masking)
    rows = []
    for batch in stream:
        cuts = np.cumsum(batch.lengths)[:-1]
        rows += list(zip(np.split(batch.ids, cuts), np.split(batch.targets, cuts), strict=True))
    return rows


def test_masks_hide_their_share_and_are_new_in_every_epoch() -> None:
    rows = masked_rows(Masking(mask_prob=0.3))
    hidden = np.array([targets > 0 for _, targets in rows])
    # windows in which nothing was hidden have one event hidden all the same
    expected = 0.3 + 0.7**10 / 10
    assert hidden.mean() == pytest.approx(expected, abs=0.01)
    assert all((ids[mask] == NUM_ITEMS + 1).all() for (ids, _), mask in zip(rows, hidden, strict=True))
    assert all(mask.any() for mask in hidden)
    first, second = hidden[:20], hidden[20:40]
    assert not np.array_equal(np.sort(first, axis=0), np.sort(second, axis=0))


def test_the_last_event_may_be_hidden_always_or_alone() -> None:
    always = np.array([targets > 0 for _, targets in masked_rows(Masking(mask_prob=0.2, last=True), 20)])
    assert always[:, -1].all()
    assert 0.1 < always[:, :-1].mean() < 0.3
    alone = np.array([targets > 0 for _, targets in masked_rows(Masking(mask_prob=0.2, only_last_prob=0.5))])
    is_alone = alone[:, -1] & (alone.sum(axis=1) == 1)
    assert is_alone.mean() == pytest.approx(0.5 + 0.5 * (0.2 * 0.8**9 + 0.8**10 / 10), abs=0.03)


def test_bert_s_replacements_have_their_shares() -> None:
    rows = masked_rows(Masking(mask_prob=0.4, replace=True), 400)
    ids, targets = (np.concatenate([row[i] for row in rows]) for i in range(2))
    shown, wanted = ids[targets > 0], targets[targets > 0]
    assert (shown == NUM_ITEMS + 1).mean() == pytest.approx(0.8, abs=0.02)
    assert (shown == wanted).mean() == pytest.approx(0.1 + 0.1 / NUM_ITEMS, abs=0.02)
    assert set(shown.tolist()) == set(range(1, NUM_ITEMS + 2))


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(DataError, match="no user has two training events"):
        WindowStream(make_sequences([1, 1]), order(), Masking())


def test_endless_streams_end_only_with_their_consumer() -> None:
    sequences = make_sequences(LENGTHS)
    endless = WindowStream(sequences, WindowOrder("next", 5, 2, 4, 3, None), Masking())
    assert_same(list(islice(endless, 5)), list(islice(open_stream("next"), 5)))
    assert endless.num_windows > 0


def test_histories_are_all_before_the_target_and_known() -> None:
    sequences = make_sequences(LENGTHS)
    sequences.events[sequences.offsets[4] + 7] = -1  # the validation event of that user has an unknown item
    users = heldout_users(sequences, "test")
    assert users.tolist() == [user for user, length in enumerate(LENGTHS) if length >= 3]
    histories = read_histories(sequences, "test", users)
    pieces = np.split(histories.ids, np.cumsum(histories.lengths)[:-1])
    for user, piece, target in zip(users, pieces, histories.targets, strict=True):
        events = sequences.events[sequences.offsets[user] : sequences.offsets[user + 1]]
        assert piece.tolist() == [item for item in events[:-1] if item > 0]
        assert target == events[-1]
    assert read_histories(sequences, "validation", np.array([4])).targets.tolist() == [-1]
