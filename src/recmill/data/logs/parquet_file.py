"""A Parquet file as raw rows that can be read at any place, and ranges of them.

Parquet gives its rows by groups, often of a million, and no part of a group without all before it; a stream wants some
thousand rows from a different place each time. So a group is decoded once, when its first row is asked for, into a
scratch file as long as all raw rows: 6 bytes a row, and 8 for every dense column and every slot of a category. It is
mapped into memory, lies in the directory for temporary files (TMPDIR) and has no name from the moment it is open.
Decoding holds `DECODED_ROWS` rows of the file in memory, whatever the size of its groups.
"""

import mmap
import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.infer_parquet import infer_parquet
from recmill.data.logs.raw_format import MAX_BAD_LINES, NOTHING_ASKED, AskedColumns, Draft, RawChunk
from recmill.data.logs.text_file import too_large
from recmill.data.text.cells import compile_cells, explain_cell, read_cells
from recmill.data.text.fields import RawColumns
from recmill.data.text.reference import BadRow
from recmill.errors import DataError
from recmill.files import require_free_space
from recmill.settings.columns import Schema
from recmill.settings.data import DataConfig

DECODED_ROWS = 1 << 14


class DecodedRows(NamedTuple):
    """Neighbouring rows, and for each the place, from 1, of the column that makes it a bad one; 0 if none does."""

    raw: RawColumns
    flaws: NDArray[np.uint16]

    def rows(self, start: int, stop: int) -> "DecodedRows":
        """A view of some of the rows."""
        return DecodedRows(self.raw.rows(start, stop), self.flaws[start:stop])

    def without_bad(self) -> RawColumns:
        """The good rows, copied."""
        kept = self.flaws == 0
        weights = self.raw.weights
        return RawColumns(
            self.raw.labels[kept],
            self.raw.numbers[kept],
            self.raw.values[kept],
            weights[kept] if len(weights) else weights,
        )


