"""Named random streams: the same seed and name give the same numbers, whatever ran before and on however many ranks."""

import zlib

import numpy as np

from recmill.jit import njit, uint64


def stream_key(seed: int, *name: str | int) -> int:
    """A 64-bit key for a named stream, for counter-based generators inside kernels."""
    text = "/".join(map(str, name)).encode()
    sequence = np.random.SeedSequence([seed, zlib.crc32(text), len(text)])
    return int(sequence.generate_state(1, np.uint64)[0])


def rng(seed: int, *name: str | int) -> np.random.Generator:
    """A generator for a named stream."""
    return np.random.default_rng([seed, zlib.crc32("/".join(map(str, name)).encode())])


@njit(inline="always")
def mix64(word: np.uint64) -> np.uint64:
    """A bijection of 64-bit words in which every input bit reaches every output bit (SplitMix64's finaliser)."""
    x = uint64(word) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
