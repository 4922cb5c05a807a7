"""The first values of single rows, the same as those of whole tables in memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.kernels import first_value
from recmill.embeddings.store.layout import Arena
from recmill.embeddings.table import TableSpec
from recmill.jit import njit, uint64
from recmill.seeds import stream_key
from recmill.settings.optimizers import TableOptimizer


@dataclass(frozen=True)
class FirstValues:
    """What rows hold that have never been changed."""

    first_row: NDArray[np.int64]  # (F + 1)
    keys: NDArray[np.uint64]  # (F)
    bounds: NDArray[np.float64]  # (F)
    accumulator_width: int
    accumulator: float

    def fill(self, arena: Arena, slots: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Put them into these slots."""
        _fill_rows(arena, slots, rows, self.first_row, self.keys, self.bounds)
        arena.state[slots] = 0
        if self.accumulator:
            arena.state[slots, : self.accumulator_width] = self.accumulator


def first_values_of(specs: Sequence[TableSpec], dim: int, optimizer: TableOptimizer, seed: int) -> FirstValues:
    """Of tables that lie end to end."""
    sizes = [spec.num_rows for spec in specs]
    return FirstValues(
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        np.array([stream_key(seed, "table", spec.name) for spec in specs], np.uint64),
        np.array([size**-0.5 for size in sizes]),
        optimizer.accumulator_width(dim),
        optimizer.numbers.get("initial_accumulator", 0.0),
    )


@njit(nogil=True, cache=True)
def _fill_rows(
    arena: Arena,
    slots: NDArray[np.int64],
    rows: NDArray[np.int64],
    first_row: NDArray[np.int64],
    keys: NDArray[np.uint64],
    bounds: NDArray[np.float64],
) -> None:
    for i in range(len(slots)):
        table = np.searchsorted(first_row, rows[i], side="right") - 1
        row = rows[i] - first_row[table]
        for column in range(arena.weights.shape[1]):
            arena.weights[slots[i], column] = first_value(uint64(keys[table]), row, column, bounds[table])
