"""Prepared rows in Parquet, under OneFlow's names: label, I1 … I13, C1 … C26, dense float32 and ids of table rows."""

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recmill.data.batch import Columns, empty_columns
from recmill.data.encode.entries import Entries, Form
from recmill.data.logs.parquet_rows import UNREADABLE, open_file
from recmill.data.prepared.npy import NpyLayout
from recmill.data.values.known import decoded
from recmill.errors import DataError
from recmill.files import finished_file
from recmill.regular import require_regular
from recmill.verified import PREPARE_ANEW

ROW_GROUP_ROWS = 8192


def column_names(layout: NpyLayout) -> list[str]:
    """The label, the dense columns, the slots of categories and the weight, if there is one."""
    dense = [f"I{i + 1}" for i in range(layout.num_dense)]
    weight = ["weight"] if layout.has_weight else []
    return ["label", *dense, *(f"C{i + 1}" for i in range(layout.num_slots)), *weight]


def parquet_schema(layout: NpyLayout) -> pa.Schema:
    """The types of the columns."""
    ids = pa.int32() if layout.ids_dtype == "int32" else pa.int64()
    types = [
        pa.float32(),
        *[pa.float32()] * layout.num_dense,
        *[ids] * layout.num_slots,
        *[pa.float32()] * layout.has_weight,
    ]
    return pa.schema([pa.field(n, t, nullable=False) for n, t in zip(column_names(layout), types, strict=True)])


