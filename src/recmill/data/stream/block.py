"""The encoded rows of some segments, and who reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.data.logs.bad_rows import BadPlace, BadRowTally


@dataclass(frozen=True)
class Block:
    """Encoded rows, and how many bad lines between them were ignored."""

    columns: Columns
    num_skipped: int = 0
    bad: tuple[BadPlace, ...] = ()  # the first of them


@dataclass(frozen=True)
class MarkedBlock:
    """The encoded good rows of a segment, and which of its rows are bad and why, all in the order of the file."""

    columns: Columns
    num_rows: int  # of the segment, good and bad
    bad: tuple[tuple[int, str], ...]  # the place among all rows, from 0, and what is wrong there

    @property
    def good_places(self) -> NDArray[np.int64]:
        """For every encoded row its place among all rows of the segment, from 0."""
        is_good = np.ones(self.num_rows, np.bool_)
        is_good[[place for place, _ in self.bad]] = False
        return np.flatnonzero(is_good)


class HasPath(Protocol):
    """Something that came from a file."""

    @property
    def path(self) -> Path:
        """Of the file."""


class StreamSegment(Protocol):
    """Rows of a file that lie side by side: a segment of raw rows, or of prepared ones."""

    @property
    def source(self) -> HasPath:
        """The file."""

    @property
    def extent(self) -> int:
        """How long it is, in the units in which `part` cuts it."""

    def part(self, start: int, stop: int) -> Self:
        """The rows that begin in a part of it."""

    def fetch(self) -> None:
        """Ask the system to read it from the disk, without waiting for it."""


class Reader(Protocol):
    """Reads segments of one kind; may be shared by threads."""

    def read(self, segments: Sequence[Any]) -> Block:
        """The rows of some segments, in their order."""

    def room_for(self, num_rows: int) -> Columns:
        """Columns of that many rows, not yet filled."""


@dataclass(frozen=True)
class LimitedReader:
    """A reader that stops when too many of the lines it has read are bad."""

    reader: Reader
    tally: BadRowTally

    def read(self, segments: Sequence[Any]) -> Block:
        """The rows of some segments, in their order."""
        block = self.reader.read(segments)
        self.tally.add(block.columns.num_rows, block.num_skipped, block.bad)
        return block

    def room_for(self, num_rows: int) -> Columns:
        """Columns of that many rows, not yet filled."""
        return self.reader.room_for(num_rows)


class LogReader(Reader, Protocol):
    """Reads segments of raw files of one format, and encodes their rows."""

    @property
    def table_rows(self) -> tuple[int, ...]:
        """The size of every table that ids are made for."""

    def compile(self) -> None:
        """Have the kernels compiled, or loaded from their cache, now rather than while someone waits for rows."""

    def read_marked(self, segment: Any) -> MarkedBlock:
        """The rows of a segment and all of its bad ones, whatever is to be done about bad rows elsewhere."""
