"""What is wrong with the data, before anyone trains on it: one pass over raw rows, in bounded memory.

1. An `Audit` takes raw columns, chunk by chunk and in their order, whether they come from text or from elsewhere.
2. Every column has a state of its own (`profile.py`), and so have the rows (their hashes, in a `HashTally`). Threads
   share out the columns of a chunk, never the rows of a column: what is found does not depend on how many there are.
3. At most 10 MiB per category, 5 MiB per dense column, 160 MiB for the row hashes (a table that grows, or is told,
   takes twice that for a moment) and some chunks of 8 MiB of text: half a GiB for Criteo's columns, however many rows.
"""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recmill.data.audit.profile import CategoryColumn, DenseColumn
from recmill.data.audit.report import AuditReport, BadLines, Limits, PreparedFacts, SplitFacts, describe_rows
from recmill.data.audit.side_counts import AuditChunk, ChunkReader, list_profiles
from recmill.data.audit.tally import EMPTY, HashTally, Words, keys_of_numbers
from recmill.data.logs.opening import open_log
from recmill.data.logs.raw import compile_reader, read_parts
from recmill.data.logs.raw_format import MAX_BAD_LINES, BadLine, RawSegment, RawSource, empty_raw
from recmill.data.logs.split import Splits, find_all, find_days, find_files, has_days, is_pattern, match_pattern
from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY, RawColumns
from recmill.data.values.known import LOOK_BYTES, KnownValues, ValueCollector
from recmill.errors import ConfigError, DataError
from recmill.jit import njit, uint64
from recmill.seeds import mix64
from recmill.settings.columns import Schema

AuditedSplit = Literal["train", "test"]

MAX_ROW_HASHES = 1 << 21
MAX_TEXTS = 100_000  # of a string column, of which the few most frequent are shown
GIVE_UP_LINES = 50_000  # bad ones and no row among them: bad lines are read slowly, and more of them tell nothing


@njit(nogil=True, cache=True)
def _places(first_row: int, num_rows: int) -> Words:
    """A random word for the place of every row."""
    places = np.empty(num_rows, np.uint64)
    for row in range(num_rows):
        places[row] = mix64(uint64(first_row + row))
    return places


@njit(nogil=True, cache=True)
def _mix_column(hashes: Words, inputs: Words) -> None:
    for row in range(len(hashes)):
        hashes[row] = mix64(hashes[row] ^ inputs[row])


def hash_rows(raw: RawColumns) -> Words:
    """A 64-bit hash of every row's features; the label is left out."""
    hashes = np.zeros(len(raw.labels), np.uint64)
    for column in range(raw.numbers.shape[1]):
        _mix_column(hashes, keys_of_numbers(np.ascontiguousarray(raw.numbers[:, column])))
    for column in range(raw.values.shape[1]):
        _mix_column(hashes, np.ascontiguousarray(raw.values[:, column]))
    hashes[hashes == EMPTY] = 0
    return hashes


def _without_absent(raw: RawColumns, schema: Schema) -> RawColumns:
    """Slots that a row of several values leaves empty count as missing."""
    may_be_absent = schema.slots_may_be_absent
    if not any(may_be_absent):
        return raw
    values = np.where((raw.values == ABSENT_CATEGORY) & np.array(may_be_absent), MISSING_CATEGORY, raw.values)
    return RawColumns(raw.labels, raw.numbers, values)


