"""Made-up sequences of the size of published ones."""

import numpy as np
from numpy.typing import NDArray

from recmill.data.events.windows import Sequences


def make_up(num_users: int, num_items: int, *, full_length: int | None = None) -> Sequences:
    """Users with about nine random items each as in Beauty, or all with as many; the last two are held out."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(5 + rng.geometric(1 / 5, num_users) - 1, 200)
    if full_length is not None:
        lengths = np.full(num_users, full_length)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    events = rng.integers(1, num_items + 1, offsets[-1]).astype(np.int32)
    last = (lengths - 1).astype(np.int32)
    return Sequences(events, offsets, (lengths - 2).astype(np.int32), last - 1, last, num_items)


def count_items(sequences: Sequences) -> NDArray[np.int64]:
    """(V): how often each item occurs in training events."""
    counts = np.zeros(sequences.num_items + 1, np.int64)
    starts = sequences.offsets[:-1]
    step = 1 << 16  # users at a time: what is mapped need not be in memory at once
    for first in range(0, sequences.num_users, step):
        lengths = sequences.train_lengths[first : first + step].astype(np.int64)
        places = np.repeat(starts[first : first + step] - (np.cumsum(lengths) - lengths), lengths)
        counts += np.bincount(sequences.events[places + np.arange(len(places))], minlength=len(counts))
    return counts[1:]
