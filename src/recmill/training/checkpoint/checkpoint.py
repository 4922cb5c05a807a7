"""The state of a run on disk: safetensors and JSON, a manifest with checksums last, no pickle.

Every process writes the pieces of tables it holds, the main one all the rest. A state is first copied (`Snapshot`), so
that it can be written while training goes on, and a directory that was not finished does not exist for a reader.
"""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from recmill.errors import FailureError, RunError
from recmill.files import CHECKSUM, MANIFEST, checksum, read_manifest, replace_dir, write_atomic, write_listing
from recmill.own_files import TEXT, MisfitError, OrNull, Table, number, read_own_json, whole
from recmill.run_stamp import RUN
from recmill.training.checkpoint.open_tensors import fill_tensors, read_tensors
from recmill.training.checkpoint.saved_rows import link_files, listed_files
from recmill.training.checkpoint.saved_tables import fill_tables
from recmill.training.checkpoint.snapshot import (
    COUNTERS,
    DENSE,
    OPTIMIZER,
    PROGRESS,
    TRAINING,
    Patience,
    Snapshot,
    State,
    checkpoint_snapshot,
    model_snapshot,
)
from recmill.training.checkpoint.tensor_file import write_tensors
from recmill.training.progress import PROGRESS_SHAPE, Progress
from recmill.training.raw_files import difference_of_logs, is_of_logs

_LOSS_SCALE = Table(fields={"scale": number(0), "num_good": whole(), "num_skipped": whole()})
_COUNTERS = Table(
    fields={"table_updates": whole(0, 1 << 48), "loss_scale": OrNull(of=_LOSS_SCALE), "averaged": whole(0, 1 << 48)},
    optional={"data": TEXT},
)


def write_part(snapshot: Snapshot, scratch: Path) -> None:
    """Write the files of one process, and a list of them last."""
    scratch.mkdir(parents=True, exist_ok=True)
    files = listed_files(snapshot.linked, scratch)
    for name, tensors in snapshot.tensors.items():
        digest = write_tensors(scratch / name, tensors)
        files[name] = {"bytes": (scratch / name).stat().st_size, CHECKSUM: digest}
    for name, text in snapshot.texts.items():
        write_atomic(scratch / name, text)
        files[name] = {"bytes": len(text.encode()), CHECKSUM: checksum(scratch / name)}
    write_atomic(_part_path(scratch, snapshot.world.rank), json.dumps({"files": files}))


def give_up_part(snapshot: Snapshot, scratch: Path, error: Exception) -> None:
    """Take back one process's files, which may have filled the disk, and tell the main process that it waits in vain.

    If not even that can be written, it will notice by itself. The main process takes back everybody's.
    """
    with suppress(OSError):
        for name in (*snapshot.tensors, *snapshot.texts, *snapshot.linked):
            (scratch / name).unlink(missing_ok=True)
        write_atomic(_part_path(scratch, snapshot.world.rank), json.dumps({"error": str(error)}))
    if snapshot.world.is_main:
        for rank in range(1, snapshot.world.size):  # who still writes would do so behind our back
            with suppress(FailureError):
                _await_part(_part_path(scratch, rank), snapshot.patience)
        shutil.rmtree(scratch, ignore_errors=True)


def finish(snapshot: Snapshot, scratch: Path, target: Path) -> None:
    """In the main process: when all have written their parts, make the directory exist."""
    paths = [_part_path(scratch, rank) for rank in range(snapshot.world.size)]
    parts = [_await_part(path, snapshot.patience) for path in paths]
    listed = {name: facts for part in parts for name, facts in part["files"].items()}
    facts = {"kind": snapshot.kind, "step": snapshot.step, "rows": snapshot.rows_hash, "data": snapshot.data_hash}
    write_listing(scratch, listed, **facts, **({RUN: snapshot.run_id} if snapshot.run_id else {}))
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in paths:
        path.unlink()
    replace_dir(scratch, target)  # there may be a damaged one of that step, or weights to replace


def write_model(target: Path, state: State, progress: Progress) -> None:
    """In a process that is alone: have the weights on disk when this returns."""
    _write_alone(model_snapshot(state, progress), target)


def write_checkpoint(target: Path, state: State, progress: Progress) -> None:
    """In a process that is alone: have the whole state on disk when this returns."""
    _write_alone(checkpoint_snapshot(state, progress), target)


