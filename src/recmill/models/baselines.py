"""What every sequence model has to beat: the most popular items, and those that followed the last one most often."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit, prange

# Legend: U users, V items.


class Scorer(Protocol):
    """Whatever can put the items of a catalogue into an order, for several users at a time."""

    def score(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
        """Histories, one behind the other and oldest event first, → scores (U, V) of items 1 … V."""


class Popularity:
    """The same list for everybody: items by how often they occur in training events."""

    def __init__(self, item_counts: NDArray[np.int64]) -> None:
        self._counts = item_counts.astype(np.float32)

    def score(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
        """(U, V): how often each item occurs."""
        del ids
        return np.tile(self._counts, (len(lengths), 1))


class Markov:
    """Items by how often they followed the newest event's item directly; of equals, the more popular first."""

    def __init__(
        self,
        events: NDArray[np.int32],
        offsets: NDArray[np.int64],
        train_lengths: NDArray[np.int32],
        item_counts: NDArray[np.int64],
    ) -> None:
        self._background = (item_counts / (item_counts.max(initial=0) + 1)).astype(np.float32)  # below 1
        num_items = len(item_counts)
        keys = np.empty(int(np.maximum(train_lengths - 1, 0).sum()), np.int64)
        _pair_keys(events, offsets, train_lengths, num_items + 1, keys)
        keys, self._times = np.unique(keys, return_counts=True)
        before, self._after = np.divmod(keys, num_items + 1)
        self._first = np.searchsorted(before, np.arange(num_items + 2))

    def score(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
        """(U, V): how often each item followed, plus its popularity as a share below 1."""
        scores = np.tile(self._background, (len(lengths), 1))
        newest = ids[np.cumsum(lengths) - 1]
        _add_followers(newest, self._first, self._after, self._times, scores)
        return scores


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
def _add_followers(
    newest: NDArray[np.int64],
    first: NDArray[np.int64],
    after: NDArray[np.int64],
    times: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    for user in prange(len(newest)):
        for i in range(first[newest[user]], first[newest[user] + 1]):
            scores[user, after[i] - 1] += times[i]
