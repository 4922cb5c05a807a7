"""A new run begins with what another has learnt: each process fills the pieces of tables it holds, and its layers."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from recmill.embeddings.piece import Piece
from recmill.embeddings.tiered import TieredTables
from recmill.errors import ConfigError
from recmill.files import read_manifest
from recmill.settings.run import WarmStart
from recmill.settings.tree import Settings
from recmill.training.checkpoint.saved_state import WHATS, SavedState, open_state, value_in
from recmill.training.checkpoint.saved_tables import portions_of
from recmill.training.checkpoint.snapshot import State
from recmill.training.checkpoint.warm_start import Shape, TableMatch, match_tables
from recmill.world import Group

Tell = Callable[[str], None]


def refuse_inside(settings: WarmStart, run_dir: Path) -> None:
    """Complain about weights in the directory that the run is to write."""
    if Path(settings.from_dir).resolve().is_relative_to(run_dir.resolve()):
        raise ConfigError(
            f"warm_start.from_dir = {settings.from_dir} lies in {run_dir}, which the run is to write; "
            "choose another run directory, or go on with --resume"
        )


def refuse_unfit_tables(settings: WarmStart, here: Mapping[str, Shape], config: Settings) -> None:
    """Complain about what cannot be taken over by tables of these shapes, before anything is allocated or written."""
    saved = open_state(Path(settings.from_dir))
    if settings.state:
        _refuse_other_optimizers(saved, config, with_layers=settings.layers)
    _match(here, saved, settings)


def take_over(state: State, settings: WarmStart, group: Group, tell: Tell) -> None:
    """Put saved values over the first values of a state, as far as the settings ask; all processes call it."""
    directory = Path(group.from_main(settings.from_dir))
    with group.together():
        saved = open_state(directory)
        read_manifest(saved.directory, verify=group.world.is_main)  # its checksums are one process's work
        if settings.state:
            _refuse_other_optimizers(saved, state.config, with_layers=settings.layers)
    match = _match(_all_tables(state, group), saved, settings)
    _tell_tables(match, saved, state.config, tell)
    with group.together():
        for pieces in portions_of(state.tables):
            _fill(saved, [piece for piece in pieces if piece.what == "weights" or settings.state], match)
        if settings.state and state.tables:
            state.tables.num_updates = saved.counters()["table_updates"]
        if settings.layers:
            _take_layers(state, saved, with_optimizer=settings.state, tell=tell)


def _all_tables(state: State, group: Group) -> dict[str, Shape]:
    """Of all tables, whichever process holds them, so that all processes come to the same conclusion."""
    held: dict[str, Shape] = {}
    if isinstance(state.tables, TieredTables):
        held = state.tables.shapes()
    elif state.tables:
        held = {piece.table: piece.shape for piece in state.tables.pieces() if piece.what == "weights"}
    return {name: shape for shapes in group.gather(held) for name, shape in shapes.items()}


def _match(here: Mapping[str, Shape], saved: SavedState, settings: WarmStart) -> TableMatch:
    with saved.tables("weights") as tables:
        there = {name: tables.shape(name) for name in tables.names_in_order}
    match = match_tables(here, there, settings.tables, str(saved.directory))
    if not match.num_rows and not settings.layers:
        raise ConfigError(
            f"{saved.directory} and this run have no table in common ({', '.join(list(there)[:3])}, … there, "
            f"{', '.join(list(here)[:3])}, … here); leave out warm_start, or set warm_start.layers=true"
        )
    return match


def _fill(saved: SavedState, pieces: list[Piece], match: TableMatch) -> None:
    for what in WHATS:
        with saved.tables(what) as tables:
            for piece in pieces:
                if piece.what == what and piece.table in match.num_rows:
                    tables.fill_rows(piece, match.num_rows[piece.table])


def _refuse_other_optimizers(saved: SavedState, config: Settings, *, with_layers: bool) -> None:
    """Numbers that one rule has kept mean something else to another."""
    if saved.kind == "model":
        raise ConfigError(
            f"warm_start.state = true needs a checkpoint, and {saved.directory} is weights alone; leave it out"
        )
    there, here = saved.settings() or {}, config.model_dump(mode="json")
    for key in ("tables.kind", "tables.momentum", *(["dense.kind"] if with_layers else [])):
        if value_in(there, key) != value_in(here, key):
            raise ConfigError(
                f"warm_start.state = true, and {key} is {value_in(there, key)} in {saved.directory} and "
                f"{value_in(here, key)} here: what one rule keeps is of no use to another; leave out "
                f"warm_start.state, or set {key}={value_in(there, key)}"
            )


def _take_layers(state: State, saved: SavedState, *, with_optimizer: bool, tell: Tell) -> None:
    """Tensors of the same name and shape; the others keep their first values."""
    here = dict(state.model.state_dict())
    taken, left = list[str](), list[str]()
    for name, values in saved.layers("weights"):
        target = here.pop(name, None)
        if target is None:
            left.append(f"{name} (only there)")
        elif target.shape != values.shape:
            left.append(f"{name} ({tuple(values.shape)} there, {tuple(target.shape)} here)")
        else:
            target.copy_(values)
            taken.append(name)
    left += [f"{name} (only here)" for name in here]
    if with_optimizer:
        _take_optimizer(state, dict(saved.layers("state")), set(taken))
    tell(f"warm start: {len(taken)} tensors of the layers taken over" + _listed("; not", left))


def _take_optimizer(state: State, saved: dict[str, Tensor], taken: set[str]) -> None:
    indices = {name: i for i, (name, _) in enumerate(state.model.named_parameters())}
    kept = state.optimizer.state_dict()
    for full_name, value in saved.items():
        name, key = full_name.rsplit(":", 1)
        if name in taken:
            kept["state"].setdefault(indices[name], {})[key] = value
    with torch.no_grad():
        state.optimizer.load_state_dict(kept)


def _tell_tables(match: TableMatch, saved: SavedState, config: Settings, tell: Tell) -> None:
    """What is taken over from where, and what is not."""
    num_rows = sum(match.num_rows.values())
    tell(f"warm start: {num_rows:,} rows of {len(match.num_rows)} tables from {saved.directory} (step {saved.step:,})")
    grown = [f"{name} ({there:,} to {here:,} rows)" for name, (there, here) in match.grown.items()]
    for words, names in (
        ("tables that have grown, their other rows new", grown),
        ("tables only here, all new", list(match.only_here)),
        ("tables only there, left out", list(match.only_there)),
    ):
        if names:
            tell(f"warm start: {_listed(words, names)}")
    encodings = [value_in(tree, "encoding.category") for tree in (saved.settings() or {}, config.model_dump())]
    if encodings[0] not in (None, encodings[1]) or (match.grown and encodings[1] not in (None, "vocabulary")):
        tell(
            "warning: rows are taken over by their numbers, and the same value need not have the same number in both "
            f"runs (encoding.category is {encodings[0]} there and {encodings[1]} here, and depends on the sizes of "
            "tables unless it is a vocabulary)"
        )


def _listed(words: str, names: list[str], at_most: int = 5) -> str:
    rest = f", and {len(names) - at_most} more" if len(names) > at_most else ""
    return f"{words}: {', '.join(names[:at_most])}{rest}" if names else ""
