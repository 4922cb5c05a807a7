"""Batches, and columns of encoded rows; a batch knows where it came from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.errors import RunError

# Legend: B rows, D dense columns, S slots: one for each category column, more for those of several values.


NO_WEIGHTS = np.empty(0, np.float32)


class Columns(NamedTuple):
    """Encoded rows: dense (B, D), ids (B, S) with −1 in slots that hold no value, labels (B).

    Weights are (B) if the schema has such a column, and otherwise empty: kernels take both.
    """

    dense: NDArray[np.float32]
    ids: NDArray[np.int64]
    labels: NDArray[np.float32]
    weights: NDArray[np.float32] = NO_WEIGHTS

    @property
    def num_rows(self) -> int:
        """B."""
        return len(self.labels)

    def rows(self, start: int, stop: int) -> "Columns":
        """A view of some of the rows."""
        return Columns._make(column[start:stop] for column in self)

    def take(self, rows: NDArray[np.int64]) -> "Columns":
        """Some of the rows, copied."""
        weights = self.weights[rows] if len(self.weights) else self.weights
        return Columns(self.dense[rows], self.ids[rows], self.labels[rows], weights)


def empty_columns(num_rows: int, num_dense: int, num_slots: int, has_weight: bool = False) -> Columns:
    """Room for rows, not yet filled."""
    return Columns(
        np.empty((num_rows, num_dense), np.float32),
        np.empty((num_rows, num_slots), np.int64),
        np.empty(num_rows, np.float32),
        np.empty(num_rows if has_weight else 0, np.float32),
    )


def join_columns(pieces: Sequence[Columns]) -> Columns:
    """The rows of all pieces, of which there is at least one, in their order."""
    if len(pieces) == 1:
        return pieces[0]
    return Columns._make(map(np.concatenate, zip(*pieces, strict=True)))


class Cursor(NamedTuple):
    """Where one lane stands: in its epoch, rows taken from the block that is `ordinal`-th in the lane's order."""

    epoch: int = 0
    ordinal: int = 0
    row: int = 0


@dataclass(frozen=True)
class Position:
    """Where a stream stands once a batch is spent: a cursor for every lane it reads."""

    cursors: tuple[Cursor, ...]
    origin: str = field(default="", compare=False)  # the file that it was read from

    @property
    def epoch(self) -> int:
        """How many passes over the data all lanes have finished."""
        return min(cursor.epoch for cursor in self.cursors)

    def part(self, rank: int, size: int) -> "Position":
        """The cursors of the lanes that one of several processes reads."""
        return Position(self.cursors[rank::size], self.origin)

    def misfit(self, what: str) -> RunError:
        """The error of a position that the data does not have."""
        return RunError(
            f"{self.origin or 'the position'} does not fit the data: {what}; either it is damaged, or the data is not "
            "what it was (--data DIR, if it was moved)"
        )

    def to_json(self) -> list[list[int]]:
        """Plain data for a checkpoint."""
        return [list(cursor) for cursor in self.cursors]

    @staticmethod
    def from_json(data: list[list[int]], origin: str = "") -> "Position":
        """What `to_json` wrote, and a file has kept."""
        return Position(tuple(Cursor(*place) for place in data), origin)


@dataclass(frozen=True)
class Batch:
    """Rows to train on or to score, the position behind them, and how many bad rows were ignored on the way."""

    columns: Columns
    position: Position
    num_skipped: int = 0

    @property
    def num_rows(self) -> int:
        """B."""
        return self.columns.num_rows
