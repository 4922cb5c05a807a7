"""Ids that are rows of their tables, and those that are not."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.table import TableSpec
from recmill.errors import DataError
from recmill.jit import njit


@njit(nogil=True, cache=True)
def find_outside(ids: NDArray[np.int64], first_row: NDArray[np.int64]) -> int:
    """The flat place of the first id (B, F) that is not a row of its table, or −1."""
    for place in range(ids.shape[0]):
        for table in range(ids.shape[1]):
            if ids[place, table] < 0 or ids[place, table] >= first_row[table + 1] - first_row[table]:
                return int(place * ids.shape[1] + table)
    return -1


@njit(nogil=True, cache=True)
def find_outside_slots(
    ids: NDArray[np.int64], first_row: NDArray[np.int64], first_slot: NDArray[np.int64]
) -> tuple[int, int]:
    """Where the first id (B, S) stands that is not a row of its table, nor −1 in one of several slots; or (−1, −1)."""
    for place in range(ids.shape[0]):
        for table in range(len(first_slot) - 1):
            first, end = first_slot[table], first_slot[table + 1]
            num_rows = first_row[table + 1] - first_row[table]
            least = 0 if end - first == 1 else -1
            for slot in range(first, end):
                if ids[place, slot] < least or ids[place, slot] >= num_rows:
                    return place, slot
    return -1, -1


class Bounds:
    """Where each table's rows and slots begin, laid end to end."""

    def __init__(self, specs: Sequence[TableSpec]) -> None:
        self._specs = specs
        self.first_row = np.concatenate([[0], np.cumsum([spec.num_rows for spec in specs], dtype=np.int64)])
        self.first_slot = np.concatenate([[0], np.cumsum([spec.num_slots for spec in specs], dtype=np.int64)])
        self._is_pooled = any(spec.num_slots > 1 for spec in specs)

    @property
    def num_slots(self) -> int:
        """How many ids a row of the batch has: one for each table, more for tables whose rows are summed."""
        return int(self.first_slot[-1])

    def refuse_outside(self, ids: NDArray[np.int64]) -> None:
        """Complain about an id that is no row of its table."""
        assert ids.ndim == 2
        assert ids.shape[1] == self.num_slots
        if not self.num_slots:
            return  # rows of numbers only
        if self._is_pooled:
            row, slot = find_outside_slots(ids, self.first_row, self.first_slot)
        else:
            row, slot = divmod(find_outside(ids, self.first_row), self.num_slots)
        if row >= 0:
            spec = self._specs[int(np.searchsorted(self.first_slot, slot, side="right")) - 1]
            raise DataError(
                f"column {spec.name}: id {ids[row, slot]} is outside its table of {spec.num_rows} rows "
                f"(row {row} of the batch); the data were encoded for other table sizes"
            )
