"""Which lines are for training, validation and test; rejects any line in two of them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from recmill.data.logs.formats import SUFFIXES, without_suffixes
from recmill.data.logs.raw_format import RawSegment, RawSource
from recmill.data.logs.text_file import Source
from recmill.errors import DataError
from recmill.files import STDIN
from recmill.settings.data import SPLIT_NAMES, FirstHalf, SplitName

_DAY = re.compile(r"day_(\d+)")
# endings of what lies beside logs: descriptions, arrays, archives, programs
_NEVER_ROWS = {".npz", ".npy", ".toml", ".yaml", ".yml", ".md", ".html", ".pdf", ".xlsx", ".zip", ".tar", ".py"}


@dataclass(frozen=True)
class Splits:
    """Disjoint segments for each use; validation and test may be the halves of rows that lie side by side."""

    train: tuple[RawSegment, ...]
    validation: tuple[RawSegment, ...]
    test: tuple[RawSegment, ...]
    first_half: FirstHalf | None = None  # None: they are not halves

    def __post_init__(self) -> None:
        for first, second in combinations(SPLIT_NAMES, 2):
            refuse_overlap(first, self.of(first), second, self.of(second))

    def of(self, name: SplitName) -> tuple[RawSegment, ...]:
        """The segments of one split."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[name]

    @property
    def in_file_order(self) -> tuple[SplitName, ...]:
        """The names of the splits, halves as they lie in their file."""
        return ("train", "test", "validation") if self.first_half == "test" else SPLIT_NAMES

    def close(self) -> None:
        """Give the mapped files back."""
        for name in SPLIT_NAMES:
            for segment in self.of(name):
                segment.source.close()


def is_day(path: Path) -> bool:
    """Whether a file is named day_0, day_1, …, whatever it is packed in."""
    return _DAY.fullmatch(without_suffixes(path)) is not None


def find_days(data_dir: Path) -> list[Path]:
    """The files day_0, day_1, … of a directory, plain, packed or Parquet, in the order of their numbers."""
    if not data_dir.is_dir():
        raise DataError(f"there is no directory {data_dir}; make one with `recmill synth criteo --out {data_dir}`")
    days: dict[int, Path] = {}
    for path in sorted(data_dir.iterdir()):
        match = _DAY.fullmatch(without_suffixes(path))
        if match is None:
            continue
        day = int(match[1])
        if day in days:
            raise DataError(f"{days[day]} and {path} are the same day; remove one of them")
        days[day] = path
    if not days:
        endings = f"plain, {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise DataError(f"{data_dir} holds no files named day_0, day_1, … ({endings})")
    if missing := sorted(set(range(max(days))) - set(days)):
        raise DataError(f"{data_dir} has day_{max(days)} but lacks {', '.join(f'day_{day}' for day in missing)}")
    return [days[day] for day in sorted(days)]


def has_days(data_dir: Path) -> bool:
    """Whether a directory holds a file named like a day."""
    return data_dir.is_dir() and any(is_day(path) for path in data_dir.iterdir())


def find_all(data_dir: Path) -> list[Path]:
    """All files of rows in a directory in the order of their names: not hidden ones, and none that hold other things.

    A file named .json is of rows if there is nothing else.
    """
    files = [path for path in sorted(data_dir.iterdir()) if path.is_file() and not path.name.startswith((".", "_"))]
    files = [path for path in files if path.suffix.lower() not in _NEVER_ROWS]
    found = [path for path in files if path.suffix.lower() != ".json"] or files
    if not found:
        raise DataError(f"{data_dir} holds no file of rows; give a file, or a directory of them")
    return found


def find_rows(path: Path, setting: str) -> list[Path]:
    """The one file, those that a pattern matches, the days of a directory, or else all of its files."""
    if path.is_file() or str(path) == STDIN:
        return [path]
    if is_pattern(path):
        return match_pattern(path, setting)
    return find_days(path) if has_days(path) or not path.is_dir() else find_all(path)


def is_pattern(path: Path) -> bool:
    """Whether a path that is not there has the characters of a pattern."""
    return not path.exists() and any(character in str(path) for character in "*?[")


