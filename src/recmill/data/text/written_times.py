"""Times in text to whole seconds since 1970, UTC: slowly and obviously, by Python's own calendar."""

import re
from datetime import UTC, datetime, timedelta

from recmill.settings.columns import TimeFormat, TimePart

# What a field of each format is, for messages.
WANTED: dict[TimeFormat, str] = {
    "iso": "a time such as 2024-05-31, 2024-05-31 23:59:59.5 or 2024-05-31T23:59Z (ISO 8601)",
    "epoch_s": "seconds since 1970, in the years 1 to 9999",
    "epoch_ms": "milliseconds since 1970, in the years 1 to 9999",
    "YYMMDDHH": "year, month, day and hour in eight digits, such as 24053123",
    "YYYYMMDD": "year, month and day in eight digits, such as 20240531",
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
FIRST_MOMENT = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // _SECOND
LAST_MOMENT = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - EPOCH) // _SECOND

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d+)?)?(?:Z|([+-])(\d\d)(?::?(\d\d))?)?)?", re.ASCII
)
_EPOCH = re.compile(r"(-?\d+)(?:\.(\d*))?", re.ASCII)
_EIGHT_DIGITS = re.compile(r"\d{8}", re.ASCII)


def read_time(field: bytes, time_format: TimeFormat) -> int | None:
    """The whole seconds since 1970, fractions cut off towards the past; None if it is no such time."""
    text = field.decode("latin-1")
    if time_format in ("epoch_s", "epoch_ms"):
        return _read_epoch(text, 1000 if time_format == "epoch_ms" else 1)
    try:
        moment = _read_iso(text) if time_format == "iso" else _read_digits(text, time_format)
    except (ValueError, OverflowError):  # a month 13; a time zone ahead of the year 1
        return None
    return None if moment is None else (moment - EPOCH) // _SECOND


def _read_iso(text: str) -> datetime | None:
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    sign, hours, minutes = found[7], int(found[8] or 0), int(found[9] or 0)
    if hours > 23 or minutes > 59:
        return None
    ahead = timedelta(hours=hours, minutes=minutes)
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    return moment + ahead if sign == "-" else moment - ahead


def _read_digits(text: str, time_format: TimeFormat) -> datetime | None:
    if _EIGHT_DIGITS.fullmatch(text) is None:
        return None
    if time_format == "YYYYMMDD":
        return datetime(int(text[:4]), int(text[4:6]), int(text[6:]), tzinfo=UTC)
    return datetime(2000 + int(text[:2]), int(text[2:4]), int(text[4:6]), int(text[6:]), tzinfo=UTC)


def _read_epoch(text: str, per_second: int) -> int | None:
    found = _EPOCH.fullmatch(text)
    digits = found[1].lstrip("-0") if found else ""  # Python does not convert thousands of digits
    if found is None or len(digits) > 18:
        return None
    whole = -int(digits or 0) if text.startswith("-") else int(digits or 0)
    is_below = text.startswith("-") and bool((found[2] or "").strip("0"))
    seconds = (whole - is_below) // per_second
    return seconds if FIRST_MOMENT <= seconds <= LAST_MOMENT else None


def part_of_moment(seconds: int, part: TimePart) -> int:
    """A part of a time as a number: hours 0 to 23, weekdays 0 (Monday) to 6, days 1 to 31, months 1 to 12."""
    moment = EPOCH + timedelta(seconds=seconds)
    return moment.weekday() if part == "weekday" else int(getattr(moment, part))


def days_of(seconds: int) -> float:
    """The days since 1970, with their fraction."""
    return seconds / 86400
