"""Whether files are in the order of their column of times, and how many of their lines come before a moment."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.formats import FORMATS
from recmill.data.logs.raw_format import RawChunk
from recmill.errors import DataError
from recmill.settings.columns import Column, Schema

_CHUNK_BYTES = 8 << 20


def count_before(paths: Sequence[Path], schema: Schema, days: float, way_out: str) -> int:
    """How many lines of the files come before a moment, in days since 1970; complains about times out of order.

    A line without a time, and one that is no row, goes with the line above.
    """
    times, raw_format = _times_only(schema), FORMATS[schema.format]
    latest, num_before = -np.inf, 0
    for path in paths:
        with closing(raw_format.open(path, times)) as source:
            for part in source.whole().cut(_CHUNK_BYTES):
                found = _days_by_line(raw_format.read(part, times, max_bad=None))
                so_far = np.fmax.accumulate(np.concatenate([[latest], found]))
                behind = np.flatnonzero(found < so_far[:-1])
                if len(behind):
                    name = schema.of_role("time")[0].name
                    line = source.line_number(part.start) + int(behind[0])
                    raise DataError(
                        f"{source.place(line)}: its {name} is before that of a line above, and later lines are for "
                        f"validation and test; sort the files by {name}{way_out}"
                    )
                latest = so_far[-1]
                num_before += int(np.count_nonzero(so_far[1:] < days))
    return num_before


def _times_only(schema: Schema) -> Schema:
    """The schema of the same files that reads nothing but their times."""
    time = schema.of_role("time")[0]
    fields = [each if each is time else Column(name=each.name, role="ignored") for each in schema.fields]
    days = Column(name=f"days of {time.name}", role="dense", source=time.name, part="days")
    return schema.with_({"columns": [*fields, days]})


def _days_by_line(chunk: RawChunk) -> NDArray[np.float64]:
    """NaN for lines that have no time."""
    days, is_row = np.full(chunk.num_lines, np.nan), np.ones(chunk.num_lines, np.bool_)
    is_row[[line for line, _ in chunk.bad]] = False
    days[is_row] = chunk.raw.numbers[:, 0]
    return days
