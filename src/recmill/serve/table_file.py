"""Tables of results as Parquet or CSV, or as CSV on standard output; a file is absent or complete."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from recmill.errors import ConfigError, DataError
from recmill.files import finished_file

STDOUT = Path("-")
_ENDINGS = (".parquet", ".csv")


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