def _write_alone(snapshot: Snapshot, target: Path) -> None:
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        link_files(snapshot.linked, scratch)
        write_part(snapshot, scratch)
        finish(snapshot, scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _part_path(scratch: Path, rank: int) -> Path:
    return scratch / f"part_{rank:05}.json"


def _await_part(path: Path, patience: Patience) -> dict[str, Any]:
    patience.await_file(path)
    part: dict[str, Any] = json.loads(path.read_text())
    if "error" in part:
        raise FailureError(f"another process could not write its part: {part['error']}")
    return part


def read_model(directory: Path, state: State, *, is_own_data: bool = True) -> None:
    """Put saved weights into the state; those that were trained on other data are rejected, unless these are meant."""
    manifest = read_manifest(directory)
    fill_tensors(dict(state.model.state_dict()), directory / DENSE)
    fill_tables(directory, manifest, state.tables, ("weights",))
    _refuse_other_rows(directory, manifest, state)  # behind what has other shapes, of which more can be said
    if is_own_data:
        _refuse_other_data(directory, manifest.get("data"), state)
    if state.average:
        state.average.forget()


def read_checkpoint(directory: Path, state: State, *, verify: bool = True) -> Progress:
    """Put a saved state into the parts; how far it had come."""
    manifest, counters = read_manifest(directory, verify=verify), read_counters(directory)
    _refuse_other_rows(directory, manifest, state)
    _refuse_other_data(directory, counters.get("data"), state)
    fill_tensors(dict(state.model.state_dict()), directory / DENSE)
    if state.tables:  # first: rows that a store takes from elsewhere changed no later than now
        state.tables.num_updates = counters["table_updates"]
    fill_tables(directory, manifest, state.tables, ("weights", "state"))
    _restore_optimizer(state, directory / OPTIMIZER)
    if state.loss_scale:
        if counters["loss_scale"] is None:
            raise RunError(f"{directory / COUNTERS} does not fit the settings: loss_scale is null, and fp16 needs one")
        state.loss_scale.restore(counters["loss_scale"])
    if state.average and counters["averaged"]:
        state.average.restore(counters["averaged"])
        fill_tensors(state.average.training_weights(), directory / TRAINING)
    return _progress_of(directory, manifest)


def _progress_of(directory: Path, manifest: dict[str, Any]) -> Progress:
    progress = read_progress(directory)
    if progress.step != manifest.get("step"):
        raise RunError(
            f"{directory / PROGRESS} is damaged: step = {progress.step:,}, and {MANIFEST} says {manifest.get('step')}; "
            "restore it from a copy"
        )
    return progress


def _refuse_other_rows(directory: Path, manifest: dict[str, Any], state: State) -> None:
    """Complain about weights whose rows stand for something else than they would here."""
    if manifest.get("rows") != state.rows_hash:
        raise RunError(
            f"{directory} was trained on other columns, table sizes or items than the settings and the data have here; "
            "its rows would stand for something else (or an older version has saved it)"
        )


def _refuse_other_data(directory: Path, recorded: object, state: State) -> None:
    """Complain about data that is not what it was; older versions record nothing of it, or not of logs."""
    for was, now in zip(str(recorded or "").split("/"), state.data_hash.split("/"), strict=False):
        if is_of_logs(was) and is_of_logs(now):
            if difference := difference_of_logs(was, now):
                raise RunError(
                    f"{directory} was trained on other files than there are now: {difference}; put the files back, "
                    "name their place with --data DIR, or train anew"
                )
        elif was and now and was != now:
            raise RunError(
                f"{directory} was trained on other prepared data than there is now (identity {was[:16]} then, "
                f"{now[:16]} now); put that data back, name its place with --data DIR, or train anew"
            )


def read_counters(directory: Path) -> dict[str, Any]:
    """The small numbers of a saved state."""
    if not (directory / COUNTERS).is_file():
        raise RunError(f"{directory} has no {COUNTERS}: an older version saved it; go on with that one, or train anew")
    counters: dict[str, Any] = read_own_json(directory / COUNTERS, _COUNTERS)
    return counters


def read_progress(directory: Path) -> Progress:
    """How far a saved state had come."""
    path = directory / PROGRESS
    content = read_own_json(path, PROGRESS_SHAPE)
    try:
        return Progress.from_json(content, str(path))
    except MisfitError as error:
        raise RunError(f"{path} is damaged: {error}; restore it from a copy") from None


def _restore_optimizer(state: State, path: Path) -> None:
    named = dict(state.model.named_parameters())
    indices = {name: i for i, name in enumerate(named)}
    state_dict: dict[str, Any] = state.optimizer.state_dict()
    state_dict["state"] = {}
    for full_name, value in read_tensors(path).items():
        name, _, key = full_name.rpartition(":")
        if name not in named:
            raise RunError(f"{path} does not fit the settings: {full_name!r} is of no layer")
        if value.shape not in (torch.Size([]), named[name].shape):
            expected = tuple(named[name].shape)
            raise RunError(f"{path}: {full_name} has shape {tuple(value.shape)}, expected {expected}")
        state_dict["state"].setdefault(indices[name], {})[key] = value
    state.optimizer.load_state_dict(state_dict)
