"""Times to whole seconds since 1970, field by field, inside kernels: the plain are read, the rest is left to Python.

Dates are counted from 1 March, so that the leap day is the last of a year.
"""

from typing import get_args

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.numbers import MINUS, ZERO, integer
from recmill.data.text.swar import item
from recmill.data.text.written_times import FIRST_MOMENT, LAST_MOMENT
from recmill.jit import njit
from recmill.settings.columns import TimeFormat, TimePart

# The codes of formats and parts: their places among the settings.
ISO, EPOCH_S, EPOCH_MS, YYMMDDHH, YYYYMMDD = range(5)
NO_PART = -1
HOUR, WEEKDAY, DAY, MONTH, DAYS, AGE = range(6)

_DAYS_OF_400_YEARS, _DAYS_TO_1970 = 146097, 719468
_MONTH_LENGTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_PLUS, _DASH, _COLON, _POINT, _SPACE, _T, _Z = (np.uint8(ord(each)) for each in "+-:. TZ")


def time_details(time_format: TimeFormat | None, part: TimePart | None) -> list[int]:
    """A format and a part as the kernel wants them."""
    return [get_args(TimeFormat).index(time_format), NO_PART if part is None else get_args(TimePart).index(part)]


@njit(nogil=True, cache=True)
def _two_digits(buffer: NDArray[np.uint8], at: np.int64) -> np.int64:
    """The number of two digits; a large negative one if they are none."""
    high, low = np.int64(item(buffer, at)) - 48, np.int64(item(buffer, at + 1)) - 48
    return high * 10 + low if 0 <= high <= 9 and 0 <= low <= 9 else np.int64(-100_000)


@njit(nogil=True, cache=True)
def _days_of(year: np.int64, month: np.int64, day: np.int64) -> tuple[np.int64, bool]:
    """The days since 1970 of a date, and whether there is such a date."""
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1:
        return np.int64(0), False
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    is_right = day <= _MONTH_LENGTHS[month - 1] + np.int64(is_leap and month == 2)
    from_march = year - np.int64(month <= 2)
    of_400 = from_march % 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = from_march // 400 * _DAYS_OF_400_YEARS + of_400 * 365 + of_400 // 4 - of_400 // 100 + day_of_year
    return days - _DAYS_TO_1970, is_right


@njit(nogil=True, cache=True)
def _offset(buffer: NDArray[np.uint8], begin: np.int64, end: np.int64) -> tuple[np.int64, bool]:
    """What to add to get UTC: the seconds of Z, of +02:00 or of nothing, and whether it is one of these."""
    if begin == end:
        return np.int64(0), True
    sign = item(buffer, begin)
    if end - begin == 1:
        return np.int64(0), sign == _Z
    if end - begin != 6 or (sign != _PLUS and sign != MINUS) or item(buffer, begin + 3) != _COLON:
        return np.int64(0), False
    hours, minutes = _two_digits(buffer, begin + 1), _two_digits(buffer, begin + 4)
    ahead = hours * 3600 + minutes * 60
    return (ahead if sign == MINUS else -ahead), 0 <= hours <= 23 and 0 <= minutes <= 59


@njit(nogil=True, cache=True)
def _iso_seconds(buffer: NDArray[np.uint8], begin: np.int64, end: np.int64) -> tuple[np.int64, bool]:
    """Of a date, or of a date and a time of day."""
    length = end - begin
    if length < 10 or item(buffer, begin + 4) != _DASH or item(buffer, begin + 7) != _DASH:
        return np.int64(0), False
    year = _two_digits(buffer, begin) * 100 + _two_digits(buffer, begin + 2)
    days, is_right = _days_of(year, _two_digits(buffer, begin + 5), _two_digits(buffer, begin + 8))
    if length == 10 or not is_right:
        return days * 86400, is_right
    between = item(buffer, begin + 10)
    if length < 16 or (between != _T and between != _SPACE) or item(buffer, begin + 13) != _COLON:
        return np.int64(0), False
    hour, minute, second = _two_digits(buffer, begin + 11), _two_digits(buffer, begin + 14), np.int64(0)
    at = begin + 16
    if end - at >= 3 and item(buffer, at) == _COLON:
        second = _two_digits(buffer, at + 1)
        at += 3
        if end - at >= 2 and item(buffer, at) == _POINT:
            first = at + 1
            at = first
            while at < end and ZERO <= item(buffer, at) <= ZERO + np.uint8(9):
                at += 1
            is_right = at > first
    offset, is_offset = _offset(buffer, at, end)
    is_right &= is_offset and 0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59
    return days * 86400 + hour * 3600 + minute * 60 + second + offset, is_right


@njit(nogil=True, cache=True)
def _digits_seconds(
    buffer: NDArray[np.uint8], time_format: np.int64, begin: np.int64, end: np.int64
) -> tuple[np.int64, bool]:
    """Of eight digits."""
    if end - begin != 8:
        return np.int64(0), False
    first, second = _two_digits(buffer, begin), _two_digits(buffer, begin + 2)
    third, fourth = _two_digits(buffer, begin + 4), _two_digits(buffer, begin + 6)
    if time_format == YYYYMMDD:
        days, is_right = _days_of(first * 100 + second, third, fourth)
        return days * 86400, is_right
    days, is_right = _days_of(first + 2000, second, third)
    return days * 86400 + fourth * 3600, is_right and 0 <= fourth <= 23


@njit(nogil=True, cache=True)
def seconds_of(
    buffer: NDArray[np.uint8], time_format: np.int64, begin: np.int64, end: np.int64
) -> tuple[np.int64, bool]:
    """The seconds since 1970 of the time that fills a field, and whether it is one that needs no second look."""
    if time_format == ISO:
        seconds, is_right = _iso_seconds(buffer, begin, end)
    elif time_format in (EPOCH_S, EPOCH_MS):
        number, is_right = integer(buffer, begin, end)
        seconds = number // 1000 if time_format == EPOCH_MS else number
    else:
        seconds, is_right = _digits_seconds(buffer, time_format, begin, end)
    return seconds, is_right and FIRST_MOMENT <= seconds <= LAST_MOMENT


@njit(nogil=True, cache=True)
def part_of(seconds: np.int64, part: np.int64) -> np.int64:
    """A part of a time that is a category."""
    if part == HOUR:
        return seconds % 86400 // 3600
    days = seconds // 86400
    if part == WEEKDAY:
        return (days + 3) % 7  # 1970 began on a Thursday
    of_era = (days + _DAYS_TO_1970) % _DAYS_OF_400_YEARS
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    day_of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    return day_of_year - (153 * month + 2) // 5 + 1 if part == DAY else (month + 2) % 12 + 1
