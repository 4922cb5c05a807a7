"""The data of a run: its splits, opened once, and streams over them."""

from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from recmill.data.batch import Position
from recmill.data.header import open_source
from recmill.data.reader import TextReader
from recmill.data.source import Segment
from recmill.data.split import SplitName, Splits, find_days, find_files, split_by_day, split_tail, whole
from recmill.data.stream import Order, ReadAhead, Stream
from recmill.data.text import count_lines
from recmill.errors import ConfigError
from recmill.train.config import TrainConfig

_SAMPLE_BYTES = 1 << 20


class Inputs:
    """Opens training and evaluation streams on the files the settings name; close it, or use it with `with`."""

    def __init__(self, config: TrainConfig) -> None:
        data = config.data
        if not data.dir:
            raise ConfigError("data.dir is not set; give the directory of the click logs with --data DIR")
        if not data.schema_of_rows.has_label:
            raise ConfigError(
                f"schema {data.schema_of_rows.name} has no label column; a model is trained to predict it"
            )
        self._config = config
        self.reader = TextReader(data.schema_of_rows, config.encoding, data.num_table_rows, data.bad_rows)
        self.splits = _open_splits(config)
        self.reader.compile()

    def open_training(self, start: Position | None) -> Stream:
        """Shuffled batches from a position on."""
        data = self._config.data
        order = Order(
            data.global_batch, self._config.seed, self._config.stop.max_epochs or None, data.num_lanes, data.block_bytes
        )
        ahead = ReadAhead(data.reader_threads, data.prefetch_batches)
        return Stream(self.reader, self.splits.train, order, start=start, ahead=ahead)

    def open_evaluation(self, split: SplitName) -> Stream:
        """The rows of a split as they stand in the files."""
        data = self._config.data
        ahead = ReadAhead(data.reader_threads, data.prefetch_batches)
        return Stream(self.reader, self.splits.of(split), Order(data.eval_batch), ahead=ahead)

    def estimate_rows(self, split: SplitName) -> int:
        """About how many rows a split has, from the lines in the first MiB of each of its files."""
        return sum(_estimate_lines(segment) for segment in self.splits.of(split))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.splits.close()


def _open_splits(config: TrainConfig) -> Splits:
    data_dir, data = Path(config.data.dir), config.data
    open_one = partial(open_source, schema=data.schema_of_rows)
    if data.has_holdout:
        segments = [whole(open_one(path)) for path in _training_paths(config)]
        return split_tail(segments, frac=data.holdout_frac, num_rows=data.holdout_rows)
    if data_dir.is_file():
        raise ConfigError(
            f"data.dir = {data.dir!r} is a file; say which share of its last lines validates and tests, "
            "e.g. --set data.holdout_frac=0.1"
        )
    if not data.train_files:
        return split_by_day(find_days(data_dir), open_one)
    named = {
        "data.train_files": data.train_files,
        "data.validation_files": data.validation_files,
        "data.test_files": data.test_files,
    }
    train, validation, test = (
        tuple(whole(open_one(path)) for path in find_files(data_dir, patterns, setting))
        for setting, patterns in named.items()
    )
    return Splits(train, validation, test)


def _training_paths(config: TrainConfig) -> list[Path]:
    data_dir, patterns = Path(config.data.dir), config.data.train_files
    if data_dir.is_file():
        return [data_dir]
    return find_files(data_dir, patterns, "data.train_files") if patterns else find_days(data_dir)


def _estimate_lines(segment: Segment) -> int:
    sample_stop = min(segment.start + _SAMPLE_BYTES, segment.stop)
    if sample_stop == segment.start:
        return 0
    lines = int(count_lines(segment.source.buffer, segment.start, sample_stop))
    return max(1, round(lines * segment.num_bytes / (sample_stop - segment.start)))
