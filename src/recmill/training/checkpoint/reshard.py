"""The same saved state in another layout: its tables in other files, or its weights alone."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor

from recmill.embeddings.piece import What
from recmill.embeddings.store.kind import STORE
from recmill.embeddings.store.segment import SUFFIX
from recmill.errors import RunError
from recmill.files import CONFIG, finished_dir, read_manifest, require_free_space, write_manifest
from recmill.run_stamp import RUN
from recmill.training.checkpoint.saved_rows import has_stored_rows
from recmill.training.checkpoint.saved_state import SavedState
from recmill.training.checkpoint.saved_tables import STEMS, SavedTables, file_of
from recmill.training.checkpoint.snapshot import DENSE
from recmill.training.checkpoint.tensor_file import write_portions


def reshard(state: SavedState, out_dir: Path, num_pieces: int) -> None:
    """Write the same state with its tables whole, distributed over so many files; 1: as a single process saves."""
    refuse_existing(out_dir)
    with state.tables("weights") as saved:
        num_tables = len(saved.names)
    if not 1 <= num_pieces <= max(1, num_tables):
        raise RunError(
            f"--pieces {num_pieces} does not go with {num_tables} tables, each of which goes into one file; "
            f"choose from 1 to {max(1, num_tables)}"
        )
    manifest = read_manifest(state.directory)
    require_free_space(out_dir.parent, state.num_bytes, "a copy of the state")
    with finished_dir(out_dir) as scratch:
        for name in manifest["files"]:
            if not is_of_tables(name):
                shutil.copyfile(state.directory / name, scratch / name)
        for what in state.whats:
            with state.tables(what) as saved:
                _write_tables(saved, what, scratch, num_pieces)
        write_manifest(scratch, kind=state.kind, step=state.step, **identity_of(manifest))


def export(state: SavedState, out_dir: Path) -> None:
    """Write the weights alone, in the files they lie in, as a model directory."""
    refuse_existing(out_dir)
    manifest = read_manifest(state.directory)
    names = [name for name in manifest["files"] if name == DENSE or name.startswith(STEMS["weights"])]
    num_bytes = sum(int(manifest["files"][name]["bytes"]) for name in names)
    require_free_space(out_dir.parent, num_bytes, "a copy of the weights")
    with finished_dir(out_dir) as scratch:
        for name in names:
            shutil.copyfile(state.directory / name, scratch / name)
        if has_stored_rows(state.directory):
            with state.tables("weights") as saved:
                _write_tables(saved, "weights", scratch, 1)
        if (settings := state.settings()) is not None:  # without them nobody can tell what the weights are of
            (scratch / CONFIG).write_text(tomli_w.dumps(settings))
        write_manifest(scratch, kind="model", step=state.step, **identity_of(manifest))


def identity_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """What its rows stand for, the data and the run that it is of, if it says so."""
    return {key: manifest[key] for key in ("rows", "data", RUN) if key in manifest}


def is_of_tables(name: str) -> bool:
    """Whether a file of a saved state holds pieces of tables, or is about such."""
    if name == STORE or name.endswith(SUFFIX):
        return True
    return name.endswith(".safetensors") and name.split(".")[0] in STEMS.values()


def refuse_existing(out: Path) -> None:
    """Complain if there is something where a result is wanted."""
    if out.exists():
        raise RunError(f"{out} is there already; choose another --out, or remove it first")


def _write_tables(saved: SavedTables, what: What, directory: Path, num_pieces: int) -> None:
    names = saved.names_in_order
    for rank in range(num_pieces):
        held = names[rank::num_pieces]
        if held:
            layout = {name: (torch.float32, saved.shape(name)) for name in held}
            write_portions(directory / file_of(what, rank, num_pieces), layout, _rows_of(saved, held))


def _rows_of(saved: SavedTables, names: list[str]) -> Iterator[Tensor]:
    for name in names:
        yield from saved.read_rows(name)
