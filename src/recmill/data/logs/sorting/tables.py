"""Rows of Parquet as blocks, the door to pyarrow for sorting: all columns as they are in the files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recmill.data.logs.parquet_rows import open_file
from recmill.data.logs.sorting.blocks import order_of
from recmill.data.logs.time_order import KeyReader
from recmill.errors import DataError

_BATCH_ROWS = 1 << 14
_GROUP_ROWS = 1 << 17  # of a row group that is written


@dataclass(frozen=True)
class TableBlock:
    """Rows with all of their columns."""

    keys: NDArray[np.float64]
    table: pa.Table

    @property
    def num_bytes(self) -> int:
        """Of the columns, and of what is kept of every row."""
        return int(self.table.nbytes) + 32 * len(self.keys)

    def part(self, start: int, stop: int) -> Self:
        """Some of the rows."""
        return type(self)(self.keys[start:stop], self.table.slice(start, stop - start))

    def cut(self, num_bytes: int) -> Iterator[Self]:
        """All rows, in blocks of about so many bytes."""
        step = max(1, len(self.keys) * num_bytes // max(1, self.num_bytes))
        for at in range(0, len(self.keys), step):
            yield self.part(at, min(at + step, len(self.keys)))

    def pack(self) -> Sequence[Any]:
        """As an Arrow stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        return (memoryview(sink.getvalue()),)

    @classmethod
    def unpack(cls, keys: NDArray[np.float64], content: NDArray[np.uint8]) -> Self:
        """The block that was packed."""
        with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
            return cls(keys, stream.read_all())

    @classmethod
    def join(cls, blocks: Sequence[Self]) -> Self:
        """The rows of all blocks in the order of their keys."""
        keys = np.concatenate([block.keys for block in blocks])
        table = pa.concat_tables([block.table for block in blocks]).unify_dictionaries().combine_chunks()
        order = order_of(keys)
        return cls(keys, table) if order is None else cls(keys[order], table.take(pa.array(order)))


def read_tables(paths: Iterable[Path], keys: KeyReader, num_bytes: int) -> Iterator[TableBlock]:
    """The rows of all files, in blocks of about so many bytes; files of other columns are rejected."""
    first: pa.Schema | None = None
    for path in paths:
        file = open_file(path)
        first = first or file.schema_arrow
        if not file.schema_arrow.equals(first):
            raise DataError(f"{path} has other columns or types than the first file; sort files of the same columns")
        with closing(keys.open(path)) as source, closing(file):
            at, held = 0, list[pa.RecordBatch]()
            for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
                held.append(batch)
                if sum(each.nbytes for each in held) >= num_bytes:
                    yield _block_of(held, at, keys, source)
                    at, held = at + sum(each.num_rows for each in held), []
            if held:
                yield _block_of(held, at, keys, source)


def _block_of(batches: list[pa.RecordBatch], at: int, keys: KeyReader, source: Any) -> TableBlock:
    table = pa.Table.from_batches(batches)
    return TableBlock(keys.read(source.whole().part(at, at + table.num_rows)), table)


def compression_of(path: Path) -> str:
    """How the columns of a file are packed, by its first one."""
    found = open_file(path).metadata
    packed = str(found.row_group(0).column(0).compression) if found.num_row_groups and found.num_columns else "SNAPPY"
    return "none" if packed == "UNCOMPRESSED" else packed.lower()


class TableFiles:
    """Parquet files: a new one when the present one is full."""

    def __init__(self, name_of: Callable[[int], Path], compression: str, part_bytes: int) -> None:
        self.num_rows: list[int] = []  # of each file
        self._name_of, self._compression, self._part_bytes = name_of, compression, part_bytes
        self._writer: pq.ParquetWriter | None = None
        self._held: list[TableBlock] = []

    def write(self, block: TableBlock) -> None:
        """Add rows; they are written by groups, and after one a file has the size or goes on."""
        for part in block.cut(max(1, self._part_bytes // 4)):
            self._held.append(part)
            num_bytes = sum(each.num_bytes for each in self._held)
            if num_bytes >= self._part_bytes // 4 or sum(len(each.keys) for each in self._held) >= _GROUP_ROWS:
                self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        table, self._held = TableBlock.join(self._held).table, []
        path = self._name_of(max(0, len(self.num_rows) - 1))
        if self._writer is not None and path.stat().st_size + table.nbytes > self._part_bytes:
            self._writer.close()
            self._writer = None
        if self._writer is None:
            path = self._name_of(len(self.num_rows))
            self._writer = pq.ParquetWriter(path, table.schema, compression=self._compression)
            self.num_rows.append(0)
        self._writer.write_table(table)
        self.num_rows[-1] += table.num_rows

    def close(self) -> None:
        """Finish the last file."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
