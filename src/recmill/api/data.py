"""Data from Python: synthetic worlds, preparation of rows and of events."""

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recmill.errors import ConfigError
from recmill.recipes.resolve import Overrides, overrides_tree
from recmill.settings.data import MAX_BAD_FRAC, BadRowPolicy, DataConfig
from recmill.settings.families import CLICK
from recmill.settings.schemas import find_schema
from recmill.settings.tree import Tree, from_tree, layered

if TYPE_CHECKING:
    from recmill.data.logs.sorting.sort import SortedFiles
    from recmill.data.prepared.stages import OnProgress, Record
    from recmill.data.synthetic.chains import ChainWorld
    from recmill.data.synthetic.clicks import ClickWorld
    from recmill.settings.columns import Schema

GIB = 1 << 30


def synth(
    kind: Literal["criteo", "interactions", "clicks", "shop"], out: str | Path, *, overwrite: bool = False, **spec: Any
) -> "ClickWorld | ChainWorld | dict[str, Any]":
    """Write synthetic data with a known right answer: click logs of days, events of users, or a CSV of mixed columns.

    `spec`: of criteo rows, days, seed, scale, click_rate; of interactions users, items, seed, min_length, max_length,
    noise, rules; of clicks and shop, which are tables, rows and seed.
    """
    if kind == "criteo":
        from recmill.data.synthetic.clicks import write_criteo
        from recmill.settings.synthetic import SynthSpec

        return write_criteo(from_tree(SynthSpec, spec, "synth"), Path(out), overwrite=overwrite)
    if kind == "interactions":
        from recmill.data.synthetic.chains import write_chains
        from recmill.settings.synthetic import ChainSpec

        return write_chains(from_tree(ChainSpec, spec, "synth"), Path(out), overwrite=overwrite)
    if kind in ("clicks", "shop"):
        from recmill.data.synthetic.tables import write_table
        from recmill.settings.synthetic import SynthTable

        return write_table(from_tree(SynthTable, {**spec, "kind": kind}, "synth"), Path(out), overwrite=overwrite)
    raise ConfigError(f"there is no synthetic log {kind!r}; choose from criteo, interactions, clicks, shop")


def prepare(
    data: str | Path,
    *,
    out: str | Path,
    preset: str = "recmill",
    schema: "str | Schema" = "criteo",
    store: Literal["npy", "parquet"] = "npy",
    overrides: Overrides = (),
    seed: int | None = None,
    min_count: int | None = None,
    max_values: int | None = None,
    modulo: int | None = None,
    memory_bytes: int = 2 * GIB,
    jobs: int | None = None,
    bad_rows: BadRowPolicy = "fail",
    overwrite: bool = False,
    on_progress: "OnProgress | None" = None,
) -> "Record":
    """Encode click logs once, for many runs; the manifest of the directory that was written.

    `overrides` are settings of [data] that say which lines are for what, e.g. {"data.holdout_frac": 0.1}.
    """
    from recmill.data.logs.opening import open_splits
    from recmill.data.prepared.prepare import PrepareJob
    from recmill.data.prepared.prepare import prepare as prepare_rows
    from recmill.data.prepared.stages import say_nothing

    _refuse_other(store=(store, "npy", "parquet"), bad_rows=(bad_rows, "fail", "skip"))
    settings = rows_to_prepare(data, schema, overrides)
    with closing(open_splits(settings)) as splits:
        job = PrepareJob(
            splits,
            settings.schema_of_rows,
            Path(out),
            preset,
            store,
            memory_bytes=memory_bytes,
            jobs=_num_jobs(jobs),
            seed=seed,
            bad_rows=bad_rows,
            max_bad_frac=settings.max_bad_frac,
            keep_values=settings.keep_values,
            min_count=min_count,
            max_values=max_values,
            modulo=modulo,
            multi_hot=settings.multi_hot_rule,
            on_progress=on_progress or say_nothing,
        )
        return prepare_rows(job, overwrite=overwrite)


