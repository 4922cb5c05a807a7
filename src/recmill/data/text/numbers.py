"""Numbers in decimal digits, one field at a time, inside kernels: the plain are read, the rest is left to Python."""

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.swar import decode_digits, digits_of, item, load_u64, not_digits
from recmill.jit import njit, uint64

MINUS = np.uint8(45)
ZERO = np.uint8(48)

_POWERS_OF_TEN = np.array([10.0**e for e in range(23)])  # the powers a double holds exactly
_POWERS_OF_TEN_INT = np.array([10**e for e in range(9)])


@njit(nogil=True, cache=True)
def float_number(buffer: NDArray[np.uint8], at: int, decimal: int) -> tuple[float, int]:
    """A decimal number whose digits and power of ten a double holds exactly, and where it ends; else position −1.

    With at most 15 digits and a power within ±22 one multiplication or division rounds right; the rest is rare
    enough for Python.
    """
    negative = item(buffer, at) == MINUS
    if negative:
        at += 1
    mantissa, digits, power = 0, 0, 0
    while ZERO <= item(buffer, at) <= ZERO + np.uint8(9):
        mantissa = mantissa * 10 + (item(buffer, at) - ZERO)
        digits += 1
        at += 1
        if digits > 15:
            return 0.0, -1
    if item(buffer, at) == decimal:
        at += 1
        while ZERO <= item(buffer, at) <= ZERO + np.uint8(9):
            mantissa = mantissa * 10 + (item(buffer, at) - ZERO)
            digits += 1
            power -= 1
            at += 1
            if digits > 15:
                return 0.0, -1
    if digits == 0 or power < -22:
        return 0.0, -1
    value = mantissa / _POWERS_OF_TEN[-power]
    return (-value if negative else value), at


@njit(nogil=True, cache=True)
def integer(buffer: NDArray[np.uint8], start: np.int64, end: np.int64) -> tuple[np.int64, bool]:
    """The integer of up to 16 digits that fills a field, and whether it is one."""
    negative = np.int64(item(buffer, start) == MINUS)
    count = end - start - negative
    if count < 1 or count > 16:
        return np.int64(0), False
    head = count if count < 8 else np.int64(8)
    digits = digits_of(load_u64(buffer, start + negative), head)
    more = digits_of(load_u64(buffer, start + negative + head), count - head)
    value = np.int64(decode_digits(digits)) * item(_POWERS_OF_TEN_INT, count - head) + np.int64(decode_digits(more))
    return (-value if negative else value), (not_digits(digits) | not_digits(more)) == uint64(0)


@njit(nogil=True, cache=True)
def number_of(
    buffer: NDArray[np.uint8], is_integer: bool, begin: np.int64, end: np.int64, decimal: int
) -> tuple[float, bool]:
    """The number that fills a field, and whether it is one that needs no second look."""
    if is_integer:
        value, is_right = integer(buffer, begin, end)
        return np.float64(value), is_right
    number, number_end = float_number(buffer, begin, decimal)
    return number, bool(end > begin and number_end == end)
