"""Batches, and columns of encoded rows; a batch knows where it came from."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Legend: B rows, D dense columns, F category columns.


class Columns(NamedTuple):
    """Encoded rows: dense (B, D), ids (B, F), labels (B)."""

    dense: NDArray[np.float32]
    ids: NDArray[np.int64]
    labels: NDArray[np.float32]

    @property
    def num_rows(self) -> int:
        """B."""
        return len(self.labels)

    def rows(self, start: int, stop: int) -> "Columns":
        """A view of some of the rows."""
        return Columns(self.dense[start:stop], self.ids[start:stop], self.labels[start:stop])


def empty_columns(num_rows: int, num_dense: int, num_categories: int) -> Columns:
    """Room for rows, not yet filled."""
    return Columns(
        np.empty((num_rows, num_dense), np.float32),
        np.empty((num_rows, num_categories), np.int64),
        np.empty(num_rows, np.float32),
    )


@dataclass(frozen=True)
class Cursor:
    """Where one lane stands: rows taken from the block that is `ordinal`-th in the lane's order."""

    ordinal: int = 0
    row: int = 0


@dataclass(frozen=True)
class Position:
    """Where a stream stands once a batch is spent: the epoch, and a cursor for every lane it reads."""

    epoch: int
    cursors: tuple[Cursor, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {"epoch": self.epoch, "cursors": [[c.ordinal, c.row] for c in self.cursors]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Position":
        """What `to_json` wrote."""
        return Position(data["epoch"], tuple(Cursor(ordinal, row) for ordinal, row in data["cursors"]))


@dataclass(frozen=True)
class Batch:
    """Rows to train on or to score, the position behind them, and how many bad rows were passed over on the way."""

    columns: Columns
    position: Position
    num_skipped: int = 0

    @property
    def num_rows(self) -> int:
        """B."""
        return self.columns.num_rows