def sort(
    data: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    schema: "str | Schema",
    by: str | None = None,
    memory_bytes: int | None = None,
    part_bytes: int = GIB,
    overwrite: bool = False,
    max_unpacked_bytes: int | None = None,
) -> "SortedFiles":
    """Write the rows of files, or of directories or patterns of them, in the order of their times.

    `by` names another column to sort by, a time or a number. `max_unpacked_bytes` is what a packed file may become.
    """
    from recmill.data.logs.sorting.sort import SortLimits, sort_files
    from recmill.data.logs.split import find_rows

    given = [data] if isinstance(data, str | Path) else data
    return sort_files(
        [path for each in given for path in find_rows(Path(each), "data")],
        find_schema(schema) if isinstance(schema, str) else schema,
        Path(out),
        by=by,
        limits=SortLimits(memory_bytes, part_bytes, max_unpacked_bytes),
        overwrite=overwrite,
    )


def _refuse_other(**given: tuple[str, ...]) -> None:
    """Complain about a value, the first of each, that is none of the others."""
    for name, (value, *choices) in given.items():
        if value not in choices:
            raise ConfigError(f"{name} = {value!r} is rejected: choose from {', '.join(choices)}")


def _num_jobs(jobs: int | None) -> int:
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: it takes at least one thread")
    return jobs or len(os.sched_getaffinity(0))


def unpacking_limit(settings: Tree) -> int | None:
    """What packed files may become, for those who open them before all settings are known and checked."""
    section = settings.get("data")
    limit = section.get("max_unpacked_bytes") if isinstance(section, dict) else None
    return limit if isinstance(limit, int) else None


def rows_to_prepare(data: str | Path, schema: "str | Schema", overrides: Overrides) -> DataConfig:
    """Which files and lines; the sizes of the tables are found by counting, and not asked for."""
    columns = find_schema(schema) if isinstance(schema, str) else schema
    given = overrides_tree(overrides, CLICK)
    if unknown := [key for key in given if key != "data"]:
        raise ConfigError(f"--set {unknown[0]}: only settings of [data] matter here, such as data.holdout_frac")
    tree: dict[str, Any] = {"dir": str(data), "row_schema": schema if isinstance(schema, str) else schema.to_tree()}
    tree["table_rows"] = [2] * len(columns.category_names)
    return from_tree(DataConfig, layered(DataConfig, tree, given.get("data", {})), prefix="data.")


def prepare_events(
    data: str | Path,
    *,
    out: str | Path,
    preset: str = "events",
    schema: str | Path | None = None,
    rules: dict[str, Any] | None = None,
    jobs: int | None = None,
    bad_rows: BadRowPolicy = "fail",
    max_bad_frac: float = MAX_BAD_FRAC,
    max_unpacked_bytes: int | None = None,
    overwrite: bool = False,
    on_progress: "OnProgress | None" = None,
) -> "Record":
    """Turn events of users into sequences; the manifest of the directory that was written.

    `rules` are in place of the preset's: order, min_length, max_length, min_item_count, k_core, split, … `max_bad_frac`
    is the share of lines that may be ignored with bad_rows = "skip". `max_unpacked_bytes` is what a packed file may
    become in scratch space.
    """
    from recmill.data.events.prepare import EventJob
    from recmill.data.events.prepare import prepare_events as write_events
    from recmill.data.prepared.stages import say_nothing
    from recmill.settings.events import EVENT_PRESETS, EventRules, read_event_schema

    if preset not in EVENT_PRESETS:
        raise ConfigError(f"there is no preset of events {preset!r}; choose from {', '.join(EVENT_PRESETS)}")
    if schema is not None and preset != "events":
        raise ConfigError(f"--schema {schema}: preset {preset} knows its columns; set --preset events")
    if not 0 <= max_bad_frac <= 1:
        raise ConfigError(f"data.max_bad_frac = {max_bad_frac} is rejected: it is a share, 0 to 1")
    if max_unpacked_bytes is not None and max_unpacked_bytes < 1:
        raise ConfigError(f"data.max_unpacked_bytes = {max_unpacked_bytes} is rejected: it is at least 1")
    chosen = EVENT_PRESETS[preset]
    job = EventJob(
        Path(data),
        Path(out),
        chosen.schemas if schema is None else (read_event_schema(Path(schema)),),
        from_tree(EventRules, {**chosen.rules.to_tree(), **(rules or {})}, "options"),
        preset,
        jobs=_num_jobs(jobs),
        bad_rows=bad_rows,
        max_bad_frac=max_bad_frac,
        max_unpacked_bytes=max_unpacked_bytes,
        on_progress=on_progress or say_nothing,
    )
    return write_events(job, overwrite=overwrite)
