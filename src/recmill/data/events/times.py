"""Times as ISO 8601 writes them, as whole microseconds since 1970; without a zone they are taken as UTC."""

import re
from datetime import UTC, datetime, timedelta

_ISO = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}([Tt ].+)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
EXAMPLE = "2024-05-31T12:00:00Z"


def read_iso(text: str) -> int | None:
    """The moment that a text is, if it is one."""
    text = text.strip()
    if not _ISO.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


def are_iso(texts: list[str]) -> bool:
    """Whether some first values are such times, most of them and the digits of no number: one may be a bad row."""
    found = sum(read_iso(text) is not None and not text.strip().isdigit() for text in texts)
    return 2 * found > len(texts)
