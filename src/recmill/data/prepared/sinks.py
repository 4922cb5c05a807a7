"""Where encoded rows go: to their place in the files of the result or, if they are to be shuffled, to buckets first."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from recmill.data.batch import Columns
from recmill.data.logs.split import is_day
from recmill.data.prepared.npy import NpyFile, NpyLayout
from recmill.data.prepared.npz import MultiHotFile
from recmill.data.prepared.shuffle import Scatter, place_ranges, read_bucket, row_dtype
from recmill.data.prepared.stages import Record
from recmill.data.stream.multi_hot import MultiHotTables
from recmill.settings.data import SPLIT_NAMES, SplitName

if TYPE_CHECKING:
    from recmill.data.prepared.parquet import ParquetFileWriter

# Rows of a file that belong to a subset: the file's name, and from which row to which.
FileRange = tuple[str, int, int]
Subsets = dict[SplitName, list[FileRange]]


@dataclass(frozen=True)
class Output:
    """The rows that a part gives."""

    subset: SplitName
    source_path: Path
    num_rows: int


@dataclass(frozen=True)
class Shuffle:
    """How training rows are shuffled: by which seed, in buckets of which size, and where these lie meanwhile."""

    seed: int
    bucket_bytes: int
    directory: Path


class RowWriter(Protocol):
    """Takes the rows of a part, in their order."""

    def write(self, columns: Columns) -> None:
        """Take some rows."""


class Buckets:
    """The training rows on their way through a shuffle."""

    def __init__(self, outputs: Sequence[Output], layout: NpyLayout, shuffle: Shuffle) -> None:
        self._shuffle = shuffle
        self._dtype = row_dtype(layout)
        lengths = [output.num_rows if output.subset == "train" else 0 for output in outputs]
        total_bytes = sum(lengths) * self._dtype.itemsize
        num_buckets = max(1, -(-total_bytes // shuffle.bucket_bytes))
        places = place_ranges(shuffle.seed, lengths, num_buckets)
        self._places, self.sizes = places[:-1], places[-1].tolist()
        self._first_rows = _running_sums(lengths)

    def scatter(self, part: int) -> Scatter:
        """A writer that distributes the rows of a part over the buckets."""
        shuffle = self._shuffle
        return Scatter(shuffle.directory, shuffle.seed, self._first_rows[part], self._places[part], self._dtype)

    def read(self, bucket: int) -> tuple[int, Columns]:
        """The number of a bucket's first row in the shuffled order, and its rows."""
        shuffle = self._shuffle
        columns = read_bucket(shuffle.directory, bucket, shuffle.seed, self._dtype, self.sizes[bucket])
        return sum(self.sizes[:bucket]), columns


class Sink(Protocol):
    """A store that is being filled."""

    layout: NpyLayout

    @property
    def archives(self) -> Sequence[MultiHotFile]:
        """Files that are to be finished once all rows are written."""

    @contextmanager
    def open_part(self, part: int) -> Iterator[RowWriter]:
        """Where the rows of a part go."""

    def bucket_sizes(self) -> list[int]:
        """The rows of every bucket, in which the training rows lie once all parts are written; none if not shuffled."""

    def write_bucket(self, bucket: int) -> Record:
        """Shuffle a bucket and write it to its place."""

    def subsets(self) -> Subsets:
        """Which rows of which files are for what."""

    def close(self) -> None:
        """Hand what was written to the disk."""


class _At:
    """Writes rows behind one another into the files of one name."""

    def __init__(self, file: NpyFile | MultiHotFile, row: int) -> None:
        self._file, self._row = file, row

    def write(self, columns: Columns) -> None:
        self._file.write(self._row, columns)
        self._row += columns.num_rows


