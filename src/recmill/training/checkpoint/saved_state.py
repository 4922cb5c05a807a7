"""A saved state as it lies on the disk, a checkpoint or weights alone: found, listed, checked and described."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from math import sqrt
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from recmill.embeddings.piece import What
from recmill.errors import RunError
from recmill.files import CONFIG, MANIFEST, find_damage, has_checksum, has_own_checksum, read_listing
from recmill.own_files import read_own_toml
from recmill.run_stamp import read_run_settings
from recmill.training.checkpoint.checkpoint import read_counters, read_progress
from recmill.training.checkpoint.open_tensors import open_tensors
from recmill.training.checkpoint.saved_tables import STEMS, SavedPiece, SavedTables
from recmill.training.checkpoint.saver import BEST, CHECKPOINTS
from recmill.training.checkpoint.snapshot import COUNTERS, DENSE, MODEL, OPTIMIZER, PROGRESS
from recmill.training.progress import Progress

KINDS = ("checkpoint", "model")
LAYER_FILES: dict[What, str] = {"weights": DENSE, "state": OPTIMIZER}
WHATS: tuple[What, ...] = get_args(What)
# What tells one run from another at a glance; `diff` compares them all.
TELLING_SETTINGS = (
    *("seed", "data.dir", "data.row_schema", "data.global_batch", "data.vocabulary", "encoding.category"),
    *("model.kind", "model.embedding_dim", "tables.kind", "tables.lr", "dense.kind", "dense.lr", "precision.kind"),
    *("sharding.engine", "sharding.kind", "warm_start.from_dir"),
)


@dataclass(frozen=True)
class SavedState:
    """A directory with a manifest: all of a run's state, or its weights alone."""

    directory: Path
    manifest: dict[str, Any]

    @property
    def kind(self) -> str:
        """`checkpoint` or `model`."""
        return str(self.manifest["kind"])

    @property
    def step(self) -> int:
        """After how many steps it was saved."""
        return int(self.manifest["step"])

    @property
    def num_bytes(self) -> int:
        """Of all files."""
        return sum(int(facts.get("bytes", 0)) for facts in self.manifest["files"].values())

    @property
    def num_pieces(self) -> int:
        """How many processes wrote it: in so many files the weights of its tables may lie."""
        ends = (name.removesuffix(".safetensors").rpartition("-of-")[2] for name in self.manifest["files"])
        return max((int(end) for end in ends if end.isdigit()), default=1)

    @property
    def whats(self) -> tuple[What, ...]:
        """What it holds."""
        return WHATS if self.kind == "checkpoint" else WHATS[:1]

    def progress(self) -> Progress | None:
        """How far it had come; weights alone do not tell."""
        path = self.directory / PROGRESS
        return read_progress(self.directory) if path.is_file() else None

    def counters(self) -> dict[str, Any]:
        """The small numbers of a checkpoint."""
        return read_counters(self.directory) if (self.directory / COUNTERS).is_file() else {}

    def settings(self) -> dict[str, Any] | None:
        """Its own settings or, of weights in a run directory, the run's."""
        homes = (self.directory, self.directory.parent, *self.directory.parents[1:2])
        paths = [home / CONFIG for home in homes[: 3 if self.directory.parent.name == BEST else 2]]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            return None
        if path.parent != self.directory:
            return read_run_settings(path.parent).tree
        stated = self.manifest["files"].get(CONFIG)
        if stated and not has_checksum(path, stated):
            raise RunError(f"{path} is damaged: its checksum is not what {MANIFEST} says; restore it from a copy")
        return read_own_toml(path)

    def layers(self, what: What) -> Iterator[tuple[str, Tensor]]:
        """The tensors of the layers, one at a time: their weights, or what the optimizer keeps for them."""
        path = self.directory / LAYER_FILES[what]
        if path.is_file():
            with open_tensors(path) as file:
                for name in file.offset_keys():
                    yield name, file.get_tensor(name)

    def tables(self, what: What) -> SavedTables:
        """The tables, to be used with `with`.

        Files of rows hold what the optimizer keeps in any case; of weights alone it does not count.
        """
        return SavedTables(self.directory, what, with_stored=what in self.whats)


