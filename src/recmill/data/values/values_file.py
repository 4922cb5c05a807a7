"""Known texts of string categories as a Parquet file: the door to pyarrow for it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recmill.data.values.known import KnownValues
from recmill.errors import DataError
from recmill.files import finished_file

_SCHEMA = pa.schema([("column", pa.string()), ("value_hash", pa.uint64()), ("value", pa.binary())])


def write_known(path: Path, known: KnownValues) -> None:
    """All of them; texts are bytes, since not every one is Unicode."""
    rows = [(name, hashed, text) for name, own in known.items() for hashed, text in own.items()]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    with finished_file(path) as scratch:
        pq.write_table(pa.table(arrays, schema=_SCHEMA), scratch, compression="zstd")


def read_known(path: Path) -> KnownValues:
    """What `write_known` wrote; nothing if there is no such file."""
    if not path.is_file():
        return {}
    try:
        columns = pq.read_table(path, schema=_SCHEMA).to_pydict()
    except (pa.ArrowException, OSError) as error:
        told = str(error).partition("\n")[0]
        raise DataError(f"{path} is damaged: {told}; remove it, and hashes are shown in place of texts") from None
    known = KnownValues()
    for name, hashed, text in zip(*columns.values(), strict=True):
        known.setdefault(name, {})[hashed] = text
    return known
