"""Whether rows are what their directory says, looked at as they are read: no id that is no row is indexed by."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.errors import DataError
from recmill.jit import njit
from recmill.verified import PREPARE_ANEW


class RowRules(NamedTuple):
    """What the values of rows can be: of each slot the least id, and how many rows its table has."""

    least_ids: NDArray[np.int64]
    num_rows: NDArray[np.int64]

    @classmethod
    def of(cls, table_rows: Sequence[int], slots_per_column: Sequence[int]) -> Self:
        """In one of several slots, −1 stands for no value."""
        least = np.array([0 if num_slots == 1 else -1 for num_slots in slots_per_column], np.int64)
        rules = cls(np.repeat(least, slots_per_column), np.repeat(np.array(table_rows, np.int64), slots_per_column))
        no_ids = np.empty((0, len(rules.num_rows)), np.int64)
        _find_wrong(no_ids, np.empty(0, np.float32), *rules)  # compiled now rather than within the first step
        return rules

    def refuse_wrong(self, columns: Columns, paths: tuple[Path, Path], first_row: int) -> None:
        """Complain about an id that is no row of its table, and a label that is neither 0 nor 1."""
        row, slot = _find_wrong(columns.ids, columns.labels, self.least_ids, self.num_rows)
        if row < 0:
            return
        if slot < 0:
            told = f"label {columns.labels[row]:g}, which is neither 0 nor 1"
            path = paths[0]
        else:
            told = f"id {columns.ids[row, slot]} in slot {slot}, whose table has {self.num_rows[slot]} rows"
            path = paths[1]
        raise DataError(f"{path} is damaged: row {first_row + row} has {told}; {PREPARE_ANEW}")


@njit(nogil=True, cache=True)
def _find_wrong(
    ids: NDArray[np.int64], labels: NDArray[np.float32], least_ids: NDArray[np.int64], num_rows: NDArray[np.int64]
) -> tuple[int, int]:
    """The row and the slot of the first wrong id, slot −1 for a label; (−1, −1) if there is none."""
    for row in range(ids.shape[0]):
        if labels[row] != 0.0 and labels[row] != 1.0:
            return row, -1
        for slot in range(ids.shape[1]):
            if ids[row, slot] < least_ids[slot] or ids[row, slot] >= num_rows[slot]:
                return row, slot
    return -1, -1
