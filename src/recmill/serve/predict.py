"""Predictions for new rows: read in chunks by several threads, scored in batches, in the order of the input.

Batches have the size that an evaluation has and go on over chunks and files, so that a row has the very logit, to the
last bit, that an evaluation of the same files gives it. Memory does not grow with the files.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from recmill.data.batch import Columns, join_columns
from recmill.data.logs.formats import FORMATS
from recmill.data.logs.raw import read_ahead
from recmill.data.logs.raw_format import RawSegment
from recmill.data.prepared.directory import Prepared
from recmill.data.stream.block import LogReader
from recmill.data.stream.multi_hot import MultiHotTables
from recmill.data.stream.raw_reader import build_reader
from recmill.errors import BadRowError
from recmill.serve.carry import CARRIERS
from recmill.serve.new_rows import NewFile
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import SPLIT_NAMES, BadRowPolicy, SplitName
from recmill.training.click.evaluate import refuse_no_numbers
from recmill.training.click.inputs import prepared_reader
from recmill.training.click.step import ClickState, score_columns
from recmill.training.vocabulary import find_vocabulary

CHUNK_BYTES = 4 << 20
_PREPARED_ROWS = 1 << 15


class Chunk(NamedTuple):
    """Rows of the input as they were read: the good ones encoded, and what is wrong with the others."""

    columns: Columns
    num_rows: int
    bad: tuple[tuple[int, str], ...]  # the place among the rows, and the reason
    carried: Sequence[Any]  # for each column to carry along, its values


@dataclass(frozen=True)
class Scored:
    """Some rows of the input in their order: logits, NaN where a row is bad; labels and weights where they are read."""

    logits: NDArray[np.float32]
    labels: NDArray[np.float32]
    weights: NDArray[np.float32]  # empty: every row counts once
    bad: tuple[tuple[int, str], ...]
    carried: Sequence[Any]

    @property
    def reasons(self) -> list[str | None]:
        """For each row, why it has no prediction."""
        reasons: list[str | None] = [None] * len(self.logits)
        for place, reason in self.bad:
            reasons[place] = reason
        return reasons


def probabilities_of(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """1 / (1 + e^−z), in double precision."""
    z = logits.astype(np.float64)
    tail = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, tail) / (1.0 + tail)


@dataclass
class NewRowsReader:
    """Reads files of new rows by the encoding of a run."""

    config: TrainConfig
    bad_rows: BadRowPolicy = "fail"
    carry: Sequence[str] = ()
    threads: int = 2
    _multi_hot: MultiHotTables | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        data = self.config.data
        self._vocabulary = find_vocabulary(self.config)
        if data.multi_hot_rule is not None:
            self._multi_hot = MultiHotTables(data.multi_hot_rule, data.num_table_rows)

    def read_files(self, files: Sequence[NewFile]) -> Iterator[Chunk]:
        """The rows of all files, one behind the other."""
        for file in files:
            file.refuse_unknown(self.carry)
            max_unpacked_bytes = self.config.data.max_unpacked_bytes
            source = FORMATS[file.schema.format].open(file.path, file.schema, max_unpacked_bytes)
            try:
                yield from self.read_segment(file, source.whole())
            finally:
                source.close()

    def read_segment(self, file: NewFile, segment: RawSegment) -> Iterator[Chunk]:
        """The rows of a part of a file."""
        vocabulary = self._vocabulary and self._vocabulary.in_order_of(file.schema)
        reader = build_reader(file.schema, self.config.encoding, self._table_rows(file), self.bad_rows, vocabulary)
        reader.compile()
        with ThreadPoolExecutor(self.threads) as pool:
            tasks = (partial(self._read_part, file, reader, part) for part in segment.cut(CHUNK_BYTES))
            yield from read_ahead(tasks, pool, 2 * self.threads)

    def _table_rows(self, file: NewFile) -> tuple[int, ...]:
        data = self.config.data
        sizes = dict(zip(data.schema_of_rows.category_names, data.num_table_rows, strict=True))
        return tuple(sizes[name] for name in file.schema.category_names)

    def _read_part(self, file: NewFile, reader: LogReader, part: RawSegment) -> Chunk:
        marked = reader.read_marked(part)
        if marked.bad and self.bad_rows == "fail":
            place, reason = marked.bad[0]
            number = part.source.line_number(part.start) + place
            raise BadRowError(
                f"{part.source.place(number)}: {reason} (fix the file, or pass --bad-rows skip: such a row gets no "
                "prediction, and the reason)"
            )
        columns = file.ordered(marked.columns)
        if self._multi_hot is not None:
            columns = columns._replace(ids=self._multi_hot.widen(columns.ids))
        return Chunk(columns, marked.num_rows, marked.bad, self._carried(file, part))

    def _carried(self, file: NewFile, part: Any) -> Sequence[Any]:
        if not self.carry:
            return ()
        return CARRIERS[file.schema.format](part, file.schema, self.carry)


def read_prepared(directory: Path, config: TrainConfig, splits: Sequence[SplitName] = SPLIT_NAMES) -> Iterator[Chunk]:
    """The rows of a prepared directory: those for training, then validation, then test, or some of these."""
    prepared = Prepared(directory)
    reader = prepared_reader(prepared, config.data)
    try:
        for split in splits:
            for segment in prepared.segments(split):
                for start in range(0, segment.extent, _PREPARED_ROWS):
                    mapped = reader.read([segment.part(start, start + _PREPARED_ROWS)]).columns
                    # torch wants arrays that may be written
                    features = Columns(np.array(mapped.dense), np.array(mapped.ids), np.array(mapped.labels))
                    columns = features._replace(weights=np.array(mapped.weights))
                    yield Chunk(columns, columns.num_rows, (), ())
    finally:
        prepared.close()


def score_chunks(state: ClickState, chunks: Iterator[Chunk]) -> Iterator[Scored]:
    """The logits of all rows, chunk by chunk, worked out in batches of the size that an evaluation has."""
    batch_rows = state.config.data.eval_batch
    waiting, unscored, ready = deque[Chunk](), list[Columns](), list[NDArray[np.float32]]()
    state.model.eval()
    for chunk in chunks:
        waiting.append(chunk)
        unscored.append(chunk.columns)
        while sum(columns.num_rows for columns in unscored) >= batch_rows:
            rows = join_columns(unscored)
            ready.append(_score(state, rows.rows(0, batch_rows)))
            unscored = [rows.rows(batch_rows, rows.num_rows)]
        yield from _finished(waiting, ready)
    if unscored and (rows := join_columns(unscored)).num_rows:
        ready.append(_score(state, rows))
    yield from _finished(waiting, ready)


def _finished(waiting: deque[Chunk], ready: list[NDArray[np.float32]]) -> Iterator[Scored]:
    """Those of the chunks in front whose rows are all scored; takes them, and their logits, away."""
    logits = np.concatenate(ready) if ready else np.empty(0, np.float32)
    at = 0
    while waiting and len(logits) - at >= waiting[0].columns.num_rows:
        chunk = waiting.popleft()
        stop = at + chunk.columns.num_rows
        yield _with_gaps(chunk, logits[at:stop])
        at = stop
    ready[:] = [logits[at:]] if at < len(logits) else []


def _with_gaps(chunk: Chunk, logits: NDArray[np.float32]) -> Scored:
    """The logits of good rows in their places among all rows."""
    if not chunk.bad:
        return Scored(logits, chunk.columns.labels, chunk.columns.weights, (), chunk.carried)
    is_good = np.ones(chunk.num_rows, bool)
    is_good[[place for place, _ in chunk.bad]] = False
    logits, labels, weights = (_spread(each, is_good) for each in (logits, *chunk.columns[2:]))
    return Scored(logits, labels, weights, chunk.bad, chunk.carried)


def _spread(values: NDArray[np.float32], is_good: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The values of good rows in their places, NaN elsewhere; no values stay none."""
    if not len(values) and is_good.any():
        return values
    spread = np.full(len(is_good), np.nan, np.float32)
    spread[is_good] = values
    return spread


def _score(state: ClickState, columns: Columns) -> NDArray[np.float32]:
    with torch.inference_mode():
        logits: NDArray[np.float32] = score_columns(state, columns).numpy()
    refuse_no_numbers(logits, "the new data")
    return logits
