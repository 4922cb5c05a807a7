"""How often the rows that had a value were clicked, as inputs beside the numbers: counted, not learnt."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recmill.data.batch import Columns
from recmill.embeddings.bounds import Bounds
from recmill.embeddings.table import TableSpec
from recmill.jit import njit, prange, uint64
from recmill.seeds import mix64

# Legend: B rows, F categories, S slots, R rows of all tables, K folds.

STATISTICS = ("rate", "rows")  # of each category
_NO_FOLD = -1
_RARE = 0.01  # what less than this share of the training rows were told is not told to others
_MOST_COUNTED = 4096  # rows of a value: more are enough in any case


@njit(nogil=True, parallel=True, cache=True)
def _find_folds(ids: NDArray[np.int64], dense: NDArray[np.uint32], folds: NDArray[np.int64], num_folds: int) -> None:
    for row in prange(len(folds)):
        word = uint64(0)
        for slot in range(ids.shape[1]):
            word = mix64(word ^ uint64(ids[row, slot]))
        for column in range(dense.shape[1]):
            word = mix64(word ^ uint64(dense[row, column]))
        folds[row] = np.int64(word % uint64(num_folds))


@njit(nogil=True, cache=True)
def _count(
    columns: Columns,
    folds: NDArray[np.int64],
    first_row: NDArray[np.int64],
    first_slot: NDArray[np.int64],
    counts: NDArray[np.int32],
) -> None:
    for row in range(len(folds)):
        is_clicked = columns.labels[row] > 0.5
        for table in range(len(first_row) - 1):
            for slot in range(first_slot[table], first_slot[table + 1]):
                if columns.ids[row, slot] >= 0:
                    counts[first_row[table] + columns.ids[row, slot], folds[row], 0] += 1
                    counts[first_row[table] + columns.ids[row, slot], folds[row], 1] += is_clicked


@njit(nogil=True, cache=True)
def _find_floors(
    counts: NDArray[np.int32], first_row: NDArray[np.int64], rare: float, floors: NDArray[np.float64]
) -> None:
    """Of each table the number of other rows of their value that all but a small share of its rows were told."""
    num_folds = counts.shape[1]
    other_folds = num_folds / (num_folds - 1)
    for table in range(len(first_row) - 1):
        told = np.zeros(_MOST_COUNTED + 1, np.int64)  # how many rows were told of so many others
        for place in range(first_row[table], first_row[table + 1]):
            num_rows = counts[place, :, 0].sum()
            for fold in range(num_folds):
                told[min(num_rows - counts[place, fold, 0], _MOST_COUNTED)] += counts[place, fold, 0]
        below, num_others = 0, 0
        while told.sum() and num_others < _MOST_COUNTED and below + told[num_others] <= rare * told.sum():
            below += told[num_others]
            num_others += 1
        floors[table] = other_folds * num_others


@njit(nogil=True, parallel=True, cache=True)
def _look_up(
    columns: Columns,
    folds: NDArray[np.int64],
    bounds: tuple[NDArray[np.int64], NDArray[np.int64]],
    counts: NDArray[np.int32],
    prior: tuple[float, float],
    floors: NDArray[np.float64],
    out: NDArray[np.float32],
) -> None:
    first_row, first_slot = bounds
    prior_rows, prior_clicks = prior
    num_tables, num_folds = len(first_row) - 1, counts.shape[1]
    other_folds = num_folds / (num_folds - 1)
    for row in prange(len(folds)):
        for table in range(num_tables):
            shown, clicked, floor = 0.0, 0.0, 0.0
            for slot in range(first_slot[table], first_slot[table + 1]):
                if columns.ids[row, slot] >= 0:
                    place, floor = first_row[table] + columns.ids[row, slot], floors[table]
                    num_rows, num_clicks = 0, 0
                    for fold in range(num_folds):
                        if fold != folds[row]:
                            num_rows += counts[place, fold, 0]
                            num_clicks += counts[place, fold, 1]
                    # both ways, about what all rows of the value but one say
                    weight = other_folds if folds[row] >= 0 else (num_rows - 1) / max(1, num_rows)
                    shown += weight * num_rows
                    clicked += weight * num_clicks
            out[row, table] = np.log((clicked + prior_clicks) / (shown - clicked + prior_rows - prior_clicks))
            out[row, num_tables + table] = np.log1p(max(shown, floor))


class TargetStatistics(nn.Module):
    """The log odds of a click among rows with the same value, and the logarithm of 1 + their number.

    A rate is drawn to that of all rows, as if `prior_rows` such rows had been seen besides. Rows are in one of several
    folds, by what stands in them; while training, a row is not told of the rows of its own fold, so that it cannot find
    its own click in a rate. What other folds say counts K / (K − 1) times, so that on average it is what all other rows
    of the value say; a row that is evaluated is told as much: of n rows of its value, n − 1. Without that the layers
    would see larger numbers in an evaluation than they were trained with. For the same reason an evaluation does not
    tell of fewer rows than nearly all training rows were told of: values that are new would be far outside of what the
    layers have seen, where all values of a column, such as users, have many rows. The counts are buffers: they are
    saved and restored with the layers.
    """

    def __init__(self, specs: Sequence[TableSpec], num_folds: int, prior_rows: float) -> None:
        super().__init__()
        self._bounds = Bounds(specs)
        self._num_folds, self._prior_rows = num_folds, prior_rows
        num_rows = int(self._bounds.first_row[-1])
        # numpy's zeros take no memory until they are counted up: plans build models too
        self.counts: Tensor
        self.totals: Tensor
        self.register_buffer("counts", torch.from_numpy(np.zeros((num_rows, num_folds, 2), np.int32)))
        self.register_buffer("totals", torch.zeros(2, dtype=torch.int64))  # rows, and clicks among them
        self._found_floors: tuple[tuple[int, int], NDArray[np.float64]] | None = None  # of these totals

    def forget(self) -> None:
        """Begin to count anew."""
        self.counts.zero_()
        self.totals.zero_()

    def count(self, columns: Columns) -> None:
        """Take in rows to train on; all of them are counted once, before the first step."""
        self._bounds.refuse_outside(columns.ids)
        folds = self.folds(columns)
        _count(columns, folds, self._bounds.first_row, self._bounds.first_slot, self.counts.numpy())
        self.totals += torch.tensor([columns.num_rows, int((columns.labels > 0.5).sum())])

    def folds(self, columns: Columns) -> NDArray[np.int64]:
        """Of each row, (B): equal rows are in the same one."""
        folds = np.empty(columns.num_rows, np.int64)
        _find_folds(columns.ids, np.ascontiguousarray(columns.dense).view(np.uint32), folds, self._num_folds)
        return folds

    def forward(self, columns: Columns) -> Tensor:
        """(B, 2·F): the log odds of all categories, then the logarithms."""
        self._bounds.refuse_outside(columns.ids)
        folds = self.folds(columns) if self.training else np.full(columns.num_rows, _NO_FOLD)
        num_rows, num_clicks = self.totals.tolist()
        base_rate = (num_clicks + 0.5) / (num_rows + 1)  # never 0 or 1
        prior = (self._prior_rows, self._prior_rows * base_rate)
        out = np.empty((columns.num_rows, len(STATISTICS) * (len(self._bounds.first_row) - 1)), np.float32)
        bounds = (self._bounds.first_row, self._bounds.first_slot)
        floors = np.zeros(len(self._bounds.first_row) - 1) if self.training else self._floors()
        _look_up(columns, folds, bounds, self.counts.numpy(), prior, floors, out)
        return torch.from_numpy(out)

    def _floors(self) -> NDArray[np.float64]:
        """Of each table, found once for the rows that have been counted."""
        num_rows, num_clicks = self.totals.tolist()
        if self._found_floors is None or self._found_floors[0] != (num_rows, num_clicks):
            floors = np.zeros(len(self._bounds.first_row) - 1)
            _find_floors(self.counts.numpy(), self._bounds.first_row, _RARE, floors)
            self._found_floors = (num_rows, num_clicks), floors
        return self._found_floors[1]
