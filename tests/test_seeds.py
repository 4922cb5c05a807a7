"""Streams are their names; the mixer loses nothing and spreads every bit."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recmill.seeds import mix64, rng, stream_key

Words = NDArray[np.uint64]


@njit
def _mixed(words: Words) -> Words:
    return np.array([mix64(word) for word in words])


def test_a_stream_is_its_seed_and_name() -> None:
    first = rng(3, "mask", 1, "shard").random(5)
    np.random.default_rng(0).random()
    assert np.array_equal(first, rng(3, "mask", 1, "shard").random(5))
    others = [rng(4, "mask", 1, "shard"), rng(3, "mask", 2, "shard"), rng(3, "mask/1", "shards")]
    assert all(not np.array_equal(first, other.random(5)) for other in others)
    assert len({stream_key(seed, "table", name) for seed in range(50) for name in range(50)}) == 2500


def test_mix64_is_splitmix64() -> None:
    """The first outputs of SplitMix64 from seed 1234567, as its author published them."""
    steps = np.uint64(1234567) + np.arange(5, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert _mixed(steps).tolist() == published


def test_mix64_maps_no_two_words_to_one() -> None:
    small = np.arange(100_000, dtype=np.uint64)
    assert len(np.unique(_mixed(small))) == len(small)
    assert len(np.unique(_mixed(small << np.uint64(40)))) == len(small)


def test_mix64_spreads_every_input_bit_over_every_output_bit() -> None:
    words = np.random.default_rng(2).integers(0, 2**64, 2000, np.uint64)
    for bit in range(64):
        flipped = _mixed(words) ^ _mixed(words ^ np.uint64(1 << bit))
        changed_frac = np.unpackbits(flipped.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
        assert np.all(np.abs(changed_frac - 0.5) < 0.08), bit
