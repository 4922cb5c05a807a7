"""Eight bytes at a time: unaligned loads, and decimal and hexadecimal digits decoded in one 64-bit register.

A text kernel that walks byte by byte mispredicts a branch at the end of almost every field. These functions find
the end of a run of digits with one count of trailing zeros and convert it with three multiplications.
The lowest byte of a loaded word is the first byte of the text (little-endian machines only).
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from recmill.jit import njit

HIGH = np.uint64(0x8080808080808080)
ASCII_ZEROS = np.uint64(0x3030303030303030)


@intrinsic
def load_u64(_context: Any, array: Any, index: Any) -> Any:
    """The eight bytes of a uint8 array that begin at `index`; the caller answers for the bounds."""
    signature = types.uint64(array, index)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        array_type = sig.args[0]
        view = context.make_array(array_type)(context, builder, arguments[0])
        address = cgutils.pointer_add(builder, view.data, arguments[1])
        word = builder.bitcast(address, ir.IntType(64).as_pointer())
        return builder.load(word, align=1)

    return signature, generate


@intrinsic
def load_u8(_context: Any, array: Any, index: Any) -> Any:
    """One byte, without the test for a negative index that `array[index]` carries."""
    signature = types.uint8(array, index)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        view = context.make_array(sig.args[0])(context, builder, arguments[0])
        return builder.load(builder.gep(view.data, [arguments[1]]))

    return signature, generate


@intrinsic
def trailing_zeros(_context: Any, word: Any) -> Any:
    """How many low bits of a uint64 are zero; 64 for zero."""
    signature = types.uint64(word)

    def generate(_context: Any, builder: Any, _sig: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return signature, generate


@intrinsic
def count_ones(_context: Any, word: Any) -> Any:
    """How many bits of a uint64 are set."""
    signature = types.uint64(word)

    def generate(_context: Any, builder: Any, _sig: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return signature, generate


@njit(inline="always")
def count_bytes(word: np.uint64, pattern: np.uint64) -> np.uint64:
    """How many of the eight bytes equal that of `pattern`, which repeats one byte eight times."""
    x = word ^ pattern
    low_bits = np.uint64(0x7F7F7F7F7F7F7F7F)
    differs = (((x & low_bits) + low_bits) | x) & HIGH
    return np.uint64(8) - count_ones(differs)


@njit(inline="always")
def count_leading_digits(word: np.uint64) -> np.uint64:
    """How many of the eight characters, from the first, are decimal digits."""
    digits = word ^ ASCII_ZEROS
    # A byte of ten or more gets its high bit from the addition. Carries run only towards later characters,
    # so the first character that is not a digit is always marked right.
    not_digit = ((digits + np.uint64(0x7676767676767676)) | digits) & HIGH
    return trailing_zeros(not_digit) >> np.uint64(3)


@njit(inline="always")
def decode_digits(word: np.uint64, count: np.uint64) -> np.uint64:
    """The number written in the first `count` characters (1 to 8), all of which are digits."""
    x = (word ^ ASCII_ZEROS) << (np.uint64(64) - (count << np.uint64(3)))
    x = ((x & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(2561)) >> np.uint64(8)
    x = ((x & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    return ((x & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)


@njit(inline="always")
def are_hex8(word: np.uint64) -> bool:
    """Whether all eight characters are hexadecimal digits, of either case."""
    exact = word | HIGH
    lower = exact | np.uint64(0x2020202020202020)
    digit = (exact - ASCII_ZEROS) & ~(exact - np.uint64(0x3A3A3A3A3A3A3A3A))
    letter = (lower - np.uint64(0x6161616161616161)) & ~(lower - np.uint64(0x6767676767676767))
    return (((digit | letter) & HIGH) == HIGH) & ((word & HIGH) == np.uint64(0))


@njit(inline="always")
def decode_hex8(word: np.uint64) -> np.uint64:
    """The 32-bit number written in eight hexadecimal digits."""
    letters = (word >> np.uint64(6)) & np.uint64(0x0101010101010101)
    x = (word & np.uint64(0x0F0F0F0F0F0F0F0F)) + letters * np.uint64(9)
    x = ((x << np.uint64(4)) | (x >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    x = ((x << np.uint64(8)) | (x >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return ((x << np.uint64(16)) | (x >> np.uint64(32))) & np.uint64(0x00000000FFFFFFFF)
