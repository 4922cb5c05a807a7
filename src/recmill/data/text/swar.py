"""Many bytes at a time: unaligned loads, bytes found, decimal and hexadecimal digits decoded in one register.

A text kernel that walks byte by byte mispredicts a branch at the end of almost every field. These functions have no
branch: a loop over many fields that calls them becomes one over vectors.
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
def item(_context: Any, array: Any, index: Any) -> Any:
    """An element of a one-dimensional array, without the test for a negative index that `array[index]` carries."""
    signature = array.dtype(array, index)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        view = context.make_array(sig.args[0])(context, builder, arguments[0])
        return builder.load(builder.gep(view.data, [arguments[1]]))

    return signature, generate


@intrinsic
def match64(_context: Any, array: Any, index: Any, byte: Any) -> Any:
    """Which of the 64 bytes from `index` on equal `byte`: bit i for the i-th; the caller answers for the bounds."""
    signature = types.uint64(array, index, byte)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        view = context.make_array(sig.args[0])(context, builder, arguments[0])
        bytes64 = ir.VectorType(ir.IntType(8), 64)
        address = cgutils.pointer_add(builder, view.data, arguments[1])
        data = builder.load(builder.bitcast(address, bytes64.as_pointer()), align=1)
        nothing = ir.Constant(bytes64, ir.Undefined)
        first = builder.insert_element(nothing, arguments[2], ir.IntType(32)(0))
        everywhere = builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64))
        return builder.bitcast(builder.icmp_unsigned("==", data, everywhere), ir.IntType(64))

    return signature, generate


@intrinsic
def copy_rows(_context: Any, address: Any, row: Any, out: Any, at: Any, num_rows: Any) -> Any:
    """Rows of an array like `out`, which begins at an address, from `row` on, into `out` from `at` on."""
    signature = types.none(address, row, out, at, num_rows)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        address, row, out, at, num_rows = arguments
        view = context.make_array(sig.args[2])(context, builder, out)
        row_bytes = cgutils.unpack_tuple(builder, view.strides)[0]
        bytes_type = ir.IntType(8).as_pointer()
        source = builder.gep(builder.inttoptr(address, bytes_type), [builder.mul(row, row_bytes)])
        target = builder.gep(builder.bitcast(view.data, bytes_type), [builder.mul(at, row_bytes)])
        cgutils.raw_memcpy(builder, target, source, num_rows, row_bytes)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def trailing_zeros(_context: Any, word: Any) -> Any:
    """How many low bits of a uint64 are zero; 64 for zero."""
    signature = types.uint64(word)

    def generate(_context: Any, builder: Any, _sig: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return signature, generate


@intrinsic
def leading_zeros(_context: Any, word: Any) -> Any:
    """How many high bits of a uint64 are zero; 64 for zero."""
    signature = types.uint64(word)

    def generate(_context: Any, builder: Any, _sig: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return signature, generate


@intrinsic
def copy_16(_context: Any, out: Any, to: Any, array: Any, at: Any) -> Any:
    """Sixteen bytes of one uint8 array into another; the caller answers for the bounds of both."""
    signature = types.none(out, to, array, at)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        word = ir.VectorType(ir.IntType(8), 16).as_pointer()
        target = cgutils.pointer_add(
            builder, context.make_array(sig.args[0])(context, builder, arguments[0]).data, arguments[1]
        )
        source = cgutils.pointer_add(
            builder, context.make_array(sig.args[2])(context, builder, arguments[2]).data, arguments[3]
        )
        data = builder.load(builder.bitcast(source, word), align=1)
        builder.store(data, builder.bitcast(target, word), align=1)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def count_ones(_context: Any, word: Any) -> Any:
    """How many bits of a uint64 are set."""
    signature = types.uint64(word)

    def generate(_context: Any, builder: Any, _sig: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return signature, generate


@njit(inline="always")
def digits_of(word: np.uint64, count: np.int64) -> np.uint64:
    """The first `count` characters (0 to 8) as digits to be decoded: moved to the end, with zeros in front."""
    half = np.uint64(32 - (count << 2))  # in two steps, because a shift by 64 has no meaning
    return ((word ^ ASCII_ZEROS) << half) << half


@njit(inline="always")
def not_digits(digits: np.uint64) -> np.uint64:
    """Something other than zero if one of the eight is not a digit."""
    return ((digits + np.uint64(0x7676767676767676)) | digits) & HIGH


@njit(inline="always")
def decode_digits(digits: np.uint64) -> np.uint64:
    """The number that eight digits make."""
    x = ((digits & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(2561)) >> np.uint64(8)
    x = ((x & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    return ((x & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)


@njit(inline="always")
def not_hex8(word: np.uint64) -> np.uint64:
    """Something other than zero if one of the eight characters is no hexadecimal digit, of either case."""
    exact = word | HIGH
    lower = exact | np.uint64(0x2020202020202020)
    digit = (exact - ASCII_ZEROS) & ~(exact - np.uint64(0x3A3A3A3A3A3A3A3A))
    letter = (lower - np.uint64(0x6161616161616161)) & ~(lower - np.uint64(0x6767676767676767))
    return (~(digit | letter) | word) & HIGH


@njit(inline="always")
def decode_hex8(word: np.uint64) -> np.uint64:
    """The 32-bit number written in eight hexadecimal digits."""
    letters = (word >> np.uint64(6)) & np.uint64(0x0101010101010101)
    x = (word & np.uint64(0x0F0F0F0F0F0F0F0F)) + letters * np.uint64(9)
    x = ((x << np.uint64(4)) | (x >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    x = ((x << np.uint64(8)) | (x >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return ((x << np.uint64(16)) | (x >> np.uint64(32))) & np.uint64(0x00000000FFFFFFFF)


@njit(inline="always")
def encode_hex8(value: np.uint64) -> np.uint64:
    """The eight lower-case hexadecimal digits of a 32-bit number."""
    x = (value >> np.uint64(16)) | ((value & np.uint64(0xFFFF)) << np.uint64(32))
    low = np.uint64(0x000000FF000000FF)
    x = ((x >> np.uint64(8)) & low) | ((x & low) << np.uint64(16))
    low = np.uint64(0x000F000F000F000F)
    x = ((x >> np.uint64(4)) & low) | ((x & low) << np.uint64(8))
    letters = ((x + np.uint64(0x0606060606060606)) >> np.uint64(4)) & np.uint64(0x0101010101010101)
    return x + ASCII_ZEROS + letters * np.uint64(39)
