"""Many lines of JSON at once, the door to pyarrow for them; it gives up where a line is not as most are."""

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from numpy.typing import NDArray

from recmill.data.logs.json_line import JsonType
from recmill.data.logs.parquet_rows import cells_of
from recmill.data.text.cells import Cells

_ARROW = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "bytes": pa.binary()}
_MAX_BYTES = 1 << 30  # pyarrow counts them in 32 bits
_SHORT_INFINITY = re.compile(rb"[:\[,]\s*-?Inf(?!inity)")  # pyarrow takes it for a number, and JSON has no such thing


def read_many(lines: NDArray[np.uint8], num_lines: int, types: Mapping[str, JsonType]) -> dict[str, Cells] | None:
    """The columns of lines that each begin and end with a brace; None unless they are so many rows of these types."""
    data = lines.tobytes()
    if len(data) > _MAX_BYTES or b"\0" in data or (b"Inf" in data and _SHORT_INFINITY.search(data)):
        return None
    wanted = pa.schema(
        [(name, pa.list_(_ARROW[found.item]) if found.is_list else _ARROW[found.item]) for name, found in types.items()]
    )
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException:
        return None
    if table.num_rows != num_lines:  # several objects in one line
        return None
    return {name: cells_of(table.column(name).combine_chunks()) for name in types}
