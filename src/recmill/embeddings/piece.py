"""A part of a table that lies in one place: what engines hand out to be saved, and fill when it is read back."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recmill.embeddings.kernels import fill_uniform
from recmill.seeds import stream_key
from recmill.settings.optimizers import TableOptimizer

What = Literal["weights", "state"]


@dataclass(frozen=True)
class Piece:
    """Some rows and columns of a table's weights, or of what its optimizer keeps, and where they belong."""

    table: str
    what: What
    shape: tuple[int, int]  # of the whole
    first_row: int
    first_column: int
    values: Tensor  # (rows, columns), not a copy

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return int(self.values.shape[0])

    @property
    def num_columns(self) -> int:
        """How many columns it has."""
        return int(self.values.shape[1])


def set_first_values(piece: Piece, optimizer: TableOptimizer, dim: int, seed: int) -> None:
    """What a piece, all zeros, holds before the first step, by the seed, the table, the row and the column alone."""
    if piece.what == "weights":
        key = np.uint64(stream_key(seed, "table", piece.table))
        values = np.empty(piece.values.shape, np.float32) if piece.values.is_cuda else piece.values.numpy()
        fill_uniform(values, key, piece.shape[0] ** -0.5, piece.first_row, piece.first_column)
        if piece.values.is_cuda:
            piece.values.copy_(torch.from_numpy(values))
    elif first_value := optimizer.numbers.get("initial_accumulator"):
        piece.values[:, : max(0, optimizer.accumulator_width(dim) - piece.first_column)] = first_value


class HasPieces(Protocol):
    """The tables of a process, whatever engine holds them."""

    num_updates: int  # finished ones

    def pieces(self) -> list[Piece]:
        """All that this process holds."""

    def pieces_to_save(self) -> list[Piece]:
        """Those of them that this process saves: what several hold is saved by one."""


class RowTable(HasPieces, Protocol):
    """A table of which single rows are looked up, wherever they lie."""

    lr: float  # of the next update

    def look_up(self, ids: NDArray[np.int64]) -> Tensor:
        """(N, 1) → (N, 1, D); the backward pass updates the rows."""

    def all_rows(self) -> Tensor:
        """(rows, D), within `gathered`."""

    def gathered(self) -> AbstractContextManager[None]:
        """A body in which every process has all rows at hand, and which all enter at once."""
