"""The state of a run on disk: safetensors and JSON, a manifest with checksums last, no pickle."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from recmill.errors import RunError
from recmill.files import finished_dir, read_manifest, write_manifest
from recmill.train.progress import Progress
from recmill.train.step import Parts

DENSE = "dense.safetensors"
TABLES = "tables.safetensors"
OPTIMIZER = "optimizer.safetensors"
TABLE_STATE = "table_state.safetensors"
PROGRESS = "progress.json"
COUNTERS = "counters.json"


def write_model(target: Path, parts: Parts, progress: Progress) -> None:
    """Weights alone: what scoring needs."""
    with finished_dir(target, overwrite=True) as directory:
        save_file(_dense_weights(parts), directory / DENSE)
        save_file(_table_weights(parts), directory / TABLES)
        write_manifest(directory, kind="model", step=progress.step)


def write_checkpoint(target: Path, parts: Parts, progress: Progress) -> None:
    """All that is needed to go on as if nothing had happened."""
    with finished_dir(target, overwrite=True) as directory:
        save_file(_dense_weights(parts), directory / DENSE)
        save_file(_table_weights(parts), directory / TABLES)
        save_file(_optimizer_state(parts), directory / OPTIMIZER)
        save_file(_table_state(parts), directory / TABLE_STATE)
        (directory / COUNTERS).write_text(json.dumps(_counters(parts)))
        (directory / PROGRESS).write_text(json.dumps(progress.to_json()))
        write_manifest(directory, kind="checkpoint", step=progress.step)


def read_model(directory: Path, parts: Parts) -> None:
    """Put saved weights into the parts."""
    read_manifest(directory)
    _fill(_dense_weights(parts), directory / DENSE)
    _fill(_table_weights(parts), directory / TABLES)


def read_checkpoint(directory: Path, parts: Parts) -> Progress:
    """Put a saved state into the parts; how far it had come."""
    read_model(directory, parts)
    _fill(_table_state(parts), directory / TABLE_STATE)
    _restore_optimizer(parts, load_file(directory / OPTIMIZER))
    if not (directory / COUNTERS).is_file():
        raise RunError(f"{directory} has no {COUNTERS}: an older version saved it; go on with that one, or train anew")
    counters = json.loads((directory / COUNTERS).read_text())
    parts.tables.num_updates = counters["table_updates"]
    if parts.loss_scale:
        parts.loss_scale.restore(counters["loss_scale"])
    return read_progress(directory)


def read_progress(directory: Path) -> Progress:
    """How far a saved state had come."""
    return Progress.from_json(json.loads((directory / PROGRESS).read_text()))


def _counters(parts: Parts) -> dict[str, Any]:
    scale = parts.loss_scale.to_json() if parts.loss_scale else None
    return {"table_updates": parts.tables.num_updates, "loss_scale": scale}


def _dense_weights(parts: Parts) -> dict[str, Tensor]:
    return dict(parts.model.state_dict())  # parameters, and what batch norm has measured


def _table_weights(parts: Parts) -> dict[str, Tensor]:
    return {spec.name: torch.from_numpy(parts.tables.weights(spec.name)) for spec in parts.tables.specs}


def _table_state(parts: Parts) -> dict[str, Tensor]:
    states = {spec.name: torch.from_numpy(parts.tables.state(spec.name)) for spec in parts.tables.specs}
    return {name: state for name, state in states.items() if state.numel()}


def _optimizer_state(parts: Parts) -> dict[str, Tensor]:
    names = [name for name, _ in parts.model.named_parameters()]
    state: dict[int, dict[str, Tensor]] = parts.optimizer.state_dict()["state"]
    return {f"{names[i]}:{key}": value for i, values in state.items() for key, value in values.items()}


def _restore_optimizer(parts: Parts, saved: dict[str, Tensor]) -> None:
    indices = {name: i for i, (name, _) in enumerate(parts.model.named_parameters())}
    state_dict: dict[str, Any] = parts.optimizer.state_dict()
    state_dict["state"] = {}
    for full_name, value in saved.items():
        name, key = full_name.rsplit(":", 1)
        state_dict["state"].setdefault(indices[name], {})[key] = value
    parts.optimizer.load_state_dict(state_dict)


def _fill(targets: dict[str, Tensor], path: Path) -> None:
    """Copy a file's tensors over those of the same names and shapes."""
    saved = load_file(path)
    if saved.keys() != targets.keys():
        differing = sorted(saved.keys() ^ targets.keys())
        raise RunError(f"{path} does not fit the settings: {', '.join(differing[:5])} on one side only")
    for name, target in targets.items():
        if saved[name].shape != target.shape:
            raise RunError(f"{path}: {name} has shape {tuple(saved[name].shape)}, expected {tuple(target.shape)}")
        target.copy_(saved[name])
