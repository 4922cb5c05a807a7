"""Tables in tiers, saved and restored: a checkpoint holds the files of their rows by hard links, and copies nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recmill.embeddings.piece import HasPieces, What
from recmill.embeddings.store.kind import KIND_SHAPE, STORE, StoreKind, kind_from_json
from recmill.embeddings.store.log import link_or_copy
from recmill.embeddings.store.segment import SUFFIX, SegmentFile
from recmill.embeddings.store.stored import StoredRows
from recmill.embeddings.tiered import TieredTables
from recmill.errors import RunError
from recmill.files import CHECKSUM, checksum, read_listing
from recmill.own_files import read_own_json, sealed


def files_of_rows(tables: HasPieces | None) -> tuple[dict[str, SegmentFile], dict[str, str]]:
    """What a saved state holds of tables in files: these files, and what tells how to read them."""
    if not isinstance(tables, TieredTables) or tables.log is None:
        return {}, {}
    files = {file.path.name: file for file in tables.finished_files()}
    return files, {STORE: json.dumps(sealed(tables.kind.to_json()))}


def link_files(files: Mapping[str, SegmentFile], scratch: Path) -> None:
    """Hold these files, before the run goes on and lets go of some."""
    if files:
        scratch.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        link_or_copy(file.path, scratch / name)


def listed_files(files: Mapping[str, SegmentFile], scratch: Path) -> dict[str, dict[str, Any]]:
    """What a manifest says of them."""
    return {
        name: {"bytes": file.num_bytes, CHECKSUM: file.digest or checksum(scratch / name)}
        for name, file in files.items()
    }


def has_stored_rows(directory: Path) -> bool:
    """Whether the tables of a saved state lie in files of rows."""
    return (directory / STORE).is_file()


def read_kind(directory: Path) -> StoreKind:
    """Of which tables the rows of a saved state are."""
    return kind_from_json(read_own_json(directory / STORE, KIND_SHAPE))


def is_of_kind(directory: Path, kind: StoreKind) -> bool:
    """Whether the rows of a saved state begin as those of this kind, and lie as they do."""
    saved = read_kind(directory)
    return (saved.store_key, saved.layout) == (kind.store_key, kind.layout)


def segments_in(directory: Path) -> list[Path]:
    """The files of rows of a saved state: those that it lists, whatever else lies there."""
    return [directory / name for name in sorted(read_listing(directory)["files"]) if name.endswith(SUFFIX)]


def restore_in_place(directory: Path, manifest: Mapping[str, Any], tables: TieredTables) -> None:
    """Have tables in files be as a saved state of tables in files."""
    _refuse_other_kind(directory, read_kind(directory), tables.kind)
    listed = {name: str(facts.get(CHECKSUM, "")) for name, facts in manifest["files"].items() if name.endswith(SUFFIX)}
    tables.restore_files([directory / name for name in listed], listed)


def _refuse_other_kind(directory: Path, saved: StoreKind, ours: StoreKind) -> None:
    here, there = ({spec.name: spec.num_rows for spec in kind.specs} for kind in (ours, saved))
    if here != there:
        name = next(iter({**here, **there}.items() - (here.items() & there.items())))[0]
        raise RunError(
            f"{directory}: table {name} has {there.get(name, 0):,} rows, expected {here.get(name, 0):,}; "
            "it is of a run with other tables"
        )
    for what, was, now in (
        ("model.embedding_dim", saved.dim, ours.dim),
        ("tables.kind", saved.optimizer.kind, ours.optimizer.kind),
        ("seed", saved.seed, ours.seed),
    ):
        if was != now:
            raise RunError(f"{directory} was saved with {what} = {was}, and this run has {now}; set {what}={was}")


class StoredContent:
    """The weights, or the optimizer's numbers, of one table in files of rows: slices of it can be read."""

    def __init__(self, stored: StoredRows, table: str, what: What) -> None:
        self._stored = stored
        self._rows = stored.table_rows(table)
        self._what = what

    def __getitem__(self, wanted: tuple[slice, slice]) -> Tensor:
        rows, columns = wanted
        arena = self._stored.read(self._rows.start + np.arange(rows.start, rows.stop))
        values = arena.weights if self._what == "weights" else arena.state
        return torch.from_numpy(np.ascontiguousarray(values[:, columns]))


def open_stored(directory: Path) -> StoredRows:
    """The rows of a saved state, to be closed."""
    return StoredRows(read_kind(directory), segments_in(directory))


def widths_of(kind: StoreKind) -> dict[What, int]:
    """How many numbers a row has of each sort."""
    return {"weights": kind.layout.dim, "state": kind.layout.state_width}
