"""How many values each category column has in whole files, so that its table has room for all of them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recmill.data.audit.tally import HashTally, Words
from recmill.data.logs.infer import MAX_SUGGESTED_ROWS
from recmill.data.logs.opening import open_log
from recmill.data.logs.raw import compile_reader, read_chunks
from recmill.data.logs.raw_format import MAX_BAD_LINES, BadLine, RawChunk
from recmill.data.logs.text_file import COMPRESSED
from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY
from recmill.settings.columns import Column, Schema

MAX_BYTES = 256 << 20  # of all files: some seconds
_UNPACKED = 8  # how many times longer packed files are taken to be
_MAX_VALUES = 1 << 20
_LEAST_ROWS, _USUAL_ROWS = 16, 1000
_NUM_THREADS = 2


class ColumnValues:
    """Counts the values of a category column."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self._tally = HashTally(_MAX_VALUES, "sample")
        self._low, self._high = 2**63 - 1, -(2**63)

    def add(self, values: Words) -> None:
        """Take the values of some rows."""
        is_mark = values == MISSING_CATEGORY
        if self.column.is_several:
            is_mark |= values == ABSENT_CATEGORY
        present = values[~is_mark]
        if len(present):
            signed = present.view(np.int64)
            self._low, self._high = min(self._low, int(signed.min())), max(self._high, int(signed.max()))
            self._tally.add(present, np.zeros(len(present), np.uint8))

    @property
    def num_distinct(self) -> int:
        """How many there are; beyond a million an estimate."""
        return self._tally.num_distinct

    @property
    def is_exact(self) -> bool:
        """Whether every value was counted."""
        return self._tally.is_exact

    @property
    def table_rows(self) -> int:
        """A row for each small integer and a quarter more; else ten for each value, so that few meet by chance."""
        is_small = self.column.kind == "int" and self._low >= 0 and self._high <= 4 * self.num_distinct
        if is_small:
            return max(_LEAST_ROWS, self._high + 2 + self._high // 4)
        return min(max(_USUAL_ROWS, 10 * self.num_distinct), MAX_SUGGESTED_ROWS)


@dataclass
class WholeFiles:
    """What all rows of some files say."""

    columns: dict[str, ColumnValues]
    num_rows: int = 0
    num_bad: int = 0
    bad: list[BadLine] = field(default_factory=list)  # the first ones

    @property
    def num_lines(self) -> int:
        """Rows and bad lines."""
        return self.num_rows + self.num_bad


def are_cheap_to_read(paths: Sequence[Path]) -> bool:
    """Whether all rows of the files are read in some seconds."""
    sizes = [path.stat().st_size * (_UNPACKED if _is_packed(path) else 1) for path in paths]
    return sum(sizes) <= MAX_BYTES


def _is_packed(path: Path) -> bool:
    return path.suffix in COMPRESSED or path.suffix == ".parquet"


def count_values(paths: Sequence[Path], schema: Schema, max_unpacked_bytes: int | None = None) -> WholeFiles:
    """Read all rows of the files once."""
    counted = [c for c in schema.of_role("category") if c.source is None]
    found = WholeFiles({column.name: ColumnValues(column) for column in counted})
    compile_reader(schema)
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        for path in paths:
            with closing(open_log(path, schema, max_unpacked_bytes)) as source:
                rows = source.whole()
                line = source.line_number(rows.start)
                with closing(read_chunks(rows, schema, pool, num_ahead=_NUM_THREADS + 1)) as chunks:
                    for chunk in chunks:
                        some = chunk.bad[: MAX_BAD_LINES - len(found.bad)]
                        found.bad += [BadLine(source.place(line + before), wrong) for before, wrong in some]
                        line += chunk.num_lines
                        _take(found, chunk, schema, pool)
    return found


def _take(found: WholeFiles, chunk: RawChunk, schema: Schema, pool: ThreadPoolExecutor) -> None:
    found.num_rows += len(chunk.raw.labels)
    found.num_bad += chunk.num_bad
    names = schema.category_names
    of_slot = [names[column] for column in schema.slot_columns]

    def add(name: str) -> None:
        for slot in [slot for slot, each in enumerate(of_slot) if each == name]:
            found.columns[name].add(np.ascontiguousarray(chunk.raw.values[:, slot]))

    list(pool.map(add, found.columns))