def open_state(path: Path) -> SavedState:
    """A checkpoint or model directory; of a run, its newest checkpoint that is complete, or else its weights."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise RunError(f"{path} {what}; give a checkpoint, a model directory or a run directory")
    if is_run(path):
        return _newest_of(path)
    if not (path / MANIFEST).is_file():
        raise RunError(
            f"{path} is not a checkpoint: it has no {MANIFEST}, so that it is something else or was not finished"
        )
    manifest = read_listing(path)
    if manifest.get("kind") not in KINDS or "step" not in manifest:
        found = manifest.get("kind", manifest.get("format"))
        raise RunError(f"{path} is not a checkpoint: its {MANIFEST} is of {found!r}; `recmill train` writes them")
    return SavedState(path, manifest)


def is_run(path: Path) -> bool:
    """Whether a directory is that of a run."""
    of_a_state = (PROGRESS, MANIFEST, DENSE)  # one that lost its manifest is no run
    return (path / CONFIG).is_file() and not any((path / name).is_file() for name in of_a_state)


def _newest_of(run_dir: Path) -> SavedState:
    for directory in [*sorted((run_dir / CHECKPOINTS).glob("step_*"), reverse=True), run_dir / MODEL]:
        if (directory / MANIFEST).is_file():
            state = open_state(directory)
            if not any(find_damage(directory, state.manifest, verify=False)):
                return state
    raise RunError(f"{run_dir} holds no complete checkpoint and no weights; `recmill checkpoint ls` tells what it has")


@dataclass(frozen=True)
class Listed:
    """A line of `ls`."""

    directory: Path
    kind: str  # checkpoint, best or model
    state: SavedState | None
    progress: Progress | None
    damage: str | None  # as far as names and sizes tell

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        state, progress = self.state, self.progress
        best = progress.best if progress else None
        return {
            "path": str(self.directory),
            "kind": self.kind,
            "step": state.step if state else None,
            "bytes": state.num_bytes if state else None,
            "rows": progress.num_rows if progress else None,
            "epoch": progress.epoch if progress else None,
            "processes": state.num_pieces if state else None,
            "best": {"score": best.score, "step": best.step} if best else None,
            "intact": self.damage is None,
            "damage": self.damage,
        }


def list_run(run_dir: Path) -> list[Listed]:
    """All that a run has saved: checkpoints, the weights of the best evaluation, the last weights."""
    if not is_run(run_dir):
        raise RunError(f"{run_dir} is not a run directory: it has no {CONFIG}; give one that `recmill train` wrote")
    return [_list_one(directory, kind) for directory, kind in _saved_in(run_dir)]


def _saved_in(run_dir: Path) -> Iterator[tuple[Path, str]]:
    yield from ((path, "checkpoint") for path in sorted((run_dir / CHECKPOINTS).glob("step_*")))
    yield from ((path, "best") for path in sorted((run_dir / BEST).glob("step_*")))
    if (run_dir / MODEL).is_dir():
        yield run_dir / MODEL, "model"


def _list_one(directory: Path, kind: str) -> Listed:
    try:
        state = open_state(directory)
        damage = next(find_damage(directory, state.manifest, verify=False), None)
        return Listed(directory, kind, state, None if damage else state.progress(), damage)
    except RunError as error:
        return Listed(directory, kind, None, None, str(error))


def verify(path: Path) -> dict[Path, list[str]]:
    """What is wrong with a saved state, or with each of a run's, all checksums compared; nothing if it is intact."""
    directories = [directory for directory, _ in _saved_in(path)] if is_run(path) else [path]
    if not directories:
        raise RunError(f"{path} has saved nothing yet")
    return {directory: list(_find_all_damage(directory)) for directory in directories}