class Audit:
    """Looks at raw columns as they pass; what it has seen does not depend on how they were cut, or on the threads."""

    def __init__(self, schema: Schema, pool: ThreadPoolExecutor, *, max_row_hashes: int = MAX_ROW_HASHES) -> None:
        self._schema, self._pool = schema, pool
        columns = schema.of_role("category")
        self._dense = [DenseColumn(name) for name in schema.dense_names]
        self._categories = [
            CategoryColumn(name, columns[place].kind, columns[place].name)
            for name, place in zip(schema.slot_names, schema.slot_columns, strict=True)
        ]
        self._rows = HashTally(max_row_hashes, "sample")
        self._facts: dict[AuditedSplit, SplitFacts] = {"train": SplitFacts(), "test": SplitFacts()}

    def take(self, raw: RawColumns, split: AuditedSplit) -> None:
        """Look at the next rows: all of their columns if they are for training, else whether training has them too."""
        raw = _without_absent(raw, self._schema)
        is_click = raw.labels == 1.0
        before = self._facts[split]
        self._facts[split] = SplitFacts(before.num_rows + len(is_click), before.num_clicks + int(is_click.sum()))
        row_codes = (is_click + np.uint8(2 * (split == "test"))).astype(np.uint8)
        tasks: list[Callable[[], None]] = [lambda: self._rows.add(hash_rows(raw), row_codes)]
        if split == "train":
            places = _places(before.num_rows, len(is_click))
            codes = (is_click + 2 * (places >> np.uint64(63)).astype(np.uint8)).astype(np.uint8)
            tasks += [partial(c.add, raw.numbers[:, i], codes, places) for i, c in enumerate(self._dense)]
            tasks += [partial(c.add, raw.values[:, i], codes, places) for i, c in enumerate(self._categories)]
        for done in [self._pool.submit(task) for task in tasks]:
            done.result()

    @property
    def num_rows(self) -> int:
        """How many rows it has seen."""
        return sum(facts.num_rows for facts in self._facts.values())

    def report(
        self,
        limits: Limits,
        bad: BadLines | None = None,
        prepared: PreparedFacts | None = None,
        texts: KnownValues | None = None,
    ) -> AuditReport:
        """What was found so far; `texts` of strings stand in place of their hashes."""
        train, test = self._facts["train"], self._facts["test"]
        profile_category = partial(
            CategoryColumn.profile, coverage_frac=limits.coverage_frac, num_rows=train.num_rows, texts=texts
        )
        return AuditReport(
            schema_name=self._schema.name,
            has_label=self._schema.has_label,
            limits=limits,
            train=train,
            test=test,
            bad=bad or BadLines(),
            rows=describe_rows(self._rows, train, test),
            dense=tuple(self._pool.map(DenseColumn.profile, self._dense)),
            categories=tuple(self._pool.map(profile_category, self._categories)),
            duplicate_columns=_equal_columns(self._dense) + _equal_columns(self._categories) if train.num_rows else (),
            prepared=prepared,
        )


def _equal_columns(columns: Sequence[DenseColumn | CategoryColumn]) -> tuple[tuple[str, ...], ...]:
    """The names of columns with one fingerprint, where there are several."""
    names: dict[int, list[str]] = {}
    for column in columns:
        names.setdefault(column.fingerprint, []).append(column.name)
    return tuple(tuple(equal) for equal in names.values() if len(equal) > 1)


def refuse_no_threads(threads: int) -> None:
    """Complain unless someone is there to do the work."""
    if threads < 1:
        raise ConfigError(f"--threads {threads} is rejected: it is 1 or more")


@dataclass(frozen=True)
class AuditInput:
    """The files to be looked at, and how; with splits the files are those that they lie in."""

    train: tuple[Path, ...]
    test: tuple[Path, ...]
    schema: Schema
    threads: int = 2
    splits: Splits | None = None
    max_unpacked_bytes: int | None = None

    def __post_init__(self) -> None:
        refuse_no_threads(self.threads)
        for path in self.train:
            if path.resolve() in {other.resolve() for other in self.test}:
                raise DataError(f"{path} is for training and for test; a split may share none")


def compile_kernels(schema: Schema) -> None:
    """Have all kernels compiled, or loaded from their cache, before the clock starts."""
    compile_reader(schema)
    compile_audit(schema)


def compile_audit(schema: Schema) -> None:
    """The same of the kernels that look at raw columns."""
    with ThreadPoolExecutor(1) as pool:
        Audit(schema, pool, max_row_hashes=1).take(empty_raw(0, schema), "train")


