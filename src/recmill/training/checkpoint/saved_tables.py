"""Tables on disk in pieces: named by what they are a part of, and read back by whoever needs some rows of them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from recmill.embeddings.piece import HasPieces, Piece, What
from recmill.embeddings.store.kind import STORE
from recmill.embeddings.tiered import TieredTables
from recmill.errors import RunError
from recmill.training.checkpoint.open_tensors import open_tensors
from recmill.training.checkpoint.saved_rows import (
    StoredContent,
    has_stored_rows,
    is_of_kind,
    open_stored,
    restore_in_place,
    widths_of,
)

STEMS: dict[What, str] = {"weights": "tables", "state": "table_state"}
# A part of a table carries the rows and columns it holds behind the table's name.
_PART = re.compile(r"(?P<table>.*)\[(?P<row>\d+):(?P<row_end>\d+),(?P<column>\d+):(?P<column_end>\d+)\]")
_COPY_BYTES = 16 << 20


def key_of(piece: Piece) -> str:
    """The name of a piece in its file: the table's own if it is whole."""
    rows, columns = piece.num_rows, piece.num_columns
    if (rows, columns) == piece.shape:
        return piece.table
    row, column = piece.first_row, piece.first_column
    return f"{piece.table}[{row}:{row + rows},{column}:{column + columns}]"


def file_of(what: What, rank: int, size: int) -> str:
    """Where a process puts its pieces."""
    part = f".{rank:05}-of-{size:05}" if size > 1 else ""
    return f"{STEMS[what]}{part}.safetensors"


@dataclass(frozen=True)
class Extent:
    """Rows and columns, from the first up to the one behind the last."""

    row: int
    row_end: int
    column: int
    column_end: int

    def common(self, other: "Extent") -> "Extent | None":
        """What both hold."""
        both = Extent(
            max(self.row, other.row),
            min(self.row_end, other.row_end),
            max(self.column, other.column),
            min(self.column_end, other.column_end),
        )
        return both if both.row < both.row_end and both.column < both.column_end else None

    @property
    def num_cells(self) -> int:
        """Rows times columns."""
        return (self.row_end - self.row) * (self.column_end - self.column)


@dataclass(frozen=True)
class SavedPiece:
    """A piece in a file."""

    file: str
    place: int  # among the pieces of its file
    extent: Extent
    content: Any  # what safetensors lets one slice

    def read(self, wanted: Extent) -> Tensor:
        """Some of it."""
        rows = slice(wanted.row - self.extent.row, wanted.row_end - self.extent.row)
        columns = slice(wanted.column - self.extent.column, wanted.column_end - self.extent.column)
        values: Tensor = self.content[rows, columns]
        return values


