"""`train auto`: from files of rows to settings: columns inferred, rows prepared, everything chosen with its reason."""

import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from recmill.api.data import prepare
from recmill.errors import ConfigError, DataError
from recmill.files import ROWS, has_manifest
from recmill.recipes.auto import Choice, choose, holdout_frac, min_count
from recmill.recipes.resolve import Sources, overrides_tree
from recmill.settings.columns import Schema, schema_from_tree
from recmill.settings.data import BadRowPolicy
from recmill.settings.families import CLICK
from recmill.settings.schemas import find_schema
from recmill.settings.tree import Tree

Tell = Callable[[str], None]


def chosen_sources(sources: Sources, run_dir: Path, label: str | None, tell: Tell) -> Sources:
    """The sources of a run of the recipe auto: its rows are prepared in the run directory, its settings chosen."""
    if sources.data is None:
        raise ConfigError("recipe auto chooses settings from data; give a file or directory with --data")
    if sources.vocabulary is not None:
        raise ConfigError("recipe auto makes a vocabulary of its own; leave out --vocabulary")
    data = Path(sources.data)
    tree = overrides_tree(sources.overrides, CLICK)
    if has_manifest(data):
        rows_dir, choices = data, list[Choice]()
    else:
        schema = _find_schema(data, sources.schema, label, tell)
        try:
            rows_dir, choices = _prepare_rows(data, schema, run_dir, tree, _bad_rows(sources, tree))
        except DataError:  # leave no directory that looks like a run
            with suppress(OSError):  # somebody else's has other files, or there is none
                run_dir.rmdir()
            raise
    from recmill.data.prepared.directory import read_facts  # numpy and kernels

    choices += choose(read_facts(rows_dir).num_rows("train"))
    for choice in choices:
        tell(f"auto: {choice.describe()}")
    values = {choice.key: choice.value for choice in choices if not choice.key.startswith("prepare.")}
    return replace(sources, data=rows_dir, schema=None, options={**values, **sources.options})


def _find_schema(data: Path, given: str | None, label: str | None, tell: Tell) -> Schema:
    """The schema that is given, or one that is inferred from the files."""
    if given is not None:
        return find_schema(given)
    from recmill.data.logs.formats import infer_schema

    text = infer_schema(_paths(data), name=data.stem, label=label)
    schema = schema_from_tree(tomllib.loads(text), "inferred schema")
    for line in text.splitlines():
        tell(f"auto: {line}")
    if not schema.has_label:
        names = ", ".join(column.name for column in schema.columns)
        raise DataError(f"{data} has no column that looks like a label; name it with --label (columns: {names})")
    return schema


def _paths(data: Path) -> Sequence[Path]:
    if data.is_file():
        return [data]
    if not data.is_dir():
        raise DataError(f"there is no file or directory {data}")
    paths = [path for path in sorted(data.iterdir()) if path.is_file() and not path.name.startswith(".")]
    if not paths:
        raise DataError(f"{data} holds no file; give a file of rows")
    return paths


def _bad_rows(sources: Sources, tree: Tree) -> BadRowPolicy:
    """What --bad-rows or --set data.bad_rows says, which here is for the preparation."""
    given = tree.get("data", {}).get("bad_rows") or sources.options.get("data.bad_rows")
    return "skip" if given == "skip" else "fail"


def _prepare_rows(
    data: Path, schema: Schema, run_dir: Path, tree: Tree, bad_rows: BadRowPolicy
) -> tuple[Path, list[Choice]]:
    """Encode the rows once: rare values merged, values numbered by how often they occur, rows shuffled."""
    from recmill.data.logs.opening import open_log

    own = tree.get("data", {})
    num_rows = sum(open_log(path, schema).whole().estimate_rows() for path in _paths(data))
    is_split = any(own.get(name) for name in ("holdout_frac", "holdout_rows", "test_files"))
    frac, least, seed = holdout_frac(num_rows), min_count(num_rows), int(tree.get("seed", 0))
    out = run_dir / ROWS
    split = dict(own) if is_split else {**own, "holdout_frac": frac}
    prepare(
        data,
        out=out,
        schema=schema,
        min_count=least,
        seed=seed,
        overrides={f"data.{key}": value for key, value in split.items()},
        bad_rows=bad_rows,
        overwrite=True,  # also of rows that were begun here, on files or with settings that were changed since
    )
    held = [] if is_split else [Choice("prepare.holdout_frac", frac, "half of it validates, half of it tests")]
    merged = Choice("prepare.min_count", least, f"rarer values of about {num_rows:,} rows share one row of their table")
    return out, [*held, merged]
