"""The baselines, counted by hand."""

import numpy as np

from recmill.models.sequence.baselines import Markov, Popularity
from recmill.models.sequence.transitions import count_transitions

EVENTS = np.array([1, 2, 3, 2, 3, 1, 2, 4, 4], np.int32)
OFFSETS = np.array([0, 5, 9])
TRAIN = np.array([4, 3], np.int32)  # 1 2 3 2 and 1 2 4
COUNTS = np.array([2, 3, 1, 1])


def test_popularity_is_the_same_for_everybody() -> None:
    scores = Popularity(COUNTS).score(np.array([1, 2, 3]), np.array([2, 1]))
    assert scores.tolist() == [[2, 3, 1, 1], [2, 3, 1, 1]]


def test_markov_counts_what_followed_in_training_events_and_falls_back_on_popularity() -> None:
    scores = Markov(count_transitions(EVENTS, OFFSETS, TRAIN, 4), COUNTS).score(
        np.array([3, 1, 2, 4, 3]), np.array([2, 1, 1, 1])
    )
    background = COUNTS / 4
    np.testing.assert_allclose(scores[0], background + np.array([0, 2, 0, 0]))  # behind 1: 2 twice
    np.testing.assert_allclose(
        scores[1], background + np.array([0, 0, 1, 1])
    )  # behind 2: 3 and 4, and not the held-out ones
    np.testing.assert_allclose(scores[2], background)  # nothing followed 4
    np.testing.assert_allclose(scores[3], background + np.array([0, 1, 0, 0]))