class NpySink:
    """Three files for every day, or for every subset if the files are not days."""

    def __init__(
        self,
        outputs: Sequence[Output],
        directory: Path,
        layout: NpyLayout,
        shuffle: Shuffle | None,
        multi_hot: MultiHotTables | None = None,
    ) -> None:
        self.layout = layout
        self._outputs = outputs
        self._names = _file_names(outputs)
        totals = dict[str, int]()
        self._first_rows = list[int]()
        for name, output in zip(self._names, outputs, strict=True):
            self._first_rows.append(totals.get(name, 0))
            totals[name] = totals.get(name, 0) + output.num_rows
        archives = dict[str, MultiHotFile]()
        if multi_hot:
            archives = {name: MultiHotFile(directory, name, n, layout, multi_hot) for name, n in totals.items()}
        self.archives = tuple(archives.values())
        self._files: Mapping[str, NpyFile | MultiHotFile] = archives or {
            name: NpyFile(directory, name, n, layout) for name, n in totals.items()
        }
        self._buckets = Buckets(outputs, layout, shuffle) if shuffle else None

    @contextmanager
    def open_part(self, part: int) -> Iterator[RowWriter]:
        """Its place in the arrays, or the buckets."""
        if self._buckets and self._outputs[part].subset == "train":
            yield self._buckets.scatter(part)
        else:
            yield _At(self._files[self._names[part]], self._first_rows[part])

    def bucket_sizes(self) -> list[int]:
        """As many rows as each bucket got."""
        return self._buckets.sizes if self._buckets else []

    def write_bucket(self, bucket: int) -> Record:
        """To the training rows' places, file after file."""
        assert self._buckets is not None
        row, columns = self._buckets.read(bucket)
        file_start = 0
        for name, start, stop in self.subsets()["train"]:
            first, last = max(row, file_start), min(row + columns.num_rows, file_start + stop - start)
            if first < last:
                self._files[name].write(start + first - file_start, columns.rows(first - row, last - row))
            file_start += stop - start
        return {}

    def subsets(self) -> Subsets:
        """Rows of the arrays, neighbours joined."""
        subsets: Subsets = {name: [] for name in SPLIT_NAMES}
        for name, first, output in zip(self._names, self._first_rows, self._outputs, strict=True):
            ranges = subsets[output.subset]
            if ranges and ranges[-1][0] == name and ranges[-1][2] == first:
                ranges[-1] = (name, ranges[-1][1], first + output.num_rows)
            else:
                ranges.append((name, first, first + output.num_rows))
        return subsets

    def close(self) -> None:
        """To the disk."""
        for file in self._files.values():
            file.close()


class ParquetSink:
    """A folder for every subset, with a file for every part or bucket."""

    archives: tuple[MultiHotFile, ...] = ()

    def __init__(self, outputs: Sequence[Output], directory: Path, layout: NpyLayout, shuffle: Shuffle | None) -> None:
        self.layout = layout
        self._outputs, self._directory = outputs, directory
        self._buckets = Buckets(outputs, layout, shuffle) if shuffle else None

    @contextmanager
    def open_part(self, part: int) -> Iterator[RowWriter]:
        """A file of its own, or the buckets."""
        output = self._outputs[part]
        if self._buckets and output.subset == "train":
            yield self._buckets.scatter(part)
            return
        writer = self._new_file(output.subset, part)
        try:
            yield writer
        except BaseException:
            writer.abandon()
            raise
        writer.close()

    def bucket_sizes(self) -> list[int]:
        """As many rows as each bucket got."""
        return self._buckets.sizes if self._buckets else []

    def write_bucket(self, bucket: int) -> Record:
        """A file of its own."""
        assert self._buckets is not None
        _, columns = self._buckets.read(bucket)
        writer = self._new_file("train", bucket)
        writer.write(columns)
        writer.close()
        return {}

    def _new_file(self, subset: SplitName, number: int) -> "ParquetFileWriter":
        from recmill.data.prepared.parquet import ParquetFileWriter  # pyarrow is heavy, and seldom asked for

        return ParquetFileWriter(self._directory / _parquet_name(subset, number), self.layout)

    def subsets(self) -> Subsets:
        """Whole files."""
        subsets: Subsets = {name: [] for name in SPLIT_NAMES}
        for part, output in enumerate(self._outputs):
            if not (self._buckets and output.subset == "train"):
                subsets[output.subset].append((_parquet_name(output.subset, part), 0, output.num_rows))
        for bucket, num_rows in enumerate(self.bucket_sizes()):
            subsets["train"].append((_parquet_name("train", bucket), 0, num_rows))
        return subsets

    def close(self) -> None:
        """Every file was closed when it was complete."""


def _parquet_name(subset: SplitName, number: int) -> str:
    return f"{subset}/part-{number:05d}.parquet"


def _file_names(outputs: Sequence[Output]) -> list[str]:
    """Of each part's arrays: day_0, day_1, … if all inputs are days, else the subset."""
    paths = list(dict.fromkeys(output.source_path for output in outputs))
    if all(is_day(path) for path in paths):
        return [f"day_{paths.index(output.source_path)}" for output in outputs]
    return [output.subset for output in outputs]


def _running_sums(lengths: Sequence[int]) -> list[int]:
    sums, total = list[int](), 0
    for length in lengths:
        sums.append(total)
        total += length
    return sums
