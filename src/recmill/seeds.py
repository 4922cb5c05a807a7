"""Named random streams: the same seed and name give the same numbers, whatever ran before and on however many ranks."""

import zlib

import numpy as np


def stream_key(seed: int, *name: str | int) -> int:
    """A 64-bit key for a named stream, for counter-based generators inside kernels."""
    text = "/".join(map(str, name)).encode()
    sequence = np.random.SeedSequence([seed, zlib.crc32(text), len(text)])
    return int(sequence.generate_state(1, np.uint64)[0])


def rng(seed: int, *name: str | int) -> np.random.Generator:
    """A generator for a named stream."""
    return np.random.default_rng([seed, zlib.crc32("/".join(map(str, name)).encode())])
