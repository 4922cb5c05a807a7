"""First values of item vectors from the events themselves: co-occurring items begin alike.

An item of a long tail is met a few times in an epoch, too seldom for gradients to carry a random vector to those of
its neighbours. So random unit vectors are mixed over pairs of events of the training sequences, a few rounds, each
ending in unit vectors again (random projections of the walks between items, as FastRP has them):
new(i) = vector(i)·√count(i) + Σ vector(j) / (√count(j) · distance) over all j at most `reach` events away from an i.
"""

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit, prange

# Legend: V items, D dimension.

_BAND = 16  # columns that are summed by one thread: a line of the cache


def mix_neighbours(
    vectors: NDArray[np.float32],
    events: NDArray[np.int32],
    offsets: NDArray[np.int64],
    train_lengths: NDArray[np.int32],
    item_counts: NDArray[np.int64],
    *,
    rounds: int,
    reach: int,
) -> NDArray[np.float32]:
    """Random vectors (V + 2, D) → unit vectors of the same shape; the sums do not depend on the number of threads."""
    roots = np.ones(len(vectors), np.float32)
    roots[1:-1] = np.sqrt(np.maximum(item_counts, 1))
    num_bands = max(1, vectors.shape[1] // _BAND)
    mixed: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for _ in range(rounds):
        vectors, mixed = mixed / roots[:, None], mixed * roots[:, None]
        _add_neighbours(events, offsets, train_lengths, reach, num_bands, vectors, mixed)
        mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    return mixed


@njit(nogil=True, parallel=True, cache=True)
def _add_neighbours(
    events: NDArray[np.int32],
    offsets: NDArray[np.int64],
    train_lengths: NDArray[np.int32],
    reach: int,
    num_bands: int,
    vectors: NDArray[np.float32],
    sums: NDArray[np.float32],
) -> None:
    dim = vectors.shape[1]
    for band in prange(num_bands):
        low, high = band * dim // num_bands, (band + 1) * dim // num_bands
        for user in range(len(train_lengths)):
            stop = offsets[user] + train_lengths[user]
            for i in range(offsets[user], stop):
                for j in range(i + 1, min(i + reach + 1, stop)):
                    one, other, weight = events[i], events[j], np.float32(1.0 / (j - i))
                    for d in range(low, high):
                        sums[one, d] += weight * vectors[other, d]
                        sums[other, d] += weight * vectors[one, d]
