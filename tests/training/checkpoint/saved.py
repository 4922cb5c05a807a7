"""Saved states for tests: of one process, and of several whose tables lie in rows and columns."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from recmill.embeddings.piece import Piece
from recmill.settings.clicks import TrainConfig
from recmill.training.checkpoint.checkpoint import finish, write_checkpoint, write_part
from recmill.training.checkpoint.saved_state import WHATS, SavedState
from recmill.training.checkpoint.snapshot import Snapshot, checkpoint_snapshot
from recmill.training.click.assemble import assemble
from recmill.training.click.step import ClickState
from recmill.training.progress import Progress
from recmill.world import World
from tests.training.checkpoint.states import train_steps


def save(config: TrainConfig, directory: Path, num_steps: int = 2) -> ClickState:
    """Train a little and save."""
    parts = assemble(config)
    write_checkpoint(directory, parts, train_steps(parts, num_steps))
    return parts


@dataclass
class SomePieces:
    """What one of several processes would hold."""

    held: list[Piece]
    num_updates: int = 0

    def pieces(self) -> list[Piece]:
        return self.held

    pieces_to_save = pieces


@dataclass
class OneOfTwo:
    """The state of a process that has part of the tables."""

    parts: ClickState
    tables: SomePieces
    config: TrainConfig = field(init=False)

    def __post_init__(self) -> None:
        self.config = self.parts.config
        self.model, self.optimizer = self.parts.model, self.parts.optimizer
        self.rows_hash, self.loss_scale = self.parts.rows_hash, self.parts.loss_scale
        self.average, self.data_hash = self.parts.average, self.parts.data_hash


def dealt(parts: ClickState, rank: int) -> SomePieces:
    """For two processes: whole tables, tables by rows and tables by columns, in turn."""
    held = list[Piece]()
    for place, piece in enumerate(parts.tables.pieces()):
        table = place // 2
        if table % 3 == 0:
            held += [piece] if rank == table % 2 else []
        elif table % 3 == 1 or piece.num_columns == 1:
            row = 0 if rank == 0 else piece.num_rows // 3
            end = piece.num_rows // 3 if rank == 0 else piece.num_rows
            held.append(replace(piece, first_row=row, values=piece.values[row:end]))
        else:
            column = 0 if rank == 0 else piece.num_columns // 2
            end = piece.num_columns // 2 if rank == 0 else piece.num_columns
            held.append(replace(piece, first_column=column, values=piece.values[:, column:end]))
    return SomePieces(held, parts.tables.num_updates)


def save_of_two(parts: ClickState, progress: Progress, directory: Path) -> None:
    """What two processes write together."""
    scratch = directory.with_name(f".{directory.name}")
    snapshots = list[Snapshot]()
    for rank in range(2):
        state = OneOfTwo(parts, dealt(parts, rank))
        snapshots.append(checkpoint_snapshot(state, progress, World(rank=rank, size=2)))
        write_part(snapshots[-1], scratch)
    finish(snapshots[0], scratch, directory)


def table_bytes(state: SavedState) -> dict[str, bytes]:
    """Every table, and what the optimizer keeps for it."""
    found = dict[str, bytes]()
    for what in WHATS:
        with state.tables(what) as saved:
            for name in saved.names:
                found[f"{what} {name}"] = b"".join(rows.numpy().tobytes() for rows in saved.read_rows(name))
    return found
