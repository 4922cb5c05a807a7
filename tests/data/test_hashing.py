"""XXH64 equals the published one; the mixer loses nothing and spreads every bit."""

from random import Random

import numpy as np
import xxhash
from numba import njit
from numpy.typing import NDArray

from recmill.data import hashing
from recmill.seeds import mix64
from tests.data.guarded import GuardedMemory

Words = NDArray[np.uint64]


@njit  # not cached: numba would not notice a change in seeds.py
def _mixed(words: Words) -> Words:
    return np.array([mix64(word) for word in words])


def test_xxh64_is_the_published_one_at_every_length() -> None:
    random = Random(1)
    for length in range(201):
        for seed in (0, 1, 2**64 - 1, random.getrandbits(64), random.getrandbits(64)):
            text = random.randbytes(length)
            actual = hashing.xxh64(np.frombuffer(text, np.uint8), 0, length, np.uint64(seed))
            assert actual == xxhash.xxh64_intdigest(text, seed), (length, seed)


def test_xxh64_reads_its_range_and_no_more() -> None:
    random, memory = Random(1), GuardedMemory()
    for length in range(80):
        text = random.randbytes(length)
        before, behind = random.randbytes(7), random.randbytes(40)
        surrounded = np.frombuffer(before + text + behind, np.uint8)
        expected = xxhash.xxh64_intdigest(text, 9)
        assert hashing.xxh64(surrounded, 7, 7 + length, np.uint64(9)) == expected
        assert hashing.xxh64(memory.hold(text), 0, length, np.uint64(9)) == expected


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
