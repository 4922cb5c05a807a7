"""Wires read → count → vocabulary → encode → shuffle → store; the only file that knows the whole path.

1. The input is cut into parts, each within one file and one subset.
2. `count`: every part is read once for its rows, its smallest dense value and its category values.
3. `merge`, `freeze`: the counts of a column become rows of its table.
4. `encode`: every part is read again and its rows written to their place, or, if they are to be shuffled, written to
   buckets; `shuffle` then writes each bucket to its place, and `pack` completes archives of multi-hot rows.
5. The directory gets its manifest and, with that, its name.

Each part of a stage leaves a record when it is done. A killed run goes on from those, and ends with the same bytes.
"""

import errno
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np

from recmill.data.batch import Columns
from recmill.data.encode.counts import CensusFile, PartCensus, merge_column, merge_runs, take_values
from recmill.data.encode.presets import Preset, adjust_preset, find_preset
from recmill.data.encode.vocabulary import Vocabulary, VocabularyWriter
from recmill.data.logs.bad_rows import SHOWN, refuse_many_bad
from recmill.data.logs.raw import compile_reader, read_raw
from recmill.data.logs.raw_format import RawSegment, complain
from recmill.data.logs.split import Splits
from recmill.data.prepared.directory import Facts, seal
from recmill.data.prepared.manifest import VOCABULARY
from recmill.data.prepared.npy import NpyLayout
from recmill.data.prepared.sinks import NpySink, Output, ParquetSink, Shuffle, Sink
from recmill.data.prepared.stages import OnProgress, Record, Stages, finished_before, say_nothing
from recmill.data.stream.block import LogReader, Reader
from recmill.data.stream.multi_hot import MultiHotTables
from recmill.data.stream.raw_reader import build_reader
from recmill.data.values.known import collect_values
from recmill.errors import BadRowError, ConfigError, DataError
from recmill.files import VALUES, is_of_recmill, require_free_space, taken_dir
from recmill.memory import keep_freed_memory
from recmill.settings.columns import Schema
from recmill.settings.data import MAX_BAD_FRAC, SPLIT_NAMES, BadRowPolicy, SplitName
from recmill.settings.encoding import Encoding
from recmill.settings.multi_hot import MultiHot

StoreName = Literal["npy", "parquet"]
_PIECE_BYTES = 4 << 20  # text that is read at once
_POSITION_BITS = 40  # a part has fewer rows than 2^40
_MIN_PART_BYTES, _MAX_PART_BYTES = 1 << 16, 128 << 20
# Counting a part holds about five times its text in memory if all its values are new, and parts are counted by several
# threads; the cut does not depend on their number, because Parquet has a file for every part.
_PARTS_IN_MEMORY = 40


@dataclass(frozen=True)
class PreparePart:
    """Lines that are read as one: of one file and one subset."""

    subset: SplitName
    segment: RawSegment