def _find_all_damage(directory: Path) -> Iterator[str]:
    if not directory.is_dir():
        open_state(directory)  # complains
    if not (directory / MANIFEST).is_file():
        yield f"{directory} is not complete: it has no {MANIFEST}"
        return
    try:
        manifest = read_listing(directory)
    except RunError as error:
        yield str(error)
        return
    complaints = list(find_damage(directory, manifest))
    if not has_own_checksum(manifest):
        complaints.append(f"{directory / MANIFEST} has no checksum of its own: it is damaged, or of an older version")
    if not complaints:
        open_state(directory)  # or it is something else that has a manifest
    strays = sorted({file.name for file in directory.iterdir()} - {*manifest["files"], MANIFEST})
    complaints += [f"{directory / stray} is not listed in {MANIFEST}; it does not belong here" for stray in strays]
    yield from complaints
    if not complaints:
        yield from _find_holes(open_state(directory))


def _find_holes(state: SavedState) -> Iterator[str]:
    for what in state.whats:
        with state.tables(what) as saved:
            yield from saved.holes()


def describe(state: SavedState, whats: tuple[What, ...]) -> dict[str, Any]:
    """All there is to know of a saved state, as plain data."""
    progress, settings = state.progress(), state.settings()
    told = dict[str, Any]()
    for key in TELLING_SETTINGS:
        value = value_in(settings or {}, key)
        if value not in (None, ""):
            told[key] = value["name"] if isinstance(value, dict) and "name" in value else value
    return {
        "path": str(state.directory),
        "kind": state.kind,
        "step": state.step,
        "bytes": state.num_bytes,
        "processes": state.num_pieces,
        "settings": told,
        "progress": _describe_progress(progress) if progress else None,
        "counters": state.counters(),
        "tensors": [_describe_tensor(name, what, tensor) for what in whats for name, tensor in state.layers(what)],
        "tables": [each for what in whats for each in _describe_tables(state, what)],
    }


def _describe_progress(progress: Progress) -> dict[str, Any]:
    """All but the places of the readers, of which there are many."""
    facts = {key: value for key, value in progress.to_json().items() if key != "position"}
    return {**facts, "epoch": progress.epoch}


def value_in(tree: dict[str, Any], key: str) -> Any:
    """The value of a dotted key of nested plain data; None if there is none."""
    value: Any = tree
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _describe_tensor(name: str, what: What, tensor: Tensor) -> dict[str, Any]:
    facts = {"name": name, "what": what, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    return {**facts, "norm": float(tensor.double().norm())}


def _describe_tables(state: SavedState, what: What) -> Iterator[dict[str, Any]]:
    with state.tables(what) as saved:
        for table in saved.names_in_order:
            squares = sum(float(rows.double().square().sum()) for rows in saved.read_rows(table))
            yield {
                "name": table,
                "what": what,
                "shape": list(saved.shape(table)),
                "dtype": "float32",
                "norm": sqrt(squares),
                "pieces": [_describe_piece(piece) for piece in saved.pieces_of(table)],
            }


def _describe_piece(piece: SavedPiece) -> dict[str, Any]:
    extent = piece.extent
    return {"file": piece.file, "rows": [extent.row, extent.row_end], "columns": [extent.column, extent.column_end]}


def refuse_unknown_table(table: str, known: list[str], where: Path) -> None:
    """Complain about a table that is not there."""
    if table not in known:
        near = get_close_matches(table, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:5])}{', …' if known[5:] else ''}"
        raise RunError(f"{where} has no table {table!r}; {hint}")


def refuse_missing(state: SavedState, what: What) -> None:
    """Complain if a saved state has not got the optimizer's numbers that are asked for."""
    with state.tables(what) as saved:
        has_any = bool(saved.names)
    if what not in state.whats or not has_any:
        raise RunError(
            f"{state.directory} holds no {STEMS[what]}*.safetensors: "
            + ("it is weights alone" if state.kind == "model" else "the optimizer keeps nothing for its tables")
            + "; leave out --what state, or give a checkpoint whose optimizer keeps something"
        )
