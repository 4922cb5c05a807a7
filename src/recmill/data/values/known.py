"""Texts of string categories by their hashes: collected within bounds, looked up, and shown on one line."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from recmill.data.logs.raw_format import RawSegment
from recmill.data.values.texts import hash_texts, string_columns, texts_of
from recmill.settings.columns import Schema

LOOK_BYTES = 16 << 20  # of all files together: about two seconds
MAX_VALUE_BYTES = 1024  # a longer text is not kept
_NUM_PLACES = 4  # per file: values that came late are met too
_PIECE_BYTES = 1 << 20  # read at once
# Parquet counts its rows as hashes of 8 bytes; where texts are far longer, fewer rows are looked at.
_TEXT_BYTES_PER_BYTE = 8
_LONGEST_SHOWN = 60
S = TypeVar("S", bound=RawSegment)

# By column, by hash: the text. The most frequent come first.
KnownValues = dict[str, dict[int, bytes]]


class ValueCollector:
    """Counts the texts of string columns in segments that it is shown, as far as it may look."""

    def __init__(self, schema: Schema) -> None:
        self._schema, self._columns = schema, string_columns(schema)
        self._counts = [Counter[bytes]() for _ in self._columns]

    def look_at(self, segment: RawSegment, num_bytes: int) -> None:
        """Take so many bytes of a segment, from places all over it."""
        if not self._columns:
            return
        places = _places(segment, num_bytes)
        for place in places:
            room = _TEXT_BYTES_PER_BYTE * num_bytes // len(places)
            for texts in (each for piece in place.cut(_PIECE_BYTES) for each in texts_of(piece, self._schema)):
                for counts, own in zip(self._counts, texts, strict=True):
                    counts.update(text for text in own if len(text) <= MAX_VALUE_BYTES)
                    room -= sum(map(len, own))
                if room < 0:
                    break

    def most_frequent(self, max_values: int) -> KnownValues:
        """So many texts of each column, the most frequent ones; of equals those met first."""
        found = KnownValues()
        for column, counts in zip(self._columns, self._counts, strict=True):
            texts = [text for text, _ in counts.most_common(max_values)]
            found[column.name] = dict(zip(hash_texts(texts, column).tolist(), texts, strict=True))
        return found


def collect_values(segments: Sequence[RawSegment], schema: Schema, max_values: int) -> KnownValues:
    """The most frequent texts of every string column, so many at most, as far as a bounded look meets them."""
    collector = ValueCollector(schema)
    if max_values:
        for segment, share in zip(segments, shares([each.num_bytes for each in segments]), strict=True):
            collector.look_at(segment, share)
    return collector.most_frequent(max_values)


def shares(sizes: Sequence[int]) -> list[int]:
    """How much of each file is looked at: all of short ones, and equal parts of the others."""
    left, found = LOOK_BYTES, [0] * len(sizes)
    by_size = sorted(range(len(sizes)), key=lambda i: sizes[i])
    for done, i in enumerate(by_size):
        found[i] = min(sizes[i], left // (len(sizes) - done))
        left -= found[i]
    return found


def _places(segment: S, num_bytes: int) -> list[S]:
    """All of a segment, or parts of it that together have about so many bytes."""
    if segment.num_bytes <= num_bytes:
        return [segment]
    extent = segment.extent
    length = extent * num_bytes // (segment.num_bytes * _NUM_PLACES)
    starts = [(extent - length) * place // (_NUM_PLACES - 1) for place in range(_NUM_PLACES)]
    return [segment.part(start, start + length) for start in starts] if length else []


def decoded(text: bytes) -> str:
    """A text as Unicode; bytes that are not UTF-8 as escapes such as \\xe9."""
    return text.decode("utf-8", "backslashreplace")


def escaped(text: str) -> str:
    """A text whose control and invisible characters are escapes, so that it cannot move a terminal's cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """A text for a terminal: control and invisible characters as escapes, long ones shortened, in quotes if need be."""
    shown = escaped(text)
    shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[: _LONGEST_SHOWN - 1]}…"
    return f'"{shown}"' if " " in shown or not shown else shown


def first_values(known: Mapping[str, Mapping[int, bytes]], max_values: int) -> KnownValues:
    """So many of each column."""
    return {name: dict(list(own.items())[:max_values]) for name, own in known.items()}
