"""How many lines may be bad where bad ones are ignored: a file of which many are is not what its schema says."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from recmill.data.logs.raw_format import RawSource
from recmill.data.text.reference import BadRow
from recmill.errors import BadRowError

FEW_LINES = 100  # so few say nothing of a share
SHOWN = 3
_MANY_LINES = 10_000  # so many are enough to stop in the middle: bad lines may stand close together
_NEARLY_ALL = 0.9  # of the lines that were estimated


@dataclass(frozen=True)
class BadPlace:
    """A bad line of a source, by the start of a segment and how many lines of that are before it."""

    source: RawSource
    start: int
    before: int
    bad: BadRow

    def describe(self) -> str:
        """The place and the complaint; the file is read up to there to count its lines."""
        return f"{self.source.place(self.source.line_number(self.start) + self.before)}: {self.bad.describe()}"


def refuse_many_bad(num_bad: int, num_lines: int, max_frac: float, first: Iterable[str]) -> None:
    """Stop if more than a share of the lines read so far is bad, and show the first of them."""
    if num_lines < FEW_LINES or num_bad <= max_frac * num_lines:
        return
    raise BadRowError(
        f"{num_bad:,} of {num_lines:,} lines read are bad ({num_bad / num_lines:.2%}), more than data.max_bad_frac = "
        f"{max_frac:g} allows to ignore, for instance {'; '.join(islice(first, SHOWN))} (fix the files or the schema, "
        "or pass --set data.max_bad_frac=SHARE)"
    )


class BadRowTally:
    """Counts the lines of a stream, and stops it once enough are read and too many of them are bad; for threads."""

    def __init__(self, max_frac: float, num_lines: int) -> None:
        self._max_frac = max_frac
        self._enough = max(FEW_LINES, min(_MANY_LINES, int(_NEARLY_ALL * num_lines)))
        self._num_lines, self._num_bad, self._first = 0, 0, list[BadPlace]()
        self._lock = threading.Lock()

    def add(self, num_rows: int, num_bad: int, first: Sequence[BadPlace]) -> None:
        """Note what was read: good rows, bad lines, and the first of those."""
        with self._lock:
            self._num_lines += num_rows + num_bad
            self._num_bad += num_bad
            self._first += first[: SHOWN - len(self._first)]
            if self._num_lines >= self._enough:
                shown = (place.describe() for place in self._first)
                refuse_many_bad(self._num_bad, self._num_lines, self._max_frac, shown)