def find_audit_input(
    data: Path,
    files: Sequence[str],
    test_files: Sequence[str],
    schema: Schema,
    threads: int,
) -> AuditInput:
    """The last day tests and the others train, unless patterns are given; files that are no days are for training."""
    if test_files and not files:
        raise ConfigError("--test-files needs --files, which names the training files")
    if data.is_file():
        if files:
            raise ConfigError(f"--data {data} is a file; --files needs the directory in which it lies")
        train, test = [data], list[Path]()
    elif files:
        train, test = find_files(data, files, "--files"), find_files(data, test_files, "--test-files")
    elif is_pattern(data):
        train, test = match_pattern(data, "--data"), []
    elif data.is_dir() and not has_days(data):
        train, test = find_all(data), []
    else:
        days = find_days(data)
        train, test = (days[:-1], days[-1:]) if len(days) > 1 else (days, [])
    return AuditInput(tuple(train), tuple(test), schema, threads)


def audit_files(files: AuditInput, limits: Limits, on_progress: Callable[[int], None] | None = None) -> AuditReport:
    """Read all files once and tell what is wrong with them; if nothing but bad lines comes, not all.

    `on_progress` hears how many rows have been seen.
    """
    bad, skipped, gave_up = list[BadLine](), np.zeros(3, np.int64), False
    collector = ValueCollector(files.schema)
    num_lines, lengths = dict[Path, int].fromkeys((*files.train, *files.test), 0), dict[str, NDArray[np.int64]]()
    with ThreadPoolExecutor(files.threads) as pool, closing(_read_files(files, pool, collector)) as chunks:
        audit = Audit(files.schema, pool)
        for split, source, line, chunk in chunks:
            some = chunk.rows.bad[: MAX_BAD_LINES - len(bad)]
            bad += [BadLine(source.place(line + before), wrong) for before, wrong in some]
            skipped += (chunk.rows.num_bad, *((chunk.bad_labels, chunk.bad_clicks) if split == "train" else (0, 0)))
            num_lines[source.path] = num_lines.get(source.path, 0) + chunk.rows.num_lines
            for name, counts in chunk.lengths.items() if split == "train" else ():
                lengths[name] = lengths.get(name, 0) + counts
            audit.take(chunk.rows.raw, split)
            if on_progress:
                on_progress(audit.num_rows)
            gave_up = bool(skipped[0] >= GIVE_UP_LINES) and audit.num_rows == 0
            if gave_up:
                break
        num_bad, num_labels, num_clicks = skipped.tolist()
        described = tuple(wrong.describe() for wrong in bad)
        lines = BadLines(num_bad, described, gave_up, num_labels, num_clicks)
        report = audit.report(limits, lines, texts=collector.most_frequent(MAX_TEXTS))
    empty = () if gave_up else tuple(str(path) for path, count in num_lines.items() if count == 0)
    return replace(report, empty_files=empty, lists=list_profiles(files.schema, lengths))


def _segments(files: AuditInput) -> Generator[tuple[AuditedSplit, RawSource, RawSegment]]:
    """What is read, in its order.

    A file is opened when its turn comes and given back after it: unpacking one takes disk space. Those of splits are
    open already, and stay so.
    """
    if files.splits is not None:
        held_out = (*files.splits.validation, *files.splits.test)
        yield from (("train", segment.source, segment) for segment in files.splits.train)
        yield from (("test", segment.source, segment) for segment in held_out)
        return
    splits: dict[AuditedSplit, tuple[Path, ...]] = {"train": files.train, "test": files.test}
    for split, path in ((split, path) for split, paths in splits.items() for path in paths):
        with closing(open_log(path, files.schema, files.max_unpacked_bytes)) as source:
            yield split, source, source.whole()


def _read_files(
    files: AuditInput, pool: ThreadPoolExecutor, collector: ValueCollector
) -> Generator[tuple[AuditedSplit, RawSource, int, AuditChunk]]:
    """The chunks of all segments, each with its split, its file and the number of its first line.

    The texts of string columns are looked for while a file is open.
    """
    num_trained = len(files.train if files.splits is None else files.splits.train)
    with closing(_segments(files)) as segments:
        for split, source, rows in segments:
            if split == "train":
                collector.look_at(rows, LOOK_BYTES // num_trained)
            line = source.line_number(rows.start)
            with (
                closing(ChunkReader(files.schema, files.max_unpacked_bytes)) as read,
                closing(read_parts(rows, read, pool, num_ahead=files.threads + 1)) as chunks,
            ):
                for chunk in chunks:
                    yield split, source, line, chunk
                    line += chunk.rows.num_lines