class SavedTables:
    """The weights, or the optimizer's numbers, of all tables of a saved state; use it with `with`."""

    def __init__(self, directory: Path, what: What, *, with_stored: bool = True) -> None:
        self._place = f"{directory}/{STEMS[what]}*.safetensors"
        self._files = ExitStack()
        self._pieces: dict[str, list[SavedPiece]] = {}
        if with_stored and has_stored_rows(directory):
            self._open_stored(directory, what)
        for path in sorted(directory.glob(f"{STEMS[what]}*.safetensors")):
            file = self._files.enter_context(open_tensors(path))
            for place, key in enumerate(file.offset_keys()):
                content = file.get_slice(key)
                table, extent = _read_key(key, content, path)
                self._pieces.setdefault(table, []).append(SavedPiece(path.name, place, extent, content))

    def _open_stored(self, directory: Path, what: What) -> None:
        stored = open_stored(directory)
        self._files.callback(stored.close)
        width = widths_of(stored.kind)[what]
        for place, spec in enumerate(stored.kind.specs if width else ()):
            extent, content = Extent(0, spec.num_rows, 0, width), StoredContent(stored, spec.name, what)
            self._pieces[spec.name] = [SavedPiece(STORE, place, extent, content)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    @property
    def names(self) -> list[str]:
        """The tables, sorted."""
        return sorted(self._pieces)

    @property
    def names_in_order(self) -> list[str]:
        """The tables as they lie: those that come first in their files before those that come second, and so on."""
        firsts = {table: min((piece.place, piece.file) for piece in pieces) for table, pieces in self._pieces.items()}
        return sorted(firsts, key=lambda table: firsts[table])

    def pieces_of(self, table: str) -> list[SavedPiece]:
        """In which files a table lies."""
        return list(self._pieces[table])

    def shape(self, table: str) -> tuple[int, int]:
        """Rows and columns of a table, from the pieces there are."""
        extents = [piece.extent for piece in self._pieces[table]]
        return max(extent.row_end for extent in extents), max(extent.column_end for extent in extents)

    def read(self, table: str, wanted: Extent) -> Iterator[tuple[Extent, Tensor]]:
        """The cells of a table, in portions that need little memory; those nobody saved are left out."""
        for piece in self._pieces.get(table, ()):
            if common := wanted.common(piece.extent):
                for portion in _portions(common):
                    yield portion, piece.read(portion)

    def read_rows(self, table: str, num_rows: int | None = None) -> Iterator[Tensor]:
        """Whole rows of a table, all or the first ones, in order and a few at a time, whatever pieces they lie in."""
        stored_rows, width = self.shape(table)
        for rows in _portions(Extent(0, stored_rows if num_rows is None else num_rows, 0, width)):
            values = torch.zeros(rows.row_end - rows.row, width)
            self._copy(table, rows, values)
            yield values

    def holes(self) -> Iterator[str]:
        """The tables of which some rows or columns are in no file."""
        for table, pieces in self._pieces.items():
            num_rows, width = self.shape(table)
            num_found = sum(piece.extent.num_cells for piece in pieces)
            if num_found != num_rows * width:
                yield f"{self._place}: {table} has {num_found:,} of its {num_rows * width:,} numbers"

    def fill(self, pieces: Iterable[Piece]) -> None:
        """Put saved values into these pieces, all of them and only where names and shapes agree."""
        pieces = list(pieces)
        if differing := sorted({piece.table for piece in pieces} - self._pieces.keys()):
            raise RunError(f"{self._place} does not fit the settings: {', '.join(differing[:5])} are missing in it")
        for piece in pieces:
            if self.shape(piece.table) != piece.shape:
                raise RunError(
                    f"{self._place}: {piece.table} has shape {self.shape(piece.table)}, expected {piece.shape}"
                )
            self._fill(piece)

    def _fill(self, piece: Piece) -> None:
        row, column = piece.first_row, piece.first_column
        wanted = Extent(row, row + piece.num_rows, column, column + piece.num_columns)
        self._copy(piece.table, wanted, piece.values)

    def fill_rows(self, piece: Piece, num_rows: int) -> None:
        """Put saved values into those rows of a piece that are among the first ones of its table."""
        row, column = piece.first_row, piece.first_column
        row_end = min(row + piece.num_rows, num_rows)
        if row < row_end:
            self._copy(piece.table, Extent(row, row_end, column, column + piece.num_columns), piece.values)

    def _copy(self, table: str, wanted: Extent, values: Tensor) -> None:
        """Put saved values where they belong in a tensor that begins with the first wanted cell."""
        num_filled = 0
        for found, portion in self.read(table, wanted):
            rows, columns = (
                slice(found.row - wanted.row, found.row_end - wanted.row),
                slice(found.column - wanted.column, found.column_end - wanted.column),
            )
            values[rows, columns].copy_(portion)
            num_filled += found.num_cells
        if num_filled != wanted.num_cells:
            raise RunError(
                f"{self._place}: {table} has {num_filled:,} of the {wanted.num_cells:,} numbers that are needed; "
                "a file of the checkpoint is missing"
            )


def fill_tables(directory: Path, manifest: Mapping[str, Any], tables: HasPieces | None, whats: Sequence[What]) -> None:
    """Put saved values into tables, wherever these have their rows."""
    own = tables if isinstance(tables, TieredTables) and tables.log is not None else None
    # weights of a run with another seed or optimizer can be scored with too, row by row
    if own is not None and has_stored_rows(directory) and ("state" in whats or is_of_kind(directory, own.kind)):
        restore_in_place(directory, manifest, own)
        return
    with ExitStack() as stack:
        saved = {what: stack.enter_context(SavedTables(directory, what)) for what in whats}
        for pieces in portions_of(tables):
            for what in whats:
                saved[what].fill(piece for piece in pieces if piece.what == what)


def portions_of(tables: HasPieces | None) -> Iterator[list[Piece]]:
    """The rows that this process holds, to be filled: all at once or, of tables larger than memory, some at a time."""
    if isinstance(tables, TieredTables):
        yield from tables.portions()
    elif tables:
        yield tables.pieces()


def _read_key(key: str, content: Any, path: Path) -> tuple[str, Extent]:
    shape = tuple(content.get_shape())
    if len(shape) != 2 or content.get_dtype() not in ("F32", "F16", "BF16", "F64"):
        raise RunError(f"{path} is damaged: {key} has shape {shape} of {content.get_dtype()}, and is no table")
    table, extent = key, Extent(0, shape[0], 0, shape[1])
    if part := _PART.fullmatch(key):
        row, row_end, column, column_end = (int(part[name]) for name in ("row", "row_end", "column", "column_end"))
        table, extent = part["table"], Extent(row, row_end, column, column_end)
    if (extent.row_end - extent.row, extent.column_end - extent.column) != shape:
        raise RunError(f"{path} is damaged: {key} has shape {shape}, which is not what its name says")
    return table, extent


def _portions(extent: Extent) -> Iterator[Extent]:
    step = max(1, _COPY_BYTES // (4 * (extent.column_end - extent.column)))
    for row in range(extent.row, extent.row_end, step):
        yield Extent(row, min(row + step, extent.row_end), extent.column, extent.column_end)