class ParquetFileWriter:
    """One file, written front to back; it has its name only when it is complete."""

    def __init__(self, path: Path, layout: NpyLayout) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._layout = path, layout
        self._scratch = path.with_name(f".{path.name}.{os.getpid()}")
        self._writer = pq.ParquetWriter(self._scratch, parquet_schema(layout), compression="zstd")
        self._waiting = list[pa.Table]()
        self._num_waiting = 0

    def write(self, columns: Columns) -> None:
        """Add rows; groups are cut at fixed numbers of rows, however the rows come."""
        ids = columns.ids.astype(self._layout.ids_dtype)
        arrays = [
            columns.labels,
            *(np.ascontiguousarray(column) for column in columns.dense.T),
            *(np.ascontiguousarray(column) for column in ids.T),
            *([columns.weights] if self._layout.has_weight else []),
        ]
        self._waiting.append(pa.table([pa.array(a) for a in arrays], schema=parquet_schema(self._layout)))
        self._num_waiting += columns.num_rows
        if self._num_waiting >= ROW_GROUP_ROWS:
            self._flush(self._num_waiting // ROW_GROUP_ROWS * ROW_GROUP_ROWS)

    def _flush(self, num_rows: int) -> None:
        table = pa.concat_tables(self._waiting).combine_chunks()
        self._writer.write_table(table.slice(0, num_rows), row_group_size=ROW_GROUP_ROWS)
        self._waiting, self._num_waiting = [table.slice(num_rows)], self._num_waiting - num_rows

    def close(self) -> None:
        """Write what is left, and give the file its name."""
        if self._num_waiting:
            self._flush(self._num_waiting)
        self._writer.close()
        self._scratch.replace(self._path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._writer.close()
        self._scratch.unlink(missing_ok=True)


_ENTRY_TYPES = {"hash": pa.uint64(), "hex": pa.string(), "int": pa.int64()}


def write_entries(path: Path, portions: Iterable[Entries], form: Form, texts: Mapping[int, bytes] | None = None) -> int:
    """What every row of a table stands for: id, meaning and, as far as it can be told, the value; how many lines.

    Of strings there are hashes, and beside them those texts that are known.
    """
    name, kind = "value_hash" if form == "hash" else "value", _ENTRY_TYPES[form]
    meaning = pa.dictionary(pa.int8(), pa.string())
    of_hashes = [("value", pa.string())] if form == "hash" else []
    schema = pa.schema([("id", pa.int64()), ("meaning", meaning), (name, kind), *of_hashes])
    num_written = 0
    with finished_file(path) as scratch, pq.ParquetWriter(scratch, schema, compression="zstd") as writer:
        for rows, is_value, values in portions:
            codes = np.where(is_value, 0, rows + 1).astype(np.int8)
            meanings = pa.DictionaryArray.from_arrays(codes, ["value", "missing", "unknown"])
            told = [f"{value:08x}" for value in values.tolist()] if form == "hex" else values
            told = values.view(np.int64) if form == "int" else told
            columns = [pa.array(rows), meanings, pa.array(told, kind, mask=~is_value)]
            if of_hashes:
                found = [texts.get(value) if texts else None for value in values.tolist()]
                shown = [None if text is None else decoded(text) for text in found]
                columns.append(pa.array(shown, pa.string(), mask=~is_value))
            writer.write_table(pa.table(columns, schema=schema))
            num_written += len(rows)
    return num_written


class ParquetTable:
    """The rows of one file: read by groups, or all held in memory."""

    def __init__(self, path: Path, layout: NpyLayout, *, in_memory: bool = False) -> None:
        self.path = self.ids_path = path
        self._layout = layout
        self._of_thread = threading.local()
        file = self._file
        if not file.schema_arrow.equals(parquet_schema(layout)):
            found = ", ".join(f"{field.name}: {field.type}" for field in file.schema_arrow)
            raise DataError(f"{path} has other columns than its manifest says: {found}; {PREPARE_ANEW}")
        self.num_rows = int(file.metadata.num_rows)
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        if min(groups, default=0) < 0 or sum(groups) != self.num_rows:
            raise DataError(f"{path} is damaged: its groups have not the rows that it states; {PREPARE_ANEW}")
        self._starts = np.cumsum([0, *groups])
        self._columns = self._read_groups(0, file.num_row_groups) if in_memory else None

    @property
    def _file(self) -> pq.ParquetFile:
        """Every thread has its own: one cannot be read by two at the same time."""
        if not hasattr(self._of_thread, "file"):
            require_regular(self.path, PREPARE_ANEW)
            self._of_thread.file = open_file(self.path)
        return self._of_thread.file

    def read(self, start: int, stop: int) -> Columns:
        """Some rows, as they were encoded."""
        if self._columns is not None:
            return self._columns.rows(start, stop)
        first = int(np.searchsorted(self._starts, start, "right")) - 1
        end = int(np.searchsorted(self._starts, stop, "left"))
        offset = int(self._starts[first])
        return self._read_groups(first, max(first, end)).rows(start - offset, stop - offset)

    def _read_groups(self, first: int, end: int) -> Columns:
        try:
            table = self._file.read_row_groups(list(range(first, end)), use_threads=False)
        except UNREADABLE as error:
            told = str(error).strip().partition("\n")[0]
            raise DataError(f"{self.path} is damaged: {told}; {PREPARE_ANEW}") from None
        if table.num_rows != self._starts[end] - self._starts[first] or any(c.null_count for c in table.columns):
            raise DataError(f"{self.path} is damaged: rows or values of a group are missing; {PREPARE_ANEW}")
        layout = self._layout
        columns = empty_columns(table.num_rows, layout.num_dense, layout.num_slots, layout.has_weight)
        columns.labels[:] = table.column(0).to_numpy()
        for i in range(self._layout.num_dense):
            columns.dense[:, i] = table.column(1 + i).to_numpy()
        for i in range(self._layout.num_slots):
            columns.ids[:, i] = table.column(1 + self._layout.num_dense + i).to_numpy()
        if layout.has_weight:
            columns.weights[:] = table.column("weight").to_numpy()
        return columns

    def fetch(self, start: int, stop: int) -> None:
        """Nothing: pyarrow reads whole row groups, when they are wanted."""

    def close(self) -> None:
        """Let go of the memory; each thread's file is closed when the thread ends."""
        self._columns = None
        self._of_thread = threading.local()
