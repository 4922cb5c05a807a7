"""First-order transitions: how often items followed each other directly, and what that adds to a network's scores."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit, prange

# Legend: U users, K newest events, V items, P pairs of items that followed each other.


class Transitions(NamedTuple):
    """Behind item i came after[first[i] : first[i + 1]], as often as times tells."""

    first: NDArray[np.int64]  # (V + 2)
    after: NDArray[np.int32]  # (P)
    times: NDArray[np.int32]  # (P)

    def add_times(self, newest: NDArray[np.int64], scores_UV: NDArray[np.float32]) -> None:
        """Add how often each item followed the newest one of each user."""
        _add_times(newest, self, scores_UV)

    def add_evidence(self, newest_UK: NDArray[np.int64], weight: float, scores_UV: NDArray[np.float32]) -> None:
        """Add weight · log(1 + how often each item followed the newest ones, newest first, of each user).

        What followed the second newest counts half, the third newest a quarter, and so on; item 0 is none.
        """
        _add_evidence(newest_UK, self, weight, scores_UV)


def newest_items(ids: NDArray[np.int64], lengths: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Histories, one behind the other, → (U, number), newest first, 0 where there is none."""
    back = np.arange(number)
    places = np.cumsum(lengths)[:, None] - 1 - back
    return np.where(back < lengths[:, None], ids[np.maximum(places, 0)], 0)


def count_transitions(
    events: NDArray[np.int32], offsets: NDArray[np.int64], train_lengths: NDArray[np.int32], num_items: int
) -> Transitions:
    """Of the training events alone."""
    keys = np.empty(int(np.maximum(train_lengths - 1, 0).sum()), np.int64)
    _pair_keys(events, offsets, train_lengths, num_items + 1, keys)
    keys, times = np.unique(keys, return_counts=True)
    before, after = np.divmod(keys, num_items + 1)
    first = np.searchsorted(before, np.arange(num_items + 2))
    return Transitions(first, after.astype(np.int32), times.astype(np.int32))


@njit(nogil=True, cache=True)
def _pair_keys(
    events: NDArray[np.int32],
    offsets: NDArray[np.int64],
    train_lengths: NDArray[np.int32],
    base: int,
    out: NDArray[np.int64],
) -> None:
    at = 0
    for user in range(len(train_lengths)):
        for i in range(offsets[user], offsets[user] + train_lengths[user] - 1):
            out[at] = np.int64(events[i]) * base + events[i + 1]
            at += 1


@njit(nogil=True, parallel=True, cache=True)
def _add_times(newest: NDArray[np.int64], known: Transitions, scores: NDArray[np.float32]) -> None:
    for user in prange(len(newest)):
        for i in range(known.first[newest[user]], known.first[newest[user] + 1]):
            scores[user, known.after[i] - 1] += known.times[i]


@njit(nogil=True, parallel=True, cache=True)
def _add_evidence(newest: NDArray[np.int64], known: Transitions, weight: float, scores: NDArray[np.float32]) -> None:
    for user in prange(len(newest)):
        evidence = np.zeros(scores.shape[1], np.float32)
        share = np.float32(1)
        for item in newest[user]:
            for i in range(known.first[item], known.first[item + 1]):
                evidence[known.after[i] - 1] += share * known.times[i]
            share /= 2
        for item in newest[user]:
            for i in range(known.first[item], known.first[item + 1]):
                at = known.after[i] - 1
                scores[user, at] += weight * np.log1p(evidence[at])
                evidence[at] = 0  # an item that followed two of them is told once
