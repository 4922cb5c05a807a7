"""The data of a run: its splits, opened once, and streams over them."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from recmill.data.batch import Position
from recmill.data.encode.vocabulary import Vocabulary
from recmill.data.logs.bad_rows import BadRowTally
from recmill.data.logs.formats import FORMATS
from recmill.data.logs.opening import open_splits
from recmill.data.logs.raw_format import RawSegment, complain
from recmill.data.prepared.directory import Prepared, read_facts
from recmill.data.stream.ahead import ReadAhead
from recmill.data.stream.block import LimitedReader, Reader, StreamSegment
from recmill.data.stream.multi_hot import MultiHotReader, MultiHotTables
from recmill.data.stream.raw_reader import build_reader
from recmill.data.stream.stream import Order, Part, Stream, compile_kernels
from recmill.data.values.known import KnownValues, collect_values, first_values
from recmill.data.values.texts import string_columns
from recmill.errors import BadRowError, ConfigError
from recmill.files import VALUES, has_manifest
from recmill.settings.clicks import TrainConfig
from recmill.settings.columns import Schema
from recmill.settings.data import SPLIT_NAMES, DataConfig, SplitName
from recmill.training.raw_files import identity_of_logs
from recmill.training.vocabulary import find_vocabulary, identity_of_vocabulary
from recmill.verified import read_verified

_EVALUATION_ROWS = 1 << 12  # in a block of an evaluation, which does not shuffle: large ones cost less
_SURELY_MORE = 4  # an estimate is not wrong by that factor


class RawRows:
    """The rows of the files that the settings name, encoded as they are read."""

    def __init__(self, config: TrainConfig) -> None:
        data = config.data
        raw_format = FORMATS[data.schema_of_rows.format]
        self.training_extent, self.evaluation_extent = raw_format.training_extent(data), raw_format.evaluation_extent
        if not data.schema_of_rows.has_label:
            raise ConfigError(
                f"schema {data.schema_of_rows.name} has no label column; a model is trained to predict it"
            )
        vocabulary = open_vocabulary(config)
        reader = build_reader(data.schema_of_rows, config.encoding, data.num_table_rows, data.bad_rows, vocabulary)
        self._schema, self._splits = data.schema_of_rows, open_splits(data)
        if data.bad_rows == "fail":
            for split in SPLIT_NAMES:
                refuse_first_lines(self._splits.of(split), data.schema_of_rows)
        self.identity = identity_of_logs(data)
        reader.compile()
        self.reader = _widened(reader, data)

    def segments(self, split: SplitName) -> Sequence[RawSegment]:
        """The rows of a split."""
        return self._splits.of(split)

    def estimate_rows(self, split: SplitName) -> int:
        """About how many rows a split has: of text, from the lines in the first MiB of each of its files."""
        return sum(segment.estimate_rows() for segment in self._splits.of(split))

    def count_rows(self, split: SplitName) -> int:
        """How many lines a split has; all of it is read."""
        return sum(segment.count_rows() for segment in self._splits.of(split))

    def known_values(self, max_values: int) -> KnownValues:
        """Texts of string categories, so many of each column, from a bounded look at the training rows."""
        return collect_values(self._splits.train, self._schema, max_values)

    def close(self) -> None:
        """Give the mapped files back."""
        self._splits.close()


class PreparedRows:
    """The rows of a prepared directory."""

    evaluation_extent = _EVALUATION_ROWS

    def __init__(self, config: TrainConfig) -> None:
        data = config.data
        self.training_extent = data.block_rows
        self._prepared = Prepared(Path(data.dir), data.access, verify=data.verify)
        self.identity = self._prepared.identity
        facts = self._prepared.facts
        refuse_other_rows(config, Path(data.dir))
        if data.first_half != (prepared := facts.first_half or "validation"):
            raise ConfigError(
                f"data.first_half = {data.first_half}, and {data.dir} was prepared with {prepared}; leave it out"
            )
        self.reader = prepared_reader(self._prepared, data)

    def segments(self, split: SplitName) -> Sequence[StreamSegment]:
        """The rows of a split."""
        return self._prepared.segments(split)

    def estimate_rows(self, split: SplitName) -> int:
        """How many rows a split has."""
        return self._prepared.facts.num_rows(split)

    count_rows = estimate_rows  # the manifest knows

    def known_values(self, max_values: int) -> KnownValues:
        """Texts of string categories, so many of each column, as far as the directory keeps them."""
        from recmill.data.values.values_file import read_known  # pyarrow is heavy

        return first_values(read_known(self._prepared.directory / VALUES), max_values)

    def close(self) -> None:
        """Let go of the files."""
        self._prepared.close()


class Inputs:
    """Opens training and evaluation streams on raw or prepared rows; close it, or use it with `with`."""

    def __init__(self, config: TrainConfig) -> None:
        if not config.data.dir:
            raise ConfigError("data.dir is not set; give the directory of the click logs with --data DIR")
        self._config = config
        self._rows = PreparedRows(config) if has_manifest(Path(config.data.dir)) else RawRows(config)
        compile_kernels(self._rows.reader)

    @property
    def identity(self) -> str:
        """Of the rows, prepared or raw, and of the vocabulary: whoever trains on them can go on with these alone."""
        return f"{self._rows.identity}/{identity_of_vocabulary(self._config)}".rstrip("/")

    def open_training(self, start: Position | None, part: Part = Part()) -> Stream:  # noqa: B008 frozen
        """Shuffled batches from a position of all lanes on; of several processes, each its part of them."""
        config, data = self._config, self._config.data
        epochs = config.stop.max_epochs or None
        order = Order(data.global_batch, config.seed, epochs, data.num_lanes, self._rows.training_extent)
        return self._open("train", order, start.part(part.rank, part.size) if start else None, part)

    def open_evaluation(self, split: SplitName, part: Part = Part()) -> Stream:  # noqa: B008 frozen
        """The rows of a split as they stand in the files; of several processes, each some of the blocks."""
        data, extent = self._config.data, self._rows.evaluation_extent
        eval_batch = -(-data.eval_batch // part.size) * part.size  # so that every process has a lane of its own
        order = Order(eval_batch, num_lanes=part.size, block_extent=extent)
        return self._open(split, order, None, part)

    def _open(self, split: SplitName, order: Order, start: Position | None, part: Part) -> Stream:
        ahead = choose_read_ahead(self._config, num_cores=len(os.sched_getaffinity(0)))
        reader, data = self._rows.reader, self._config.data
        if data.bad_rows == "skip" and isinstance(self._rows, RawRows):
            num_lines = self._rows.estimate_rows(split) // part.size
            reader = LimitedReader(reader, BadRowTally(data.max_bad_frac, num_lines))
        return Stream(reader, self._rows.segments(split), order, start=start, part=part, ahead=ahead)

    def estimate_rows(self, split: SplitName) -> int:
        """About how many rows a split has."""
        return self._rows.estimate_rows(split)

    def keep_values(self, run_dir: Path) -> None:
        """Write the texts of string categories beside a run, unless they are there or none are wanted."""
        path, data = run_dir / VALUES, self._config.data
        if path.exists() or not data.keep_values or not string_columns(data.schema_of_rows):
            return
        known = self._rows.known_values(data.keep_values)
        if any(known.values()):
            from recmill.data.values.values_file import write_known  # pyarrow is heavy

            write_known(path, known)

    def count_rows(self, split: SplitName) -> int:
        """How many rows a split has; raw text is read for it."""
        return self._rows.count_rows(split)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()


def verify_inputs(config: TrainConfig) -> None:
    """Compare the checksums of prepared rows, or of a vocabulary, as the settings say."""
    data = config.data
    if data.dir and has_manifest(Path(data.dir)):
        read_verified(Path(data.dir), data.verify)
    elif data.vocabulary:
        find_vocabulary(config)


def choose_read_ahead(config: TrainConfig, *, num_cores: int) -> ReadAhead:
    """In the background if the layers leave a core for it, otherwise between steps with all cores."""
    num_busy = min(config.threads or num_cores, num_cores)
    batches = config.data.prefetch_batches
    if batches is None:
        batches = 4 if num_busy < num_cores else 0
    threads = config.data.reader_threads or (2 if batches else num_cores)
    return ReadAhead(threads, batches)


def prepared_reader(prepared: Prepared, data: DataConfig) -> Reader:
    """The reader of prepared rows, which makes multi-hot rows of them if they are not multi-hot already."""
    return prepared.reader if prepared.facts.multi_hot else _widened(prepared.reader, data)


def _widened(reader: Reader, data: DataConfig) -> Reader:
    """The reader, or one that makes multi-hot rows of its rows."""
    rule = data.multi_hot_rule
    return MultiHotReader(reader, MultiHotTables(rule, data.num_table_rows)) if rule else reader


def open_vocabulary(config: TrainConfig) -> Vocabulary | None:
    """The vocabulary by which raw rows are encoded, if they are encoded by one."""
    directory, is_used = config.data.vocabulary, config.encoding.category == "vocabulary"
    if is_used != bool(directory):
        raise ConfigError(
            f"data.vocabulary is {directory!r} and encoding.category is {config.encoding.category!r}: a vocabulary "
            "needs both; `--vocabulary DIR` takes them over from a directory that `recmill prepare` made"
        )
    vocabulary = find_vocabulary(config)
    if vocabulary is not None:
        refuse_other_tables(config.data, vocabulary.table_rows, f"the vocabulary in {directory}")
    return vocabulary


def refuse_other_rows(config: TrainConfig, directory: Path) -> None:
    """Complain about a prepared directory whose rows were encoded otherwise than those of a run."""
    data, facts = config.data, read_facts(directory)
    refuse_other_tables(data, facts.table_rows, f"the rows in {directory}")
    for what, stated, found in (
        ("encoding", config.encoding, facts.encoding),
        ("the schema's columns", data.schema_of_rows.columns, facts.schema.columns),
        ("data.multi_hot", data.multi_hot_rule, facts.multi_hot or data.multi_hot_rule),
    ):
        if stated != found:
            raise ConfigError(
                f"{directory} was prepared with another setting than this run's: {what} is {found} there and "
                f"{stated} here; give the directory with --data, which takes over its settings"
            )


def refuse_other_tables(data: DataConfig, table_rows: tuple[int, ...], what: str) -> None:
    """Complain about tables of other sizes than the ids were made for."""
    if data.num_table_rows == table_rows:
        return
    names = data.schema_of_rows.category_names
    if len(names) != len(table_rows):
        raise ConfigError(
            f"{what} has {len(table_rows)} category columns and schema {data.schema_of_rows.name} {len(names)}; "
            "give the directory with --data or --vocabulary, which takes over its schema"
        )
    triples = zip(names, data.num_table_rows, table_rows, strict=True)
    name, stated, needed = next(triple for triple in triples if triple[1] != triple[2])
    is_capped = data.max_rows_per_table is not None and stated == data.max_rows_per_table
    setting = "data.max_rows_per_table" if is_capped else "data.table_rows"
    trouble = f"has ids up to {needed - 1:,}" if stated < needed else f"was made for a table of {needed:,} rows"
    raise ConfigError(
        f"{setting} = {stated:,} for column {name}, and {what} {trouble} there; leave out {setting}: --data or "
        "--vocabulary takes over the sizes (fewer rows: recmill prepare with a higher --min-count, or --max-values)"
    )


def refuse_first_lines(segments: Sequence[RawSegment], schema: Schema) -> None:
    """Complain about files whose first lines are no rows of the schema: columns are missing, or it is another file."""
    for segment in segments:
        bad = FORMATS[schema.format].check_first(segment, schema)
        if bad is not None:
            raise BadRowError(complain(segment.source, segment.source.line_number(segment.start), bad))


def refuse_large_batch(config: TrainConfig, inputs: Inputs) -> None:
    """Complain about a batch that all rows together do not fill."""
    batch = config.data.global_batch
    if inputs.estimate_rows("train") >= _SURELY_MORE * batch:
        return  # a long log is not counted for this
    num_rows = inputs.count_rows("train")
    if num_rows < batch:
        raise ConfigError(
            f"data.global_batch = {batch:,} is more than the {num_rows:,} rows there are to train on, so that no step "
            f"would have a full batch; set data.global_batch={max(1, num_rows)} or less, or give more data"
        )
