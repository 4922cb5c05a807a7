"""First item vectors from the events."""

import numpy as np
from numpy.typing import NDArray

from recmill.models.sequence.co_occurrence import mix_neighbours


def mix(vectors: NDArray[np.float32], rounds: int = 1, reach: int = 2) -> NDArray[np.float32]:
    """Of two users who met 1 2 3, then an event that is held out, and 4 5."""
    events, offsets = np.array([1, 2, 3, 5, 4, 5], np.int32), np.array([0, 4, 6])
    counts = np.array([1, 1, 1, 1, 1])
    return mix_neighbours(vectors, events, offsets, np.array([3, 2], np.int32), counts, rounds=rounds, reach=reach)


def test_a_round_adds_the_neighbours_by_their_distance() -> None:
    eye = np.eye(7, dtype=np.float32)
    mixed = mix(eye * 3)
    expected = eye.copy()
    for i, j, weight in ((1, 2, 1.0), (2, 3, 1.0), (1, 3, 0.5), (4, 5, 1.0)):
        expected[i, j] = expected[j, i] = weight
    np.testing.assert_allclose(mixed, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)


def test_what_stands_near_each_other_becomes_alike() -> None:
    random = np.random.default_rng(0).standard_normal((7, 64), np.float32)
    likeness = mix(random, rounds=4)
    likeness = likeness @ likeness.T
    assert likeness[1, 2] > 0.9
    assert likeness[4, 5] > 0.9
    assert abs(likeness[1, 4]) < 0.5
    assert abs(likeness[1, 6]) < 0.5


def test_rows_that_no_event_has_stay_and_all_have_one_length() -> None:
    random = np.random.default_rng(1).standard_normal((7, 40), np.float32)
    mixed = mix(random, rounds=3)
    np.testing.assert_allclose(np.linalg.norm(mixed, axis=1), 1, rtol=1e-5)
    for row in (0, 6):
        np.testing.assert_allclose(mixed[row], random[row] / np.linalg.norm(random[row]), rtol=1e-5)
