"""Tables of results as Parquet or CSV, or as CSV on standard output; a file is absent or complete."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recmill.errors import ConfigError, DataError
from recmill.files import finished_file
from recmill.serve.predict import Scored

STDOUT = Path("-")
_ENDINGS = (".parquet", ".csv")
_OWN_NAMES = ("row", "probability", "logit", "error")


class TableWriter(Protocol):
    """Takes tables of one schema, one behind the other."""

    def write_table(self, table: Any) -> None:
        """Some rows."""


def refuse_table_path(path: Path) -> None:
    """Complain about a file whose format its name does not tell, or that is there already."""
    if path == STDOUT:
        return
    if path.suffix not in _ENDINGS:
        raise ConfigError(f"--out {path}: the ending tells the format; write FILE.parquet, FILE.csv, or - for CSV here")
    if path.exists():
        raise DataError(f"{path} is there already; choose another name or remove it first")


@contextmanager
def table_writer(path: Path, schema: Any) -> Iterator[TableWriter]:
    """Writes tables of a schema to a file that is there only when the body has succeeded, or to standard output."""
    if path == STDOUT:
        with pa_csv.CSVWriter(pa.PythonFile(sys.stdout.buffer, mode="w"), schema) as writer:
            yield writer
        sys.stdout.flush()
        return
    with finished_file(path) as scratch:
        if path.suffix == ".csv":
            with pa_csv.CSVWriter(str(scratch), schema) as writer:
                yield writer
        else:
            with pq.ParquetWriter(scratch, schema, compression="zstd") as writer:
                yield writer


def refuse_own_names(id_columns: Sequence[str]) -> None:
    """Complain about columns to carry along that would have the name of another one in the table."""
    for name in id_columns:
        if name in _OWN_NAMES or list(id_columns).count(name) > 1:
            raise ConfigError(
                f"--id-column {name}: the table of predictions has a column of that name already "
                f"({', '.join(_OWN_NAMES)}); rename it in the input, or leave it out"
            )


def predictions_schema(first: Scored | None, id_columns: Sequence[str], *, with_errors: bool) -> Any:
    """Of a table of predictions: row, the columns carried along, probability, logit and, if asked for, error."""
    carried = [_as_array(values).type for values in first.carried] if first else [pa.string() for _ in id_columns]
    fields = [("row", pa.int64()), *zip(id_columns, carried, strict=True)]
    fields += [("probability", pa.float64()), ("logit", pa.float32())]
    return pa.schema([*fields, *([("error", pa.string())] if with_errors else [])])


def predictions_table(scored: Scored, probabilities: NDArray[np.float64], schema: Any, first_row: int) -> Any:
    """Some predictions; a row that has none has nulls, and the reason."""
    is_bad = np.isnan(scored.logits)
    columns = [pa.array(np.arange(first_row, first_row + len(scored.logits)))]
    columns += [_as_array(values) for values in scored.carried]
    columns += [pa.array(probabilities, mask=is_bad), pa.array(scored.logits, mask=is_bad)]
    if "error" in schema.names:
        columns.append(pa.array(scored.reasons, pa.string()))
    try:
        fitted = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    except pa.ArrowInvalid as error:
        raise DataError(f"a column to carry along is of another type than in the files before: {error}") from None
    return pa.table(fitted, schema=schema)


def _as_array(values: Any) -> Any:
    return values if isinstance(values, pa.Array) else pa.array(values, pa.string())
