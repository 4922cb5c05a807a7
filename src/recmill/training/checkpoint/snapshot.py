"""What is saved of a state: its tensors, texts and finished files, in memory of its own while training goes on."""

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from recmill.embeddings.piece import HasPieces, Piece
from recmill.embeddings.store.segment import SegmentFile
from recmill.errors import FailureError
from recmill.files import CONFIG
from recmill.settings.tree import Settings, to_toml
from recmill.training.checkpoint.saved_rows import files_of_rows
from recmill.training.checkpoint.saved_tables import file_of, key_of
from recmill.training.optimize.average import WeightMean
from recmill.training.optimize.precision import LossScale
from recmill.training.progress import Progress
from recmill.world import ALONE, World

DENSE = "dense.safetensors"
OPTIMIZER = "optimizer.safetensors"
PROGRESS = "progress.json"
MODEL = "model"  # of a run directory: the weights that it has left behind

COUNTERS = "counters.json"
TRAINING = "training.safetensors"  # where the weights are a mean: those that training goes on from
_LOST_S = 600.0  # how long the main process waits for the pieces of the others, unless it is told otherwise
_FAILED_S = 5.0  # and when the run has failed: those that are about to be written


class State(Protocol):
    """All that a step may change, and the settings it came from."""

    @property
    def config(self) -> Settings:
        """All settings of the run."""

    @property
    def rows_hash(self) -> str:
        """Of what its tables' rows stand for: columns and table sizes, or the items of a catalogue."""

    @property
    def data_hash(self) -> str:
        """Of the data it is trained on, with which alone it can go on; empty if it is not bound to any."""

    @property
    def model(self) -> nn.Module:
        """The layers."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What moves them."""

    @property
    def tables(self) -> HasPieces | None:
        """The embedding tables, if there are any beside the layers, with what moves them."""

    @property
    def loss_scale(self) -> LossScale | None:
        """Of fp16."""

    @property
    def average(self) -> WeightMean | None:
        """What is evaluated and left behind in place of the weights."""


class Patience:
    """How long the main process waits for the pieces of the others: not for ever, and not where one of them is lost."""

    def __init__(self, limit_s: float = _LOST_S) -> None:
        self._limit_s = limit_s
        self._ends_at = math.inf

    def run_failed(self) -> None:
        """Wait for nothing but what is about to come."""
        self._ends_at = time.monotonic() + _FAILED_S

    def await_file(self, path: Path) -> None:
        """Return when the file is there; complain if it does not come."""
        began = time.monotonic()
        while not path.is_file():
            if time.monotonic() > min(began + self._limit_s, self._ends_at):
                waited_s = time.monotonic() - began
                raise FailureError(f"{path} did not come within {waited_s:.0f} s: the process that writes it is lost")
            time.sleep(0.002)


@dataclass(frozen=True)
class Snapshot:
    """What one process has to write: tensors by file, and texts by file."""

    kind: str
    step: int
    rows_hash: str
    world: World
    data_hash: str = ""
    run_id: str = ""  # of the run that saves it, if it has one
    tensors: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    linked: dict[str, SegmentFile] = field(default_factory=dict)  # finished files, which are not copied
    patience: Patience = field(default_factory=Patience)

    @property
    def num_bytes(self) -> int:
        """Of all tensors."""
        return sum(_num_bytes(group.values()) for group in self.tensors.values())

    def copied(self, room: "Room") -> "Snapshot":
        """The same, in memory of its own."""
        tensors = {
            file: {name: room.copy(f"{file}/{name}", tensor) for name, tensor in group.items()}
            for file, group in self.tensors.items()
        }
        return replace(self, tensors=tensors)


def _num_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Room:
    """Memory for one copied state at a time, used again for the next: new pages cost more than the copy itself."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    @property
    def num_bytes(self) -> int:
        """What it takes already."""
        return _num_bytes(self._tensors.values())

    def copy(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor's values in the place of that name."""
        place = self._tensors.get(name)
        if place is None or (place.shape, place.dtype) != (tensor.shape, tensor.dtype):
            place = self._tensors[name] = torch.empty_like(tensor, device="cpu")
        return place.copy_(tensor.detach())


def model_snapshot(state: State, progress: Progress, world: World = ALONE) -> Snapshot:
    """Weights alone: what scoring needs."""
    snapshot = Snapshot("model", progress.step, state.rows_hash, world, state.data_hash)
    if world.is_main:
        snapshot.tensors[DENSE] = _layers_to_save(state)
        snapshot.texts[CONFIG] = to_toml(state.config)
    _add_pieces(snapshot, [piece for piece in _pieces_to_save(state) if piece.what == "weights"])
    _add_files(snapshot, state)
    return snapshot


def checkpoint_snapshot(state: State, progress: Progress, world: World = ALONE) -> Snapshot:
    """All that is needed to go on as if nothing had happened."""
    snapshot = Snapshot("checkpoint", progress.step, state.rows_hash, world, state.data_hash)
    if world.is_main:
        snapshot.tensors[DENSE] = _layers_to_save(state)
        snapshot.tensors[OPTIMIZER] = _optimizer_state(state)
        snapshot.texts[COUNTERS] = json.dumps(_counters(state))
        snapshot.texts[PROGRESS] = json.dumps(progress.to_json())
        snapshot.texts[CONFIG] = to_toml(state.config)
        if state.average and state.average.count:
            snapshot.tensors[TRAINING] = state.average.training_weights()
    _add_pieces(snapshot, _pieces_to_save(state))
    _add_files(snapshot, state)
    return snapshot


def _add_pieces(snapshot: Snapshot, pieces: list[Piece]) -> None:
    for piece in pieces:
        file = file_of(piece.what, snapshot.world.rank, snapshot.world.size)
        snapshot.tensors.setdefault(file, {})[key_of(piece)] = piece.values


def _add_files(snapshot: Snapshot, state: State) -> None:
    linked, texts = files_of_rows(state.tables)
    snapshot.linked.update(linked)
    snapshot.texts.update(texts)


def _layers_to_save(state: State) -> dict[str, Tensor]:
    """Parameters, and what batch norm has measured: their mean if there is one, as scoring needs it."""
    means = state.average.layers if state.average and state.average.count else {}
    return {**state.model.state_dict(), **means}


def _pieces_to_save(state: State) -> list[Piece]:
    pieces = state.tables.pieces_to_save() if state.tables else []
    if state.average is None or not state.average.count:
        return pieces
    means = state.average.tables
    return [replace(piece, values=means[piece.table]) if piece.what == "weights" else piece for piece in pieces]


def _counters(state: State) -> dict[str, Any]:
    scale = state.loss_scale.to_json() if state.loss_scale else None
    averaged = state.average.count if state.average else 0
    return {
        "table_updates": state.tables.num_updates if state.tables else 0,
        "loss_scale": scale,
        "averaged": averaged,
        "data": state.data_hash,
    }


def _optimizer_state(state: State) -> dict[str, Tensor]:
    names = [name for name, _ in state.model.named_parameters()]
    kept: dict[int, dict[str, Tensor]] = state.optimizer.state_dict()["state"]
    return {f"{names[i]}:{key}": value for i, values in kept.items() for key, value in values.items()}
