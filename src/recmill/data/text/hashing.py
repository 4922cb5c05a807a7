"""XXH64 of bytes, inside kernels."""

import numpy as np

from recmill.data.text.swar import load_u64
from recmill.jit import njit, uint64

_P1 = np.uint64(11400714785074694791)
_P2 = np.uint64(14029467366897019727)
_P3 = np.uint64(1609587929392839161)
_P4 = np.uint64(9650029242287828579)
_P5 = np.uint64(2870177450012600261)


@njit(inline="always")
def _rotate_left(word: np.uint64, bits: np.uint64) -> np.uint64:
    return (word << bits) | (word >> (np.uint64(64) - bits))


@njit(inline="always")
def _round(accumulator: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate_left(accumulator + word * _P2, np.uint64(31)) * _P1


@njit(inline="always")
def _merge(hashed: np.uint64, lane: np.uint64) -> np.uint64:
    return (hashed ^ _round(np.uint64(0), lane)) * _P1 + _P4


@njit(inline="always")
def _take_word(hashed: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate_left(hashed ^ _round(np.uint64(0), word), np.uint64(27)) * _P1 + _P4


@njit(inline="always")
def _mix_bits(hashed: np.uint64) -> np.uint64:
    hashed = (hashed ^ (hashed >> np.uint64(33))) * _P2
    hashed = (hashed ^ (hashed >> np.uint64(29))) * _P3
    return hashed ^ (hashed >> np.uint64(32))


@njit(inline="always")
def xxh64_of_word(word: np.uint64, seed: np.uint64) -> np.uint64:
    """XXH64 of the eight bytes of a word, the lowest first."""
    return _mix_bits(_take_word(seed + _P5 + np.uint64(8), word))


@njit(nogil=True, cache=True)
def xxh64(buffer: np.ndarray, start: int, stop: int, seed: np.uint64) -> np.uint64:
    """XXH64 of `buffer[start:stop]`."""
    length = stop - start
    at = start
    if length >= 32:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, uint64(seed), seed - _P1
        while at + 32 <= stop:
            a = _round(a, load_u64(buffer, at))
            b = _round(b, load_u64(buffer, at + 8))
            c = _round(c, load_u64(buffer, at + 16))
            d = _round(d, load_u64(buffer, at + 24))
            at += 32
        hashed = (
            _rotate_left(a, np.uint64(1))
            + _rotate_left(b, np.uint64(7))
            + _rotate_left(c, np.uint64(12))
            + _rotate_left(d, np.uint64(18))
        )
        hashed = _merge(_merge(_merge(_merge(hashed, a), b), c), d)
    else:
        hashed = seed + _P5
    hashed += np.uint64(length)
    while at + 8 <= stop:
        hashed = _take_word(hashed, load_u64(buffer, at))
        at += 8
    if at + 4 <= stop:
        word = (
            uint64(buffer[at])
            | uint64(buffer[at + 1]) << np.uint64(8)
            | uint64(buffer[at + 2]) << np.uint64(16)
            | uint64(buffer[at + 3]) << np.uint64(24)
        )
        hashed = _rotate_left(hashed ^ (word * _P1), np.uint64(23)) * _P2 + _P3
        at += 4
    while at < stop:
        hashed = _rotate_left(hashed ^ (uint64(buffer[at]) * _P5), np.uint64(11)) * _P1
        at += 1
    return _mix_bits(hashed)
