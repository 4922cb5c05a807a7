"""Labels other than 0 and 1, inside kernels: truth values, and fields that a schema calls positive."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.hashing import xxh64
from recmill.data.text.numbers import number_of
from recmill.data.text.swar import load_u64
from recmill.jit import njit, uint64
from recmill.settings.labels import OPERATORS, LabelRule

# What the details of a label begin with: how its fields are compared.
TEXTS, NUMBERS, BOUND = range(3)

_TRUE, _FALSE = (np.uint64(int.from_bytes(word, "little")) for word in (b"true", b"false"))
_LOWER_CASE = np.uint64(0x2020202020202020)


def label_details(rule: LabelRule, kind: str | None) -> list[int]:
    """A rule as the kernel wants it: how to compare, whether with integers, and hashes or the bits of numbers."""
    if rule.texts:
        hashes = [xxh64(np.frombuffer(text, np.uint8), 0, len(text), np.uint64(0)) for text in rule.texts]
        return [TEXTS, 0, len(hashes), *np.array(hashes, np.uint64).view(np.int64).tolist()]
    is_integer = int(kind == "int")
    if rule.operator:
        return [BOUND, is_integer, OPERATORS.index(rule.operator), *_bits([rule.bound])]
    return [NUMBERS, is_integer, len(rule.numbers), *_bits([number + 0.0 for number in rule.numbers])]


def _bits(numbers: Sequence[float]) -> list[int]:
    bits: list[int] = np.array(numbers, np.float64).view(np.int64).tolist()
    return bits


@njit(nogil=True, cache=True)
def truth_value(buffer: NDArray[np.uint8], begin: np.int64, end: np.int64) -> int:
    """1 for true and 0 for false, in any case; −1 for anything else."""
    length = end - begin
    if length != 4 and length != 5:
        return -1
    half = np.uint64(4 * length)  # in two steps, because a shift by 64 has no meaning
    word = (load_u64(buffer, begin) & ~((~uint64(0) << half) << half)) | (_LOWER_CASE >> np.uint64(64 - 8 * length))
    return 1 if word == _TRUE else 0 if word == _FALSE else -1


@njit(nogil=True, cache=True)
def is_positive(
    buffer: NDArray[np.uint8], details: NDArray[np.int64], begin: np.int64, end: np.int64, decimal: int
) -> tuple[bool, bool]:
    """Whether a field is positive, and whether it is in order. Details may end in zeros that mean nothing."""
    if details[0] == TEXTS:
        hashed = np.int64(xxh64(buffer, begin, end, np.uint64(0)))
        return _is_among(hashed, details[3:], details[2]), begin != end
    number, is_right = number_of(buffer, details[1] == 1, begin, end, decimal)
    if details[0] == NUMBERS:
        return _is_among(np.float64(number + 0.0).view(np.int64), details[3:], details[2]), is_right
    bound = details[3:4].view(np.float64)[0]
    if details[2] < 2:
        return (number >= bound if details[2] == 0 else number <= bound), is_right
    return (number > bound if details[2] == 2 else number < bound), is_right


@njit(nogil=True, cache=True)
def _is_among(value: np.int64, values: NDArray[np.int64], count: np.int64) -> bool:
    found = False
    for i in range(count):
        found |= values[i] == value
    return found
