"""Counts of what followed what, by hand, and what they add to scores."""

import numpy as np

from recmill.models.sequence.transitions import count_transitions, newest_items

EVENTS = np.array([1, 2, 3, 2, 3, 1, 2, 4, 4], np.int32)
OFFSETS = np.array([0, 5, 9])
TRAIN = np.array([4, 3], np.int32)  # 1 2 3 2 and 1 2 4
COUNTED = count_transitions(EVENTS, OFFSETS, TRAIN, 4)


def test_pairs_of_training_events_are_counted_and_no_others() -> None:
    pairs = {
        (item, int(after)): int(times)
        for item in range(1, 5)
        for after, times in zip(
            COUNTED.after[COUNTED.first[item] : COUNTED.first[item + 1]],
            COUNTED.times[COUNTED.first[item] : COUNTED.first[item + 1]],
            strict=True,
        )
    }
    assert pairs == {(1, 2): 2, (2, 3): 1, (2, 4): 1, (3, 2): 1}
    assert COUNTED.first[0] == COUNTED.first[1] == 0, "no item is followed by nothing"


def test_the_newest_items_of_histories_come_newest_first() -> None:
    newest = newest_items(np.array([3, 1, 2, 4]), np.array([3, 1]), 2)
    assert newest.tolist() == [[2, 1], [4, 0]]


def test_evidence_is_the_logarithm_of_counts_and_older_events_count_half() -> None:
    scores = np.full((3, 4), 0.5, np.float32)
    COUNTED.add_evidence(np.array([[1, 0], [1, 3], [4, 0]]), 2.0, scores)
    np.testing.assert_allclose(scores[0] - 0.5, [0, 2 * np.log(3), 0, 0], rtol=1e-6)
    np.testing.assert_allclose(scores[1] - 0.5, [0, 2 * np.log(3.5), 0, 0], rtol=1e-6)  # 2, and half of 1
    np.testing.assert_allclose(scores[2], 0.5)


def test_users_without_events_have_no_pairs() -> None:
    none = count_transitions(np.empty(0, np.int32), np.array([0, 0]), np.zeros(1, np.int32), 3)
    assert len(none.after) == 0
    assert none.first.tolist() == [0] * 5
