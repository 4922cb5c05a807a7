"""XXH64 equals the published one."""

from random import Random

import numpy as np
import xxhash

from recmill.data.text import hashing
from tests.data.guarded import GuardedMemory


def test_xxh64_is_the_published_one_at_every_length() -> None:
    random = Random(1)
    for length in range(201):
        for seed in (0, 1, 2**64 - 1, random.getrandbits(64), random.getrandbits(64)):
            text = random.randbytes(length)
            actual = hashing.xxh64(np.frombuffer(text, np.uint8), 0, length, np.uint64(seed))
            assert actual == xxhash.xxh64_intdigest(text, seed), (length, seed)


def test_xxh64_of_a_word_is_that_of_its_bytes() -> None:
    random = Random(2)
    for _ in range(200):
        word, seed = random.getrandbits(64), random.getrandbits(64)
        assert hashing.xxh64_of_word(np.uint64(word), np.uint64(seed)) == xxhash.xxh64_intdigest(
            word.to_bytes(8, "little"), seed
        )


def test_xxh64_reads_its_range_and_no_more() -> None:
    random, memory = Random(1), GuardedMemory()
    for length in range(80):
        text = random.randbytes(length)
        before, behind = random.randbytes(7), random.randbytes(40)
        surrounded = np.frombuffer(before + text + behind, np.uint8)
        expected = xxhash.xxh64_intdigest(text, 9)
        assert hashing.xxh64(surrounded, 7, 7 + length, np.uint64(9)) == expected
        assert hashing.xxh64(memory.hold(text), 0, length, np.uint64(9)) == expected
