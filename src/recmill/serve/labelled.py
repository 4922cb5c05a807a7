"""Rows with labels, scored for an evaluation: all rows of some files, or a split of the data of a run."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recmill.calibration import Calibrator
from recmill.data.logs.bad_rows import SHOWN
from recmill.data.logs.opening import open_splits
from recmill.errors import ConfigError, DataError
from recmill.metrics import ClickMetrics
from recmill.serve.new_rows import NewFile
from recmill.serve.predict import Chunk, NewRowsReader, Scored, read_prepared
from recmill.serve.rows import Rows, opened_rows, prepared_dir
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import SPLIT_NAMES, RowsPart
from recmill.slices import MISSING
from recmill.training.click.inputs import refuse_other_rows


@contextmanager
def labelled_chunks(config: TrainConfig, rows: Rows, part: RowsPart, carry: Sequence[str]) -> Iterator[Iterator[Chunk]]:
    """Rows with their labels, in the order of the files, readable while the body runs.

    They are all of `rows`, or a split of the data that the settings name.
    """
    splits = SPLIT_NAMES if part == "all" else (part,)
    if (directory := prepared_dir(rows)) is not None:
        refuse_other_rows(config, directory)
        if carry:
            raise DataError(
                f"{directory} holds prepared rows, which have no column {carry[0]!r} any more; give the raw files"
            )
        yield read_prepared(directory, config, splits)
        return
    if not config.data.schema_of_rows.has_label:
        raise ConfigError(f"schema {config.data.schema_of_rows.name} has no label column to compare predictions with")
    reader = NewRowsReader(config, config.data.bad_rows, tuple(carry), threads=len(os.sched_getaffinity(0)))
    if part == "all":
        with opened_rows(rows, config.data.schema_of_rows, with_label=True) as files:
            yield reader.read_files(files)
        return
    opened = open_splits(config.data)
    try:
        yield _read_split(reader, opened.of(part), config)
    finally:
        opened.close()


def _read_split(reader: NewRowsReader, segments: Sequence[Any], config: TrainConfig) -> Iterator[Chunk]:
    for segment in segments:
        file = NewFile(Path(segment.source.path), config.data.schema_of_rows, None, None)
        file.refuse_unknown(reader.carry)
        yield from reader.read_segment(file, segment)


@dataclass
class ValueCodes:
    """The values of a column as small numbers, in the order in which they were met, and their texts."""

    index: dict[str, int] = field(default_factory=dict)
    pieces: list[NDArray[np.int64]] = field(default_factory=list)

    def add(self, values: Any, kept: NDArray[np.bool_]) -> None:
        """Take some values: texts, or an Arrow array."""
        plain = values.to_pylist() if hasattr(values, "to_pylist") else values
        codes = [self._code(value) for value, is_kept in zip(plain, kept.tolist(), strict=True) if is_kept]
        self.pieces.append(np.array(codes, np.int64))

    def _code(self, value: object) -> int:
        if isinstance(value, bytes):  # of a binary column of Parquet
            value = value.decode("utf-8", "backslashreplace")
        text = MISSING if value is None or value == "" else str(value)
        return self.index.setdefault(text, len(self.index))

    @property
    def codes(self) -> NDArray[np.int64]:
        """Of all rows."""
        return np.concatenate([np.empty(0, np.int64), *self.pieces])

    @property
    def texts(self) -> list[str]:
        """By code."""
        return list(self.index)


class RowCollector:
    """Takes scored rows: sums for the metrics of all, and, if parts are asked for, every logit, label and value."""

    def __init__(
        self,
        columns: Sequence[str],
        calibrator: Calibrator | None,
        *,
        has_weight: bool,
        keeps_rows: bool,
        max_rows: int,
    ) -> None:
        self.metrics, self.num_skipped, self.is_whole = ClickMetrics(), 0, True
        self.first_bad = list[str]()
        self.calibrated = None if calibrator is None else ClickMetrics()
        self._calibrator, self._has_weight = calibrator, has_weight
        self._columns = {name: ValueCodes() for name in columns}
        self._keeps_rows, self._max_rows, self._num_rows = keeps_rows, max_rows, 0
        self._logits, self._labels, self._weights = ([np.empty(0, np.float32)] for _ in range(3))

    def take(self, scored: Iterator[Scored]) -> None:
        """All rows, or the first so many; bad ones are counted."""
        num_seen = 0
        for each in scored:
            kept = ~np.isnan(each.logits)
            room = self._max_rows - self._num_rows
            if self._max_rows and int(kept.sum()) > room:
                self.is_whole = False
                kept[np.flatnonzero(kept)[room:]] = False
            self._take(each, kept)
            if not self.is_whole:
                return
            self.first_bad += [f"row {num_seen + place + 1}: {why}" for place, why in each.bad[:SHOWN]]
            self.num_skipped += len(each.bad)
            num_seen += len(each.logits)

    def _take(self, each: Scored, kept: NDArray[np.bool_]) -> None:
        logits, labels = each.logits[kept], each.labels[kept]
        weights = each.weights[kept] if self._has_weight else None
        self.metrics.update(logits, labels, weights)
        if self.calibrated is not None and self._calibrator is not None:
            self.calibrated.update(self._calibrator.logits(logits), labels, weights)
        self._num_rows += len(logits)
        if self._keeps_rows:
            self._logits.append(logits)
            self._labels.append(labels)
            if weights is not None:
                self._weights.append(weights)
            for codes, values in zip(self._columns.values(), each.carried, strict=True):
                codes.add(values, kept)

    @property
    def logits(self) -> NDArray[np.float32]:
        """Of all rows, if rows are kept."""
        return np.concatenate(self._logits)

    @property
    def labels(self) -> NDArray[np.float32]:
        """Of all rows, if rows are kept."""
        return np.concatenate(self._labels)

    @property
    def weights(self) -> NDArray[np.float32] | None:
        """Of all rows, if rows are kept and have weights."""
        return np.concatenate(self._weights) if self._has_weight else None

    def values_of(self, name: str) -> ValueCodes:
        """Of a column that was asked for."""
        return self._columns[name]
