"""How two saved states differ: tensor by tensor, in whatever pieces their tables lie, a few rows at a time."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from recmill.embeddings.piece import What
from recmill.training.checkpoint.saved_state import WHATS, SavedState

# Clocks never agree, even of two runs that do.
_MEASURED = ("train_s", "blocked_s")


@dataclass
class DiffTally:
    """What a comparison of two tensors has found so far."""

    name: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    num_values: int = 0
    num_differing: int = 0  # in any bit
    max_absolute: float = 0.0  # infinite if one of the two is not a number
    max_relative: float = 0.0  # to the larger of the two

    def update(self, ours: Tensor, theirs: Tensor) -> None:
        """More values, those of the same place in both."""
        self.num_values += ours.numel()
        is_other = _bits(ours) != _bits(theirs)
        if not (num_other := int(is_other.sum())):
            return
        self.num_differing += num_other
        a, b = ours[is_other].double(), theirs[is_other].double()
        apart = (a - b).abs().nan_to_num(nan=torch.inf)
        larger = torch.maximum(a.abs(), b.abs()).clamp(min=torch.finfo(torch.float64).tiny)
        self.max_absolute = max(self.max_absolute, float(apart.max()))
        self.max_relative = max(self.max_relative, float((apart / larger).nan_to_num(nan=torch.inf).max()))

    @property
    def is_equal(self) -> bool:
        """Whether the tensors are the same bytes."""
        return self.num_differing == 0 and self.shapes[0] == self.shapes[1]


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(_WORDS[tensor.element_size()])


@dataclass
class StateDiff:
    """All that differs."""

    num_tensors: int = 0  # compared
    tensors: list[DiffTally] = field(default_factory=list)
    only_in_a: list[str] = field(default_factory=list)
    only_in_b: list[str] = field(default_factory=list)
    values: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # progress, counters and settings

    @property
    def is_empty(self) -> bool:
        """Whether the two are the same state."""
        return not (self.tensors or self.only_in_a or self.only_in_b or self.values)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"equal": self.is_empty, **asdict(self)}

    def add(self, tally: DiffTally) -> None:
        """One more comparison."""
        self.num_tensors += 1
        if not tally.is_equal:
            self.tensors.append(tally)


def compare(a: SavedState, b: SavedState, what: What | None = None) -> StateDiff:
    """The differences of the weights, of the optimizers' state, or of all with progress and settings."""
    diff = StateDiff()
    for each in WHATS if what is None else (what,):
        _compare_layers(diff, a, b, each)
        _compare_tables(diff, a, b, each)
    if what is None:
        ours, theirs = dict(_values_of(a)), dict(_values_of(b))
        for key in sorted(ours.keys() | theirs.keys()):
            if ours.get(key) != theirs.get(key):
                diff.values[key] = ours.get(key), theirs.get(key)
    return diff


def _compare_layers(diff: StateDiff, a: SavedState, b: SavedState, what: What) -> None:
    prefix = "layers" if what == "weights" else "optimizer of layers"
    theirs = dict(b.layers(what))
    names = set[str]()
    for name, ours in a.layers(what):
        names.add(name)
        other = theirs.get(name)
        if other is None:
            diff.only_in_a.append(f"{prefix}: {name}")
            continue
        tally = DiffTally(f"{prefix}: {name}", (tuple(ours.shape), tuple(other.shape)))
        if ours.shape == other.shape and ours.dtype == other.dtype:
            tally.update(ours, other)
        elif ours.shape == other.shape:  # the same numbers in another precision are other bytes
            tally.num_values = tally.num_differing = ours.numel()
            tally.max_absolute = float((ours.double() - other.double()).abs().max())
        diff.add(tally)
    diff.only_in_b += [f"{prefix}: {name}" for name in theirs if name not in names]


def _compare_tables(diff: StateDiff, a: SavedState, b: SavedState, what: What) -> None:
    prefix = "table" if what == "weights" else "optimizer of table"
    with a.tables(what) as ours, b.tables(what) as theirs:
        common = [name for name in ours.names_in_order if name in set(theirs.names)]
        for name in common:
            shapes = ours.shape(name), theirs.shape(name)
            tally = DiffTally(f"{prefix}: {name}", shapes)
            if shapes[0][1] == shapes[1][1]:  # of a table that has grown, the rows that both have
                num_rows = min(shapes[0][0], shapes[1][0])
                for portions in zip(ours.read_rows(name, num_rows), theirs.read_rows(name, num_rows), strict=True):
                    tally.update(*portions)
            diff.add(tally)
        diff.only_in_a += [f"{prefix}: {name}" for name in ours.names if name not in common]
        diff.only_in_b += [f"{prefix}: {name}" for name in theirs.names if name not in common]


def _values_of(state: SavedState) -> Iterator[tuple[str, Any]]:
    progress = state.progress()
    if progress:
        yield from _flat("progress", progress.to_json())
    yield from _flat("counters", state.counters())
    if state.kind == "checkpoint":
        yield from _flat("settings", state.settings() or {})


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, below in value.items():
            if name not in _MEASURED:
                yield from _flat(f"{key}.{name}", below)
    else:
        yield key, value
