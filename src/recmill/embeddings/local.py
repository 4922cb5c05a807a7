"""The engine of one CPU process whose tables fit into memory: all rows in one array."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recmill.embeddings.bounds import Bounds
from recmill.embeddings.engine import RowEngine
from recmill.embeddings.piece import Piece, What, set_first_values
from recmill.embeddings.rules import Storage
from recmill.embeddings.table import TableSpec
from recmill.settings.optimizers import TableOptimizer


class LocalTables(RowEngine):
    """Embedding tables of one dimension, end to end in memory; an id is a place."""

    def __init__(self, specs: Sequence[TableSpec], dim: int, optimizer: TableOptimizer, *, seed: int) -> None:
        bounds = Bounds(specs)
        num_rows = int(bounds.first_row[-1])
        storage = Storage(
            np.empty((num_rows, dim), np.float32),
            np.zeros((num_rows, optimizer.state_width(dim)), np.float32),
            bounds.first_row,
            bounds.first_slot,
        )
        super().__init__(specs, dim, optimizer, storage)
        for piece in self.pieces():
            set_first_values(piece, optimizer, dim, seed)

    def look_up(self, ids: NDArray[np.int64]) -> Tensor:
        """The rows of ids (B, S), those of a table's slots pooled, as (B, F, D); the backward pass updates them."""
        self._bounds.refuse_outside(ids)
        return self._look_up_places(ids)

    def weights(self, name: str) -> NDArray[np.float32]:
        """A table's rows, (rows, D), not a copy."""
        return self._storage.weights[self._rows_of(name)]

    def all_rows(self) -> Tensor:
        """The rows of all tables, one behind the other, not a copy."""
        return torch.from_numpy(self._storage.weights)

    def gathered(self) -> AbstractContextManager[None]:
        """A body in which all rows are at hand, which they always are."""
        return nullcontext()

    def state(self, name: str) -> NDArray[np.float32]:
        """What the optimizer keeps for a table's rows, (rows, state width), not a copy."""
        return self._storage.state[self._rows_of(name)]

    def pieces_to_save(self) -> list[Piece]:
        """The same as `pieces`: nobody else has them."""
        return self.pieces()

    def pieces(self) -> list[Piece]:
        """All tables, each whole, and what the optimizer keeps for them."""
        pieces = list[Piece]()
        for name in (spec.name for spec in self.specs):
            views: tuple[tuple[What, NDArray[np.float32]], ...]
            views = ("weights", self.weights(name)), ("state", self.state(name))
            for what, array in views:
                if array.size:
                    pieces.append(Piece(name, what, (len(array), array.shape[1]), 0, 0, torch.from_numpy(array)))
        return pieces

    def _rows_of(self, name: str) -> slice:
        table = [spec.name for spec in self.specs].index(name)
        return slice(int(self._storage.first_row[table]), int(self._storage.first_row[table + 1]))
