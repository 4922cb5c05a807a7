"""What every sequence model has to beat: the most popular items, and those that followed the last one most often."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from recmill.models.sequence.transitions import Transitions

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

    def __init__(self, transitions: Transitions, item_counts: NDArray[np.int64]) -> None:
        self._background = (item_counts / (item_counts.max(initial=0) + 1)).astype(np.float32)  # below 1
        self._transitions = transitions

    def score(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float32]:
        """(U, V): how often each item followed, plus its popularity as a share below 1."""
        scores = np.tile(self._background, (len(lengths), 1))
        self._transitions.add_times(ids[np.cumsum(lengths) - 1], scores)
        return scores
