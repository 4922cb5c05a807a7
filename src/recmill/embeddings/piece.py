"""A part of a table that lies in one place: what engines hand out to be saved, and fill when it is read back."""

from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

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


class HasPieces(Protocol):
    """The tables of a process, whatever engine holds them."""

    num_updates: int  # finished ones

    def pieces(self) -> list[Piece]:
        """All that this process holds; a piece that several hold is handed out by one."""