@dataclass(frozen=True)
class PrepareJob:
    """What is to be prepared, and how."""

    splits: Splits
    schema: Schema
    out_dir: Path
    preset_name: str = "recmill"
    store: StoreName = "npy"
    memory_bytes: int = 2 << 30
    jobs: int = 2
    seed: int | None = None  # None keeps the order of the files
    bad_rows: BadRowPolicy = "fail"
    max_bad_frac: float = MAX_BAD_FRAC
    keep_values: int = 10_000  # texts of each string column, to be shown
    part_bytes: int | None = None  # chosen from the memory, if not given
    # in place of the preset's own numbers
    min_count: int | None = None
    max_values: int | None = None
    modulo: int | None = None
    multi_hot: MultiHot | None = None
    on_progress: OnProgress = field(default=say_nothing, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"seed = {self.seed} is rejected: it is 0 or more")
        if self.multi_hot is not None and self.store != "npy":
            raise ConfigError(
                f"--multi-hot writes npz archives, and --format is {self.store}: leave one of them out "
                "(data.multi_hot widens rows of any format when a model is trained)"
            )

        if self.multi_hot is not None and self.schema.has_weight:
            raise ConfigError(
                f"--multi-hot writes npz archives, which hold no weights, and {self.schema} has a weight column: leave "
                "out --multi-hot (data.multi_hot widens rows of any format when a model is trained), or the weights"
            )

    @cached_property
    def preset(self) -> Preset:
        """The encoding."""
        preset = find_preset(self.preset_name)
        return adjust_preset(preset, min_count=self.min_count, max_values=self.max_values, modulo=self.modulo)

    @cached_property
    def parts(self) -> tuple[PreparePart, ...]:
        """The input in the order of its files: the position of a row is its part's number and its place there."""
        ordered = [(name, segment) for name in self.splits.in_file_order for segment in self.splits.of(name)]
        step = self.part_bytes or min(_MAX_PART_BYTES, max(_MIN_PART_BYTES, self.memory_bytes // _PARTS_IN_MEMORY))
        return tuple(PreparePart(name, piece) for name, segment in ordered for piece in segment.cut(step))

    @property
    def work_dir(self) -> Path:
        """Where a run that is not finished keeps what it has."""
        return self.out_dir.with_name(f".{self.out_dir.name}.preparing")

    def plan(self) -> Record:
        """All that the bytes of the result depend on, and the cut into parts."""
        return {
            "preset": self.preset.name,
            "selection": asdict(self.preset.vocabulary.selection) if self.preset.vocabulary else None,
            "modulo": self.preset.modulo,
            "multi_hot": asdict(self.multi_hot) if self.multi_hot else None,
            "store": self.store,
            "seed": self.seed,
            "bad_rows": self.bad_rows,
            "keep_values": self.keep_values,
            "schema": self.schema.model_dump(mode="json"),
            "parts": [
                [part.subset, str(part.segment.source.path), part.segment.start, part.segment.stop]
                for part in self.parts
            ],
            "files": {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in self.paths},
        }

    @property
    def paths(self) -> list[Path]:
        """The files that are read."""
        return sorted({part.segment.source.path for part in self.parts})


def prepare(job: PrepareJob, *, overwrite: bool = False) -> Record:
    """Do it; the manifest of the finished directory."""
    if not overwrite and (manifest := finished_before(job.out_dir, job.work_dir, job.plan)) is not None:
        return manifest
    with taken_dir(job.out_dir, overwrite=overwrite, is_ours=is_of_recmill, inputs=job.paths):
        return _prepare(job, overwrite=overwrite)


def _prepare(job: PrepareJob, *, overwrite: bool) -> Record:
    keep_freed_memory()  # every piece of text is parsed into as much memory as the one before
    if not job.parts:
        raise DataError("the files hold no line; there is nothing to prepare")
    text_bytes = sum(part.segment.num_bytes for part in job.parts)
    require_free_space(job.out_dir.parent, text_bytes * (3 if job.seed is not None else 2), f"preparing {job.out_dir}")
    preparation = _Preparation(job, overwrite=overwrite)
    try:
        return preparation.run()
    except DataError:  # what is to be done about it, to the files or the settings, makes the work so far another's
        shutil.rmtree(job.work_dir, ignore_errors=True)
        raise
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise DataError(
            f"the disk of {job.work_dir} is full; make room and run the same command again: it goes on from there"
        ) from None


class _Preparation:
    """One run through all stages."""

    def __init__(self, job: PrepareJob, *, overwrite: bool) -> None:
        self._job = job
        self._stages = Stages(job.work_dir, job.plan(), jobs=job.jobs, overwrite=overwrite, on_progress=job.on_progress)
        self._weights = [part.segment.num_bytes for part in job.parts]
        self._result_dir = self._stages.result_dir

    def run(self) -> Record:
        """All stages, and the manifest of the result."""
        job = self._job
        compile_reader(job.schema)
        counts = self._stages.run("count", self._weights, self._count)
        self._refuse_many_bad(counts)
        if not sum(record["rows"] for record in counts):
            raise DataError("all lines are bad, and were ignored; there is no row to prepare")
        encoding = self._encoding(counts)
        vocabulary = self._freeze(counts)
        reader = self._reader(encoding, vocabulary)
        table_rows = reader.table_rows
        reader.compile()
        with closing(self._open_sink(counts, table_rows)) as sink:
            self._stages.run("encode", self._weights, lambda part: self._encode(part, reader, sink))
            self._stages.run("shuffle", sink.bucket_sizes(), sink.write_bucket)
            self._stages.run("pack", [1] * len(sink.archives), lambda archive: sink.archives[archive].finish())
        self._write_values()
        manifest = seal(self._result_dir, job.out_dir, self._facts(counts, encoding, table_rows, sink), _versions())
        shutil.rmtree(job.work_dir, ignore_errors=True)  # the result has its name, whatever becomes of the rest
        return manifest

    def _write_values(self) -> None:
        """Texts of string categories, whose hashes alone were counted; no file where there are none."""
        known = collect_values(self._job.splits.train, self._job.schema, self._job.keep_values)
        if any(known.values()):
            from recmill.data.values.values_file import write_known  # pyarrow is heavy

            write_known(self._result_dir / VALUES, known)

    def _refuse_many_bad(self, counts: Sequence[Record]) -> None:
        num_bad, num_rows = (sum(record[name] for record in counts) for name in ("skipped", "rows"))
        sources = [part.segment.source for part in self._job.parts]
        first = (
            f"{source.place(source.line_number(start) + before)}: {told}"
            for source, record in zip(sources, counts, strict=True)
            for start, before, told in record["bad"]
        )
        refuse_many_bad(num_bad, num_rows + num_bad, self._job.max_bad_frac, first)

    def _facts(self, counts: Sequence[Record], encoding: Encoding, table_rows: tuple[int, ...], sink: Sink) -> Facts:
        job = self._job
        clicks: dict[SplitName, int] = dict.fromkeys(SPLIT_NAMES, 0)
        for part, record in zip(job.parts, counts, strict=True):
            clicks[part.subset] += record["clicks"]
        return Facts(
            store=job.store,
            preset=job.preset_name,
            selection=job.preset.vocabulary.selection if job.preset.vocabulary else None,
            seed=job.seed,
            first_half=job.splits.first_half,
            schema=job.schema,
            encoding=encoding,
            table_rows=table_rows,
            layout=replace(sink.layout, num_slots=job.multi_hot.num_slots) if job.multi_hot else sink.layout,
            multi_hot=job.multi_hot,
            subsets=sink.subsets(),
            num_clicks=clicks,
            num_skipped=sum(record["skipped"] for record in counts),
        )

    def _count(self, part: int) -> Record:
        """Rows, clicks, skipped lines and the smallest number of a part; its category values go to a file."""
        job, rule = self._job, self._job.preset.vocabulary
        is_counted = rule is not None and (rule.fit == "all" or job.parts[part].subset == "train")
        census = PartCensus(
            job.schema.slot_columns if is_counted else (),
            part << _POSITION_BITS,
            missing_is_zero=rule is not None and rule.missing_is_zero,
        )
        skipped, first = 0, list[tuple[int, int, str]]()
        for piece in _pieces(job.parts[part].segment):
            chunk = read_raw(piece, job.schema)
            if chunk.bad and job.bad_rows == "fail":
                line, bad = chunk.bad[0]
                raise BadRowError(complain(piece.source, piece.source.line_number(piece.start) + line, bad))
            census.add(chunk.raw)
            skipped += chunk.num_bad
            first += [(piece.start, before, bad.describe()) for before, bad in chunk.bad[: SHOWN - len(first)]]
        if is_counted:
            census.write(self._census_path(part))
        return {
            "rows": census.num_rows,
            "clicks": census.num_clicks,
            "skipped": skipped,
            "bad": first,
            "smallest": census.smallest,
            "census": is_counted,
        }

    def _census_path(self, part: int) -> Path:
        return self._job.work_dir / f"count-{part:05d}.bin"

    def _encoding(self, counts: Sequence[Record]) -> Encoding:
        encoding = self._job.preset.encoding
        if encoding.dense_min is None:
            return encoding
        return encoding.with_({"dense_min": min(record["smallest"] for record in counts)})

    def _freeze(self, counts: Sequence[Record]) -> Vocabulary | None:
        """Merge the counts of all parts column by column, and freeze them."""
        job, rule = self._job, self._job.preset.vocabulary
        if rule is None:
            return None
        categories = job.schema.of_role("category")
        censuses = [
            CensusFile(self._census_path(i), len(categories)) for i, record in enumerate(counts) if record["census"]
        ]
        share = job.memory_bytes // (2 * job.jobs)

        def merge(column: int) -> Record:
            lengths = merge_column(censuses, column, rule.selection, share, self._run_path(column))
            return {"lengths": lengths}

        def freeze(_part: int) -> Record:
            writer = VocabularyWriter(self._result_dir / VOCABULARY, missing_is_zero=rule.missing_is_zero, cap=rule.cap)
            for column, (facts, record) in enumerate(zip(categories, merged, strict=True)):
                num_values = min(sum(record["lengths"]), rule.selection.max_values or sum(record["lengths"]))
                chunks = merge_runs(self._run_path(column), record["lengths"], share)
                writer.add(facts.name, num_values, take_values(chunks, num_values), num_bits=facts.value_bits)
            writer.finish()
            return {}

        merged = self._stages.run("merge", [1] * len(categories), merge)
        self._stages.run("freeze", [1], freeze)
        return Vocabulary(self._result_dir / VOCABULARY)

    def _run_path(self, column: int) -> Path:
        return self._job.work_dir / f"merge-{column:05d}.bin"

    def _reader(self, encoding: Encoding, vocabulary: Vocabulary | None) -> LogReader:
        job = self._job
        num_rows = (job.preset.modulo or 0) + 1  # the last one is for missing values
        table_rows = vocabulary.table_rows if vocabulary else (num_rows,) * len(job.schema.category_names)
        return build_reader(job.schema, encoding, table_rows, job.bad_rows, vocabulary)

    def _open_sink(self, counts: Sequence[Record], table_rows: tuple[int, ...]) -> Sink:
        job = self._job
        outputs = [
            Output(part.subset, part.segment.source.path, record["rows"])
            for part, record in zip(job.parts, counts, strict=True)
        ]
        layout = NpyLayout(
            len(job.schema.dense_names),
            job.schema.num_slots,
            "int32" if max(table_rows, default=0) <= np.iinfo(np.int32).max else "int64",
            job.schema.has_weight,
        )
        shuffle = None
        if job.seed is not None:
            shuffle = Shuffle(job.seed, job.memory_bytes // _PARTS_IN_MEMORY, job.work_dir)
        if job.store == "parquet":
            return ParquetSink(outputs, self._result_dir, layout, shuffle)
        return NpySink(outputs, self._result_dir, layout, shuffle, self._draw_multi_hot(outputs, layout, table_rows))

    def _draw_multi_hot(
        self, outputs: Sequence[Output], layout: NpyLayout, table_rows: tuple[int, ...]
    ) -> MultiHotTables | None:
        rule = self._job.multi_hot
        if rule is None:
            return None
        wide_bytes = replace(layout, num_slots=rule.num_slots).row_bytes * sum(output.num_rows for output in outputs)
        require_free_space(self._job.work_dir, wide_bytes, f"writing multi-hot rows to {self._job.out_dir}")
        return MultiHotTables(rule, table_rows, self._job.work_dir)

    def _encode(self, part: int, reader: Reader, sink: Sink) -> Record:
        with sink.open_part(part) as writer:
            for columns in _encoded(reader, self._job.parts[part].segment):
                writer.write(columns)
        return {}


def _versions() -> dict[str, str]:
    names = ("recmill", "numpy", "numba", "pyarrow")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def _encoded(reader: Reader, segment: RawSegment) -> Iterator[Columns]:
    for piece in _pieces(segment):
        yield reader.read([piece]).columns


def _pieces(segment: RawSegment) -> Iterator[RawSegment]:
    for piece in segment.cut(_PIECE_BYTES):
        yield piece
        piece.source.forget(segment.start, piece.stop)  # or the whole text would count as ours in the end
