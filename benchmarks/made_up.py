"""Made-up sequences of the size of published ones."""

import numpy as np

from recmill.data.sequences import Sequences


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
