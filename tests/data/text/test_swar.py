"""Bytes in a register against the same question asked of a Python string."""

from random import Random

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from recmill.data.text import swar
from tests.data.lines import TELLING_BYTES

Words = NDArray[np.uint64]
HEX_DIGITS = b"0123456789abcdefABCDEF"

# Not cached: numba would not notice a change in swar.py, and answer with yesterday's machine code.


@njit
def _digits(words: Words, counts: NDArray[np.int64]) -> tuple[NDArray[np.bool_], Words]:
    digits = np.array([swar.digits_of(words[i], counts[i]) for i in range(len(words))])
    return np.array([swar.not_digits(word) == 0 for word in digits]), np.array([swar.decode_digits(w) for w in digits])


@njit
def _hex(words: Words) -> tuple[NDArray[np.bool_], Words]:
    return np.array([swar.not_hex8(word) == 0 for word in words]), np.array([swar.decode_hex8(word) for word in words])


@njit
def _hex_digits(values: Words) -> Words:
    return np.array([swar.encode_hex8(value) for value in values])


@njit
def _matches(array: NDArray[np.uint8], byte: np.uint8) -> Words:
    return np.array([swar.match64(array, at, byte) for at in range(len(array) - 63)])


@njit
def _bits(words: Words) -> tuple[Words, Words]:
    return np.array([swar.trailing_zeros(word) for word in words]), np.array([swar.count_ones(word) for word in words])


@njit
def _loaded(array: NDArray[np.uint8], last: int) -> tuple[Words, NDArray[np.uint8]]:
    words = np.array([swar.load_u64(array, at) for at in range(last)])
    return words, np.array([swar.item(array, at) for at in range(last)])


def _words(texts: list[bytes]) -> Words:
    return np.frombuffer(b"".join(texts), "<u8")


@pytest.fixture(scope="module")
def texts() -> list[bytes]:
    """Eight characters each: arbitrary, or digits of one kind with a few telling ones among them."""
    random = Random(3)
    out = [random.randbytes(8) for _ in range(5_000)]
    for alphabet in (b"0123456789", HEX_DIGITS, TELLING_BYTES):
        for _ in range(10_000):
            text = bytearray(random.choices(alphabet, k=8))
            for _ in range(random.randrange(3)):
                text[random.randrange(8)] = random.choice((random.randrange(256), random.choice(TELLING_BYTES)))
            out.append(bytes(text))
    return out + [bytes([byte]) * 8 for byte in range(256)]


def test_every_byte_in_every_place_is_told_apart() -> None:
    texts = [b"5" * at + bytes([byte]) + b"7" * (7 - at) for at in range(8) for byte in range(256)]
    assert _digits(_words(texts), np.full(len(texts), 8))[0].tolist() == [text.isdigit() for text in texts]
    assert _hex(_words(texts))[0].tolist() == [set(text) <= set(HEX_DIGITS) for text in texts]


def test_digits_are_recognised_and_decoded_whatever_follows_them(texts: list[bytes]) -> None:
    heads = [(text, count) for text in texts for count in range(9)]
    are_digits, decoded = _digits(_words([text for text, _ in heads]), np.array([count for _, count in heads]))
    expected = [text[:count].isdigit() or count == 0 for text, count in heads]
    assert are_digits.tolist() == expected
    assert 1000 < sum(expected) < len(heads)
    numbers = [int(text[:count] or b"0") for (text, count), yes in zip(heads, expected, strict=True) if yes]
    assert decoded[are_digits].tolist() == numbers


def test_hex_digits_are_recognised_and_decoded(texts: list[bytes]) -> None:
    are_hex, decoded = _hex(_words(texts))
    expected = [set(text) <= set(HEX_DIGITS) for text in texts]
    assert are_hex.tolist() == expected
    assert 1000 < sum(expected) < len(texts)
    assert decoded[are_hex].tolist() == [int(text, 16) for text, yes in zip(texts, expected, strict=True) if yes]


@pytest.mark.parametrize("byte", [0, 9, 10, 11, 0x7F, 0x80, 0x8A, 0xFF])
def test_bytes_are_found(byte: int) -> None:
    text = bytes(Random(6).choices([byte, byte ^ 1, byte ^ 0x80, 0, 255], k=400))
    expected = [sum((text[at + i] == byte) << i for i in range(64)) for at in range(len(text) - 63)]
    assert _matches(np.frombuffer(text, np.uint8), np.uint8(byte)).tolist() == expected


def test_bits_are_counted() -> None:
    random = Random(4)
    words = [0, *(1 << i for i in range(64)), *(random.getrandbits(64) << random.randrange(64) for _ in range(1000))]
    words = [word % 2**64 for word in words]
    zeros, ones = _bits(np.array(words, np.uint64))
    assert zeros.tolist() == [(word & -word).bit_length() - 1 if word else 64 for word in words]
    assert ones.tolist() == [word.bit_count() for word in words]


def test_loads_take_the_bytes_in_order_at_any_alignment() -> None:
    text = Random(5).randbytes(40)
    words, octets = _loaded(np.frombuffer(text, np.uint8), 33)
    assert words.tolist() == [int.from_bytes(text[at : at + 8], "little") for at in range(33)]
    assert octets.tolist() == list(text[:33])


def test_hexadecimal_digits_are_those_python_writes() -> None:
    random = Random(3)
    numbers = [0, 1, 9, 10, 15, 16, 0x9A9A9A9A, 0xA9A9A9A9, 2**32 - 1, *(random.getrandbits(32) for _ in range(5000))]
    words = _hex_digits(np.array(numbers, np.uint64))
    assert [word.tobytes().decode() for word in words] == [f"{number:08x}" for number in numbers]
