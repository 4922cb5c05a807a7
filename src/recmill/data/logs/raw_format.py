"""What a format of raw files is: sources, segments of them, and the rows and bad rows that come of a segment.

A format is one file that has these three things, and one line of the table in `formats.py`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np

from recmill.data.text.fields import RawColumns
from recmill.data.text.reference import BadRow
from recmill.errors import ConfigError, DataError
from recmill.settings.columns import Schema
from recmill.settings.data import DataConfig

MAX_BAD_LINES = 10  # kept with their text, per chunk


class RawSource(Protocol):
    """A file of raw rows that is open; may be shared by threads."""

    @property
    def path(self) -> Path:
        """Of the file."""

    def whole(self) -> "RawSegment":
        """All rows of the file."""

    def line_number(self, at: int) -> int:
        """The number, from 1, of the line or row at which a segment may start."""

    def place(self, line: int) -> str:
        """A line or row by its number, for messages."""

    def forget(self, start: int, stop: int) -> None:
        """Let go of the memory behind a range that will not be read again soon."""

    def close(self) -> None:
        """Let go of the file."""


class RawSegment(Protocol):
    """Neighbouring rows of a source, from `start` to `stop` in units of its own: bytes of text, rows of Parquet."""

    @property
    def source(self) -> RawSource:
        """The file."""

    @property
    def start(self) -> int:
        """Where its first row begins."""

    @property
    def stop(self) -> int:
        """Where its last row ends."""

    @property
    def extent(self) -> int:
        """How long it is, in its units: what a stream cuts into blocks."""

    @property
    def num_bytes(self) -> int:
        """About how much memory its raw rows take."""

    def fetch(self) -> None:
        """Ask the system to read it from the disk, without waiting for it."""

    def part(self, start: int, stop: int) -> Self:
        """The rows that begin in a part of it, given in units from its start."""

    def cut(self, num_bytes: int) -> Sequence[Self]:
        """All of it, in parts of about so many bytes."""

    def cut_at(self, num_rows: int) -> tuple[Self, Self]:
        """The first so many rows, and the rest."""

    def count_rows(self) -> int:
        """How many rows it has, bad ones included."""

    def estimate_rows(self) -> int:
        """About how many rows it has, without reading all of it."""


@dataclass(frozen=True)
class BadLine:
    """A line that is no row, and where it stands: the file, and its number there, from 1."""

    place: str
    bad: BadRow

    def describe(self) -> str:
        """The place and the complaint."""
        return f"{self.place}: {self.bad.describe()}"


@dataclass(frozen=True)
class RawChunk:
    """The good rows of a segment, how many lines it has, and the bad ones among them."""

    raw: RawColumns
    num_lines: int
    bad: tuple[tuple[int, BadRow], ...]  # lines of the chunk before it, and what is wrong; as many as were asked for

    @property
    def num_bad(self) -> int:
        """How many lines are not rows."""
        return self.num_lines - len(self.raw.labels)


_LABEL_RULE = re.compile(r"(.+?)\s*(>=|<=|>|<|=)\s*(.+)")


@dataclass(frozen=True)
class AskedColumns:
    """What a user says of columns when a schema is inferred; it comes before every guess.

    A label may say what is positive: "rating >= 4", "event = buy, cart".
    """

    label: str | None = None
    time: str | None = None
    ignored: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    positive: str | tuple[str, ...] | None = None  # of the label: a bound, or values

    def __post_init__(self) -> None:
        for (first, names), (second, others) in combinations(self._by_option.items(), 2):
            for name in names:
                if name in others:
                    raise ConfigError(f"{first} {name} and {second} {name} contradict each other; leave out one")

    @property
    def _by_option(self) -> dict[str, tuple[str, ...]]:
        single = {"--label": self.label, "--time": self.time}
        given = {option: () if name is None else (name,) for option, name in single.items()}
        return {**given, "--ignore": self.ignored, "--categories": self.categories}

    def fitted(self, columns: Sequence[str]) -> "AskedColumns":
        """The same for these columns: a rule taken off the name of the label, and names that no column has rejected."""
        found = self
        rule = None if self.label is None or self.label in columns else _LABEL_RULE.fullmatch(self.label)
        if rule and rule[1] in columns:
            values = tuple(value.strip() for value in rule[3].split(","))
            found = replace(self, label=rule[1], positive=values if rule[2] == "=" else f"{rule[2]} {rule[3]}")
        found._refuse_unknown(columns)
        return found

    def _refuse_unknown(self, columns: Sequence[str]) -> None:
        for option, names in self._by_option.items():
            for name in names:
                if name not in columns:
                    near = get_close_matches(name, columns, n=1)
                    hint = f"; did you mean {near[0]}?" if near else ""
                    told = f"there is no such column; the columns are {', '.join(columns)}"
                    raise DataError(f"{option} {name}: {told}{hint}")

    @property
    def are_no_label(self) -> tuple[str, ...]:
        """The columns that are said to be something else than the label."""
        return (*self.ignored, *self.categories, *(() if self.time is None else (self.time,)))


NOTHING_ASKED = AskedColumns()


class Draft(NamedTuple):
    """A schema that was guessed, what to say above it, and what each line of it was guessed from."""

    schema: Schema
    preface: tuple[str, ...]
    notes: Mapping[str, str]


S_contra = TypeVar("S_contra", bound=RawSegment, contravariant=True)


class RawFormat(Protocol[S_contra]):
    """How files of one format are opened, read and described; has no state."""

    @property
    def title(self) -> str:
        """What messages call it."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The endings of file names that are this format's alone."""

    @property
    def evaluation_extent(self) -> int:
        """The length of a block, in units of its segments, when rows are not shuffled: large ones cost less."""

    def training_extent(self, data: DataConfig) -> int:
        """The length of a block of a training stream, as the settings say."""

    def open(self, path: Path, schema: Schema, max_unpacked_bytes: int | None = None) -> RawSource:
        """A file, checked against the schema as far as can be told without reading its rows.

        What is unpacked into scratch space has at most so many bytes.
        """

    def infer(self, paths: Sequence[Path], *, name: str, asked: AskedColumns = NOTHING_ASKED) -> Draft:
        """A first schema for files like these, from a sample of them."""

    def compile(self, schema: Schema, /) -> None:
        """Have the kernels compiled, or loaded from their cache, before anyone waits for rows."""

    def check_first(self, segment: S_contra, schema: Schema, /) -> BadRow | None:
        """What is wrong with the first line of a segment, where that tells whether the file fits the schema at all."""

    def read(self, segment: S_contra, schema: Schema, /, *, max_bad: int | None = MAX_BAD_LINES) -> RawChunk:
        """The rows of a segment, and its bad lines: so many of them, or with None all."""


def empty_raw(num_rows: int, schema: Schema) -> RawColumns:
    """Room for rows, each column in one piece."""
    return RawColumns(
        np.zeros(num_rows, np.float32),
        np.empty((num_rows, len(schema.dense_names)), order="F"),
        np.empty((num_rows, schema.num_slots), np.uint64, order="F"),
        np.empty(num_rows if schema.has_weight else 0, np.float32),
    )


def complain(source: RawSource, line: int, bad: BadRow) -> str:
    """The message about a bad row: the place, the thing and the way out."""
    way_out = "fix the file, or pass --bad-rows skip to count such rows and go on"
    return f"{source.place(line)}: {bad.describe()} ({way_out})"
