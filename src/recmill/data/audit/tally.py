"""Counts per value in bounded memory: exact while the values are few, then of a sample or of coarser values.

1. A `HashTally` is a hash table from 64-bit keys to four counts, one for each code a row may have.
2. When a table of the largest size is full, it is thinned by one level. Categories are sampled: level l keeps the
   values whose hash ends in l zero bits, 1 in 2^l, with all their rows (Flajolet's adaptive sampling: unlike
   HyperLogLog it knows the counts of its values, and so what covers the rows and what gives the label away).
   Numbers are rounded: level l drops the l lowest bits of the float.
3. The level is the lowest at which the keys fit, so the result depends on the rows and not on their order.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.audit.heavy import HeavyValues
from recmill.data.text.fields import MISSING_CATEGORY
from recmill.jit import njit, uint64
from recmill.seeds import mix64

Words = NDArray[np.uint64]
Thinning = Literal["sample", "round"]

EMPTY = MISSING_CATEGORY  # no key equals it: in a column it says that the value is missing
NUM_CODES = 4
_FIRST_CAPACITY = 1 << 10
_SIGN = np.uint64(1 << 63)
_ONES = np.uint64(2**64 - 1)


class Slots(NamedTuple):
    """An open-addressing table, and the rows whose value is missing."""

    keys: Words
    counts: NDArray[np.int64]  # (slots, codes)
    missing: NDArray[np.int64]  # (codes,)


class Sieve(NamedTuple):
    """What a level does to keys: the bits that survive, and those of the hash that must be zero."""

    kept_bits: np.uint64
    zero_bits: np.uint64


@njit(inline="always")
def _slot_of(keys: Words, key: np.uint64, hashed: np.uint64) -> np.uint64:
    """Where a key is, or would go."""
    last = uint64(len(keys) - 1)
    # the lowest bits of a sample's hashes are all zero
    at = (hashed >> uint64(24)) & last
    while keys[at] != key and keys[at] != EMPTY:
        at = (at + uint64(1)) & last
    return at


@njit(nogil=True, cache=True)
def _count(
    slots: Slots, sieve: Sieve, inputs: Words, codes: NDArray[np.uint8], start: int, num_keys: int
) -> tuple[int, int]:
    """Count rows from `start` on until they end or a new key finds the table half full: the row reached, the keys."""
    max_keys = len(slots.keys) // 2
    for row in range(start, len(inputs)):
        if inputs[row] == EMPTY:
            slots.missing[codes[row]] += 1
            continue
        key = inputs[row] & sieve.kept_bits
        hashed = mix64(key)
        if hashed & sieve.zero_bits != uint64(0):
            continue
        at = _slot_of(slots.keys, key, hashed)
        if slots.keys[at] == EMPTY:
            if num_keys == max_keys:
                return row, num_keys
            slots.keys[at] = key
            num_keys += 1
        slots.counts[at, codes[row]] += 1
    return len(inputs), num_keys


@njit(nogil=True, cache=True)
def _refill(old: Slots, sieve: Sieve, new: Slots) -> int:
    """Bring what passes the sieve into another table; how many keys that has."""
    num_keys = 0
    for i in range(len(old.keys)):
        if old.keys[i] == EMPTY:
            continue
        key = old.keys[i] & sieve.kept_bits
        hashed = mix64(key)
        if hashed & sieve.zero_bits != uint64(0):
            continue
        at = _slot_of(new.keys, key, hashed)
        num_keys += 1 if new.keys[at] == EMPTY else 0
        new.keys[at] = key
        for code in range(NUM_CODES):
            new.counts[at, code] += old.counts[i, code]
    return num_keys


def _new_slots(capacity: int, missing: NDArray[np.int64]) -> Slots:
    return Slots(np.full(capacity, EMPTY), np.zeros((capacity, NUM_CODES), np.int64), missing)


class HashTally:
    """Counts of rows per key and code, of at most `max_keys` (a power of two) keys: 80 bytes for each at the most."""

    def __init__(self, max_keys: int, thinning: Thinning, *, heavy: HeavyValues | None = None) -> None:
        assert max_keys.bit_count() == 1, "a power of two"
        assert thinning == "sample" or max_keys >= 1 << 13, "with so many keys the exponent is never rounded away"
        self._max_keys, self._thinning, self._heavy = max_keys, thinning, heavy
        self._slots = _new_slots(min(_FIRST_CAPACITY, 2 * max_keys), np.zeros(NUM_CODES, np.int64))
        self.num_keys, self.level = 0, 0

    def add(self, inputs: Words, codes: NDArray[np.uint8]) -> None:
        """Count some rows: their keys, EMPTY where missing, and their codes."""
        at = 0
        heavy_from = 0 if self.level else len(inputs)
        while True:
            at, self.num_keys = _count(self._slots, self._sieve, inputs, codes, at, self.num_keys)
            if at == len(inputs):
                break
            capacity = len(self._slots.keys)
            if capacity < 2 * self._max_keys:
                self._refill(2 * capacity)
                continue
            if self.level == 0 and self._heavy is not None:
                keys, counts = self.entries()
                self._heavy.seed(keys, counts.sum(axis=1))
                heavy_from = at
            self.level += 1
            self._refill(capacity)
        if self._heavy is not None:
            self._heavy.add(inputs[heavy_from:])

    def entries(self) -> tuple[Words, NDArray[np.int64]]:
        """The keys, ascending, and their counts per code."""
        used = np.flatnonzero(self._slots.keys != EMPTY)
        used = used[np.argsort(self._slots.keys[used])]
        return self._slots.keys[used], self._slots.counts[used]

    @property
    def missing(self) -> NDArray[np.int64]:
        """The rows without a value, per code."""
        return self._slots.missing

    @property
    def is_exact(self) -> bool:
        """Whether every row is in it, under its own value."""
        return self.level == 0

    @property
    def num_distinct(self) -> int:
        """How many values there are: exactly, or estimated from the sample."""
        assert self.is_exact or self._thinning == "sample", "rounded values cannot be counted"
        return self.num_keys << self.level

    @property
    def distinct_error_frac(self) -> float:
        """The standard error of `num_distinct`, as a share of it."""
        return 0.0 if self.is_exact else float(1 / np.sqrt(max(self.num_keys, 1)))

    @property
    def _sieve(self) -> Sieve:
        low_bits = np.uint64((1 << self.level) - 1)
        return Sieve(_ONES, low_bits) if self._thinning == "sample" else Sieve(~low_bits, np.uint64(0))

    def _refill(self, capacity: int) -> None:
        slots = _new_slots(capacity, self._slots.missing)
        self.num_keys = _refill(self._slots, self._sieve, slots)
        self._slots = slots


# Numbers and their keys. As signed integers keys are in the order of the numbers; the key of a NaN is EMPTY.


@njit(nogil=True, cache=True)
def keys_of_numbers(numbers: NDArray[np.float64]) -> Words:
    """Floats as keys."""
    keys = np.empty(len(numbers), np.uint64)
    for row in range(len(numbers)):
        number = numbers[row] + 0.0  # both zeros are one number
        bits = np.float64(number).view(np.uint64)
        key = bits ^ (_ONES ^ _SIGN) if bits & _SIGN != uint64(0) else bits
        keys[row] = EMPTY if number != number else key
    return keys


def numbers_of_keys(keys: Words) -> NDArray[np.float64]:
    """The floats of keys that are not EMPTY."""
    negative = keys >= _SIGN
    return np.where(negative, keys ^ (_ONES ^ _SIGN), keys).view(np.float64)
