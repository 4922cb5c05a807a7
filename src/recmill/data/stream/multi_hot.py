"""MLPerf's synthetic multi-hot rows: every row of a table brings others along, drawn once and for all.

The row of a category value stays the first of its ids. The others are a line of a table that is drawn from numpy's
RandomState(0), column after column: of n rows and h ids, (n, h − 1) numbers below n, uniform or of a Pareto tail. The
numbers are the published ones. Published code holds the tables in memory, 24 GB of them with MLPerf's sizes; here they
are drawn piece by piece into a scratch file without a name, and mapped.
"""

import mmap
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.data.stream.block import Block, LogReader, MarkedBlock, Reader
from recmill.errors import ConfigError
from recmill.files import require_free_space
from recmill.jit import njit
from recmill.settings.multi_hot import Distribution, MultiHot

_PARETO_SHAPE = 0.25
_INT32 = np.iinfo(np.int32)
_PIECE_NUMBERS = 1 << 20  # that are drawn at once


def draw_rows(
    rng: np.random.RandomState, num_rows: int, width: int, distribution: Distribution
) -> Iterator[NDArray[np.int32]]:
    """The numbers that go with the rows of one table, some rows at a time: (…, width)."""
    step = max(1, _PIECE_NUMBERS // max(1, width))
    for start in range(0, num_rows if width else 0, step):
        shape = (min(step, num_rows - start), width)
        if distribution == "uniform":
            yield rng.randint(0, num_rows, shape).astype(np.int32)
            continue
        tail = rng.pareto(_PARETO_SHAPE, shape)
        # Published code casts what no int32 holds; this is what that gives on x86, on any machine.
        whole = np.where(tail < -float(_INT32.min), tail, _INT32.min).astype(np.int32)
        yield whole % np.int32(num_rows)


class _Widening(NamedTuple):
    """What the kernel needs, per column: the size of its table, its slots, and where its drawn numbers begin."""

    num_rows: NDArray[np.int64]
    sizes: NDArray[np.int64]
    first_slots: NDArray[np.int64]
    first_drawn: NDArray[np.int64]
    drawn: NDArray[np.int32]


@njit(nogil=True, cache=True)
def _widen(ids: NDArray[np.int64], plan: _Widening, wide: NDArray[np.int64]) -> None:
    """An id outside its table is repeated, for the tables to reject."""
    for row in range(ids.shape[0]):
        for column in range(ids.shape[1]):
            first, others, found = plan.first_slots[column], plan.sizes[column] - 1, ids[row, column]
            wide[row, first] = found
            is_inside = 0 <= found < plan.num_rows[column]
            start = plan.first_drawn[column] + found * others
            for i in range(others):
                wide[row, first + 1 + i] = np.int64(plan.drawn[start + i]) if is_inside else found


class MultiHotTables:
    """The drawn numbers of all columns, in a scratch file of 4·Σ n·(h − 1) bytes that is gone with the process."""

    def __init__(self, rule: MultiHot, table_rows: Sequence[int], scratch_dir: Path | None = None) -> None:
        if max(table_rows) > _INT32.max:
            raise ConfigError(f"a table has {max(table_rows):,} rows; the ids of multi-hot rows have 32 bits")
        self.rule = rule
        lengths = [rows * (size - 1) for rows, size in zip(table_rows, rule.sizes, strict=True)]
        self._plan = _Widening(
            np.array(table_rows, np.int64),
            np.array(rule.sizes, np.int64),
            np.cumsum([0, *rule.sizes[:-1]], dtype=np.int64),
            np.cumsum([0, *lengths[:-1]], dtype=np.int64),
            _draw_all(rule, table_rows, 4 * sum(lengths), scratch_dir or Path(tempfile.gettempdir())),
        )
        self.widen(np.empty((0, len(rule.sizes)), np.int64))  # has the kernel compiled before anyone waits

    def widen(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B, columns) → (B, slots)."""
        wide = np.empty((len(ids), self.rule.num_slots), np.int64)
        _widen(ids, self._plan, wide)
        return wide


def _draw_all(rule: MultiHot, table_rows: Sequence[int], num_bytes: int, scratch_dir: Path) -> NDArray[np.int32]:
    require_free_space(scratch_dir, num_bytes, "drawing the tables of multi-hot rows")
    rng = np.random.RandomState(0)  # the published stream, of which every column takes its share in turn
    with tempfile.TemporaryFile(dir=scratch_dir) as file:
        for rows, size in zip(table_rows, rule.sizes, strict=True):
            for piece in draw_rows(rng, rows, size - 1, rule.distribution):
                file.write(piece.tobytes())
        file.flush()
        content: Any = mmap.mmap(file.fileno(), num_bytes, prot=mmap.PROT_READ) if num_bytes else b""
    return np.frombuffer(content, np.int32)


R_co = TypeVar("R_co", bound=Reader, covariant=True)


@dataclass(frozen=True)
class MultiHotReader(Generic[R_co]):
    """Reads what another reader does, and widens its rows."""

    reader: R_co
    tables: MultiHotTables

    def room_for(self, num_rows: int) -> Columns:
        """Columns of so many rows, not yet filled."""
        ids = np.empty((num_rows, self.tables.rule.num_slots), np.int64)
        return self.reader.room_for(num_rows)._replace(ids=ids)

    def read(self, segments: Sequence[Any]) -> Block:
        """The rows of some segments, in their order."""
        block = self.reader.read(segments)
        return Block(self._widen(block.columns), block.num_skipped, block.bad)

    def read_marked(self: "MultiHotReader[LogReader]", segment: Any) -> MarkedBlock:
        """The rows of a segment of a raw file and all of its bad ones; of readers that can tell them."""
        block = self.reader.read_marked(segment)
        return replace(block, columns=self._widen(block.columns))

    def _widen(self, columns: Columns) -> Columns:
        return columns._replace(ids=self.tables.widen(columns.ids))
