"""Rows of tables in Parquet: table, row, value, step of the last change, weights, and what the optimizer keeps."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recmill.data.logs.parquet_rows import open_file
from recmill.embeddings.store.layout import Arena
from recmill.errors import DataError
from recmill.files import finished_file
from recmill.regular import require_regular

METADATA = b"recmill.rows"  # key of what the file says of itself, as JSON
_GROUP_BYTES = 16 << 20
_FLOATS = pa.list_(pa.float32())
_TABLE = pa.dictionary(pa.int32(), pa.string())
_FIELDS = (
    *(("table", _TABLE), ("row", pa.int64()), ("value", pa.string()), ("step", pa.int64())),
    *(("weights", _FLOATS), ("state", _FLOATS)),
)
_WAY_OUT = "write it with `recmill store export` or `recmill store delta`"


@dataclass(frozen=True)
class RowsOfFile:
    """Some rows of a file."""

    tables: list[str]  # the names there are
    table_of: NDArray[np.int64]  # of each row, its table among them
    rows: NDArray[np.int64]
    steps: NDArray[np.int64] | None
    values: Arena


class RowsWriter:
    """Takes rows of one table at a time."""

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema, names: list[str], row_bytes: int) -> None:
        self._writer, self._schema, self._names = writer, schema, names
        self._group_rows = max(1, _GROUP_BYTES // max(1, row_bytes))
        self._waiting = list[pa.Table]()
        self.num_rows = 0
        self._num_waiting = 0

    def write(
        self,
        tables: NDArray[np.int64],
        rows: NDArray[np.int64],
        told: list[str | None],
        steps: NDArray[np.int64],
        values: Arena,
    ) -> None:
        """Add rows, each of a table that is given by its number."""
        codes = pa.DictionaryArray.from_arrays(pa.array(tables, pa.int32()), pa.array(self._names, pa.string()))
        columns = [codes, pa.array(rows), pa.array(told, pa.string()), pa.array(steps)]
        columns += [_lists(values.weights), _lists(values.state)]
        self._waiting.append(pa.table(columns, schema=self._schema))
        self._num_waiting += len(rows)
        self.num_rows += len(rows)
        if self._num_waiting >= self._group_rows:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a group of its own."""
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=self._num_waiting)
        self._waiting, self._num_waiting = [], 0


def _lists(values: NDArray[np.float32]) -> pa.Array:
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(values).reshape(-1)))


@contextmanager
def rows_writer(path: Path, facts: dict[str, Any], names: list[str], row_bytes: int) -> Iterator[RowsWriter]:
    """Writes a file that is there only when the body has succeeded."""
    schema = pa.schema(list(_FIELDS), {METADATA: json.dumps(facts).encode()})
    with finished_file(path) as scratch, pq.ParquetWriter(scratch, schema, compression="zstd") as writer:
        rows = RowsWriter(writer, schema, names, row_bytes)
        yield rows
        rows.flush()


class RowsFile:
    """A file of rows, ours or one with the same columns."""

    def __init__(self, path: Path) -> None:
        require_regular(path, _WAY_OUT)
        self.path = path
        self._file = open_file(path)
        self.num_rows = int(self._file.metadata.num_rows)
        self.facts = self._read_facts()
        names = self._file.schema_arrow.names
        if missing := [name for name in ("table", "row", "weights") if name not in names]:
            raise DataError(f"{path} has no column {missing[0]!r}; {_WAY_OUT}")
        self._columns = [name for name, _ in _FIELDS if name in names and name != "value"]

    def _read_facts(self) -> dict[str, Any]:
        """What the file says of itself; nothing if somebody else wrote it."""
        text = (self._file.schema_arrow.metadata or {}).get(METADATA)
        if text is None:
            return {}
        try:
            facts = json.loads(text)
        except ValueError:
            facts = None
        if not isinstance(facts, dict):
            raise DataError(f"{self.path} is damaged: what it says of itself cannot be read; {_WAY_OUT}")
        return facts

    def read(self, dim: int, state_width: int, at_once: int) -> Iterator[RowsOfFile]:
        """All rows, some at a time; other columns than expected are rejected by name."""
        try:
            for batch in self._file.iter_batches(at_once, columns=self._columns, use_threads=False):
                yield self._checked(batch, dim, state_width)
        except (pa.ArrowException, OSError) as error:
            told = str(error).strip().partition("\n")[0]
            raise DataError(f"{self.path} is damaged: {told}; {_WAY_OUT}") from None

    def _checked(self, batch: pa.RecordBatch, dim: int, state_width: int) -> RowsOfFile:
        found = {name: self._cast(batch.column(name), name, kind) for name, kind in _FIELDS if name in self._columns}
        state = np.empty((len(batch), 0), np.float32)
        if state_width or "state" in found:
            if "state" not in found:
                raise DataError(
                    f"{self.path} has no column 'state', and the optimizer keeps {state_width} numbers a row"
                )
            state = self._matrix(found["state"], "state", state_width)
        weights = self._matrix(found["weights"], "weights", dim)
        steps = found["step"].to_numpy(zero_copy_only=False) if "step" in found else None
        tables = found["table"]
        return RowsOfFile(
            [str(name) for name in tables.dictionary.to_pylist()],
            tables.indices.to_numpy(zero_copy_only=False).astype(np.int64),
            found["row"].to_numpy(zero_copy_only=False),
            steps,
            Arena(weights, state),
        )

    def _cast(self, column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
        if column.null_count:
            raise DataError(f"{self.path}: column {name!r} has rows without a value; each needs one")
        if column.type == kind:
            return column
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        is_list = is_list or pa.types.is_fixed_size_list(column.type)
        fits = {
            "table": pa.types.is_string(column.type) or pa.types.is_large_string(column.type),
            "row": pa.types.is_integer(column.type),
            "step": pa.types.is_integer(column.type),
        }.get(name, is_list and pa.types.is_float32(column.type.value_type))
        if not fits and not pa.types.is_dictionary(column.type):
            raise DataError(f"{self.path}: column {name!r} is of type {column.type}, expected {kind}; {_WAY_OUT}")
        if name == "table":
            return column.cast(pa.string()).dictionary_encode()
        return column.cast(kind)

    def _matrix(self, column: pa.Array, name: str, width: int) -> NDArray[np.float32]:
        lengths = np.diff(column.offsets.to_numpy())
        flat = column.flatten()
        if len(other := np.flatnonzero(lengths != width)):
            what = "a dimension of" if name == "weights" else "an optimizer that keeps"
            found = f"column {name!r} has {lengths[other[0]]} numbers a row"
            raise DataError(f"{self.path}: {found}, and the tables have {what} {width}")
        if flat.null_count:
            raise DataError(f"{self.path}: column {name!r} has numbers that are missing")
        return np.ascontiguousarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), width)