class ParquetSource:
    """The rows of one file; may be shared by threads."""

    def __init__(self, path: Path, schema: Schema, max_unpacked_bytes: int | None = None) -> None:
        from recmill.data.logs.parquet_rows import ParquetLog  # pyarrow is heavy

        self.path, self._schema = path, schema
        self._log = ParquetLog(path, schema)
        self.num_rows = self._log.num_rows
        self.row_bytes = 4 + 2 + 4 * schema.has_weight + 8 * len(schema.dense_names) + 8 * schema.num_slots
        if max_unpacked_bytes is not None and self.num_rows * self.row_bytes > max_unpacked_bytes:
            raise too_large(path, max_unpacked_bytes)
        self._locks = [threading.Lock() for _ in range(self._log.num_groups)]
        self._is_decoded = [False] * self._log.num_groups
        self._lock = threading.Lock()
        self._map: mmap.mmap | None = None
        self._rows: DecodedRows | None = None

    def whole(self) -> "ParquetSegment":
        """All rows of the file."""
        return ParquetSegment(self, 0, self.num_rows)

    def read(self, start: int, stop: int) -> DecodedRows:
        """Some rows, as views that last until the source is closed."""
        for group in self._log.groups_of(start, stop):
            with self._locks[group]:
                if not self._is_decoded[group]:
                    self._decode(group)
                    self._is_decoded[group] = True
        return self._room().rows(start, stop)

    def _decode(self, group: int) -> None:
        room, row = self._room(), self._log.first_row(group)
        for num_rows, columns in self._log.read_group(group, DECODED_ROWS):
            part = room.rows(row, row + num_rows)
            read_cells(columns, self._schema, part.raw, part.flaws)
            self.forget(row, row + num_rows)
            row += num_rows

    def _room(self) -> DecodedRows:
        """The scratch file as arrays, made when it is first needed."""
        with self._lock:
            if self._rows is None:
                self._map = _new_scratch(self.path, max(1, self.num_rows * self.row_bytes))
                shapes = self._shapes()
                ends = np.cumsum([np.dtype(kind).itemsize * int(np.prod(shape)) for kind, shape in shapes])
                values, numbers, labels, weights, flaws = (
                    np.frombuffer(self._map, kind, int(np.prod(shape)), start).reshape(shape)
                    for (kind, shape), start in zip(shapes, [0, *ends.tolist()[:-1]], strict=True)
                )
                self._rows = DecodedRows(RawColumns(labels, numbers, values, weights), flaws)
            return self._rows

    def _shapes(self) -> list[tuple[type[np.generic], tuple[int, ...]]]:
        """Of values, numbers, labels, weights if there are any, and flaws: the widest first, so all are aligned."""
        n, schema = self.num_rows, self._schema
        return [
            (np.uint64, (n, schema.num_slots)),
            (np.float64, (n, len(schema.dense_names))),
            (np.float32, (n,)),
            (np.float32, (n if schema.has_weight else 0,)),
            (np.uint16, (n,)),
        ]

    def describe(self, rows: Sequence[int], flaws: Sequence[int]) -> list[BadRow]:
        """What is wrong with some rows in their order; reads the columns at fault again, for error messages."""
        found = dict[int, BadRow]()
        for flaw in sorted(set(flaws)):
            column = self._schema.field_of(self._schema.columns[flaw - 1])
            theirs = [row for row, its in zip(rows, flaws, strict=True) if its == flaw]
            cells = self._log.read_cells(theirs, column.name)
            found.update((row, explain_cell(cell, column)) for row, cell in zip(theirs, cells, strict=True))
        return [found[row] for row in rows]

    def line_number(self, row: int) -> int:
        """The number of a row, from 1."""
        return row + 1

    def place(self, line: int) -> str:
        """A row by its number, for messages."""
        return f"{self.path}, row {line}"

    def forget(self, start: int, stop: int) -> None:
        """Let go of the memory behind rows that will not be read again soon; the scratch file keeps them."""
        self._advise(mmap.MADV_DONTNEED, start, stop)

    def fetch(self, start: int, stop: int) -> None:
        """Ask the system to read decoded rows from the disk, without waiting for them."""
        self._advise(mmap.MADV_WILLNEED, start, stop)

    def _advise(self, advice: int, start: int, stop: int) -> None:
        """Of the pages that lie within the rows, in each of the arrays."""
        offset = 0
        for kind, (num_rows, *widths) in self._shapes():
            if num_rows == 0:
                continue
            row_bytes = np.dtype(kind).itemsize * int(np.prod(widths))
            first = -(-(offset + start * row_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
            last = (offset + stop * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
            if self._map is not None and first < last:
                self._map.madvise(advice, first, last - first)
            offset += self.num_rows * row_bytes

    def close(self) -> None:
        """Let go of the scratch file; it is gone with the last array that looks into it."""
        self._rows = self._map = None
        self._is_decoded = [False] * len(self._is_decoded)


def _new_scratch(path: Path, num_bytes: int) -> mmap.mmap:
    """A nameless file whose blocks are reserved: writing to a mapped file on a full disk would end the process."""
    directory = Path(tempfile.gettempdir())
    require_free_space(directory, num_bytes, f"decoding {path}")
    with tempfile.TemporaryFile(dir=directory) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        except OSError as error:
            raise DataError(f"decoding {path} takes {num_bytes:,} bytes in {directory}: {error.strerror}") from None
        return mmap.mmap(file.fileno(), num_bytes)


@dataclass(frozen=True)
class ParquetSegment:
    """Neighbouring rows of a source."""

    source: ParquetSource
    start: int
    stop: int

    @property
    def extent(self) -> int:
        """What a stream cuts into blocks: rows, here."""
        return self.stop - self.start

    @property
    def num_bytes(self) -> int:
        """The length of the raw rows."""
        return self.extent * self.source.row_bytes

    def fetch(self) -> None:
        """Ask the system to read it from the disk, without waiting for it."""
        self.source.fetch(self.start, self.stop)

    def part(self, start: int, stop: int) -> "ParquetSegment":
        """Some of the rows, counted from the first."""
        return ParquetSegment(self.source, min(self.start + start, self.stop), min(self.start + stop, self.stop))

    def cut(self, num_bytes: int) -> list["ParquetSegment"]:
        """All of it, in parts of about so many bytes of raw rows."""
        step = max(1, num_bytes // self.source.row_bytes)
        return [self.part(at, at + step) for at in range(0, self.extent, step)]

    def cut_at(self, num_rows: int) -> tuple["ParquetSegment", "ParquetSegment"]:
        """The first so many rows, and the rest."""
        return self.part(0, num_rows), self.part(num_rows, self.extent)

    def count_rows(self) -> int:
        """How many rows it has, without reading one."""
        return self.extent

    def estimate_rows(self) -> int:
        """How many rows it has."""
        return self.extent


class ParquetFormat:
    """Columns found by their names, of types that the schema's kinds take."""

    title = "Parquet"
    suffixes = (".parquet",)
    evaluation_extent = 1 << 12

    def training_extent(self, data: DataConfig) -> int:
        """So many rows."""
        return data.block_rows

    def open(self, path: Path, schema: Schema, max_unpacked_bytes: int | None = None) -> ParquetSource:
        """The file, with its columns checked against the schema."""
        return ParquetSource(path, schema, max_unpacked_bytes)

    def infer(self, paths: Sequence[Path], *, name: str, asked: AskedColumns = NOTHING_ASKED) -> Draft:
        """A schema file guessed from the types and the first rows of the files."""
        return infer_parquet(paths, name=name, asked=asked)

    def compile(self, _schema: Schema) -> None:
        """Have the kernels compiled, or loaded from their cache; they are the same for every schema."""
        compile_cells()

    def check_first(self, _segment: ParquetSegment, _schema: Schema) -> BadRow | None:
        """Nothing: the columns were checked when the file was opened."""

    def read(self, segment: ParquetSegment, _schema: Schema, *, max_bad: int | None = MAX_BAD_LINES) -> RawChunk:
        """The rows of a segment, as views that last until its source is closed, and its bad rows."""
        rows = segment.source.read(segment.start, segment.stop)
        if not rows.flaws.any():
            return RawChunk(rows.raw, segment.extent, ())
        places = np.flatnonzero(rows.flaws)[:max_bad]
        found = segment.source.describe((segment.start + places).tolist(), rows.flaws[places].tolist())
        return RawChunk(rows.without_bad(), segment.extent, tuple(zip(places.tolist(), found, strict=True)))
