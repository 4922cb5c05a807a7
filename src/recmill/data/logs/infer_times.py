"""Columns of times in a sample: recognised by how all of their values are written, and parts of them suggested."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recmill.data.text.written_times import WANTED, read_time
from recmill.errors import DataError
from recmill.settings.columns import TimeFormat, TimePart

_NAME_OF_A_TIME = re.compile(r"time|date|(^|_)(ts|dt|hour|day|at)($|_)|[a-z](Ts|At|Day)$", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?")
_FIRST_YEAR, _END_YEAR = (read_time(date, "iso") or 0 for date in (b"1990-01-01", b"2100-01-01"))
PART_NOTES: dict[TimePart, str] = {"hour": "the hour, 0 to 23, of", "weekday": "the weekday, 0 (Monday) to 6, of"}
# In the order in which they are tried; of numbers only times of these years are believed, and of most only by name.
_FORMATS: tuple[TimeFormat, ...] = ("iso", "YYYYMMDD", "YYMMDDHH", "epoch_s", "epoch_ms")


class TimeGuess(NamedTuple):
    """How a column's times are written, what was seen of them, and the parts that are worth a column."""

    time_format: TimeFormat
    note: str
    parts: tuple[TimePart, ...]


def require_time(name: str, present: Sequence[str]) -> TimeGuess:
    """The format of a column that is said to be one of times."""
    found = guess_time(name, present, is_named=True)
    if found is None:
        shown = ", ".join(repr(value[:30]) for value in sorted(set(present))[:3]) or "nothing but empty fields"
        known = "; ".join(f"{time_format}: {WANTED[time_format]}" for time_format in _FORMATS)
        raise DataError(
            f"--time {name}: the column holds {shown}, and not all of it is of one format that is known ({known}), "
            "numbers of the years 1990 to 2099; write the times so, or name another column"
        )
    return found._replace(note=f"the time, as asked for: {found.note}")


def guess_time(name: str, present: Sequence[str], *, is_named: bool = False) -> TimeGuess | None:
    """The format that all values have, if they are times; more are believed if a name says so."""
    distinct = {value.encode() for value in present}
    if not distinct:
        return None
    is_named = is_named or _NAME_OF_A_TIME.search(name) is not None
    is_number = _NUMBER.fullmatch(present[0]) is not None
    for time_format in _FORMATS:
        if is_number == (time_format == "iso") or not (is_named or _needs_no_name(time_format, len(distinct))):
            continue
        moments = _read_all(distinct, time_format)
        if moments and (not is_number or (min(moments) >= _FIRST_YEAR and max(moments) < _END_YEAR)):
            first, last = min(distinct).decode(), max(distinct).decode()
            has_hours = time_format == "YYMMDDHH" or any(moment % 86400 for moment in moments)
            parts: tuple[TimePart, ...] = ("hour", "weekday") if has_hours else ("weekday",)
            return TimeGuess(time_format, f"times from {first} to {last}, taken as UTC", parts)
    return None


def _needs_no_name(time_format: TimeFormat, num_distinct: int) -> bool:
    """A date in words is one; a number that happens to be a date is not yet."""
    return time_format == "iso" or (time_format == "YYYYMMDD" and num_distinct > 1)


def _read_all(fields: Iterable[bytes], time_format: TimeFormat) -> list[int]:
    """The times of all fields; none if one is not a time."""
    moments = list[int]()
    for field in fields:
        moment = read_time(field, time_format)
        if moment is None:
            return []
        moments.append(moment)
    return moments