def match_pattern(pattern: Path, setting: str) -> list[Path]:
    """The files that a pattern matches, in the order of their names."""
    root = Path(pattern.anchor)
    found = [path for path in sorted(root.glob(str(pattern.relative_to(root)))) if path.is_file()]
    if not found:
        raise DataError(f"{setting}: no file matches {str(pattern)!r}")
    return found


def find_files(data_dir: Path, patterns: Sequence[str], setting: str) -> list[Path]:
    """The files that match the patterns, in the patterns' order and by name within one."""
    found: list[Path] = []
    for pattern in patterns:
        try:
            matches = [path for path in sorted(data_dir.glob(pattern)) if path.is_file()]
        except (ValueError, NotImplementedError) as error:
            raise DataError(f"{setting}: {pattern!r} is not a pattern of files within {data_dir}: {error}") from None
        if not matches:
            raise DataError(f"{setting}: no file in {data_dir} matches {pattern!r}")
        found += [path for path in matches if path not in found]
    return found


def split_by_day(
    paths: Sequence[Path], open_source: Callable[[Path], RawSource] = Source, first_half: FirstHalf = "validation"
) -> Splits:
    """All days but the last for training; one half of the last day's lines validates and the other tests."""
    if len(paths) < 2:
        raise DataError(
            f"{paths[0].parent} has one day; training on it and testing on it needs at least two, "
            "or data.holdout_frac, the share of its last lines to keep for validation and test"
        )
    *train, last = (open_source(path).whole() for path in paths)
    return _halve(train, [last], last.count_rows(), first_half)


def split_tail(
    segments: Sequence[RawSegment],
    *,
    frac: float | None = None,
    num_rows: int | None = None,
    first_half: FirstHalf = "validation",
) -> Splits:
    """The last lines of all, a share or a number of them: one half of them validates, the other tests."""
    total = sum(segment.count_rows() for segment in segments)
    held = round(total * (frac or 0.0)) if num_rows is None else num_rows
    if held < 2 or held >= total:
        asked = f"data.holdout_frac = {frac}" if num_rows is None else f"data.holdout_rows = {num_rows}"
        raise DataError(
            f"{asked} keeps {held} of {total} lines for validation and test; each split, and training, needs one"
        )
    train, tail = _cut(segments, total - held)
    halved = _halve(train, tail, held, first_half)
    train, validation, test = (tuple(s for s in halved.of(name) if s.extent) for name in SPLIT_NAMES)
    return Splits(train, validation, test, first_half)


def split_at(segments: Sequence[RawSegment], num_before: int, setting: str) -> Splits:
    """The first so many lines train, but for the last tenth of them, which validates; the others test."""
    total = sum(segment.count_rows() for segment in segments)
    if num_before < 2 or num_before >= total:
        raise DataError(
            f"{setting}: {num_before} of {total} lines are before it; training and validation need "
            "two lines before, and the test one after it"
        )
    before, test = _cut(segments, num_before)
    train, validation = _cut(before, num_before - max(1, round(num_before / 10)))
    train, validation, test = (tuple(s for s in each if s.extent) for each in (train, validation, test))
    return Splits(train, validation, test)


def _halve(train: Sequence[RawSegment], held: Sequence[RawSegment], num_held: int, first_half: FirstHalf) -> Splits:
    first, second = _cut(held, (num_held + 1) // 2)
    validation, test = (first, second) if first_half == "validation" else (second, first)
    return Splits(tuple(train), validation, test, first_half)


def refuse_overlap(
    first: str, first_segments: Sequence[RawSegment], second: str, second_segments: Sequence[RawSegment]
) -> None:
    """Complain if a line belongs to both."""
    for a in first_segments:
        for b in second_segments:
            if a.source.path.samefile(b.source.path) and max(a.start, b.start) < min(a.stop, b.stop):
                raise DataError(f"{a.source.path} has lines in both {first} and {second}; a split may share none")


def _cut(segments: Sequence[RawSegment], num_rows: int) -> tuple[tuple[RawSegment, ...], tuple[RawSegment, ...]]:
    """The first so many lines of all, and the rest."""
    before, behind = list[RawSegment](), list[RawSegment]()
    for segment in segments:
        first, rest = segment.cut_at(num_rows)
        before.append(first)
        behind.append(rest)
        num_rows = 0 if rest.extent else num_rows - segment.count_rows()
    return tuple(before), tuple(behind)
