"""`train auto`: from files of rows to settings: columns inferred, rows prepared, everything chosen with its reason."""

import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from recmill.api.data import prepare, rows_to_prepare, unpacking_limit
from recmill.data.logs.raw_format import AskedColumns
from recmill.errors import ConfigError, DataError
from recmill.files import ROWS, has_manifest
from recmill.recipes.auto import Choice, choose, choose_statistics, holdout_frac, min_count
from recmill.recipes.resolve import Sources, overrides_tree
from recmill.settings.clicks import TrainConfig
from recmill.settings.columns import Schema, schema_from_tree
from recmill.settings.families import CLICK
from recmill.settings.schemas import find_schema
from recmill.settings.tree import Tree, layered, nested

Tell = Callable[[str], None]
_SAMPLED_ROWS = 200_000  # of each file, to find out how many values are new
_SAY_THE_SPLIT = ("holdout_frac", "holdout_rows", "holdout_days", "test_files", "test_after")
# Said of raw files; the recipe's own settings of prepared rows contradict them.
_OF_SPLITS_BY_TIME = ("data.test_after", "data.holdout_days", "data.split")


def chosen_sources(sources: Sources, run_dir: Path, asked: AskedColumns, tell: Tell) -> Sources:
    """The sources of a run of the recipe auto: its rows are prepared in the run directory, its settings chosen."""
    if sources.data is None:
        raise ConfigError("recipe auto chooses settings from data; give a file or directory with --data")
    if sources.vocabulary is not None:
        raise ConfigError("recipe auto makes a vocabulary of its own; leave out --vocabulary")
    data = Path(sources.data)
    tree = layered(TrainConfig, _plain_options(sources), overrides_tree(sources.overrides, CLICK))
    if has_manifest(data):
        rows_dir, choices = data, list[Choice]()
    else:
        schema = _find_schema(data, sources.schema, asked, tell, unpacking_limit(tree))
        try:
            rows_dir, choices = _prepare_rows(data, schema, run_dir, tree)
        except DataError:  # leave no directory that looks like a run
            with suppress(OSError):  # somebody else's has other files, or there is none
                run_dir.rmdir()
            raise
    from recmill.data.prepared.directory import read_facts  # numpy and kernels

    choices += choose(read_facts(rows_dir).num_rows("train"))
    choices += choose_statistics(_unseen_shares(rows_dir))
    for choice in choices:
        tell(f"auto: {choice.describe()}")
    values = {choice.key: choice.value for choice in choices if not choice.key.startswith("prepare.")}
    options = {key: value for key, value in {**values, **sources.options}.items() if key not in _OF_SPLITS_BY_TIME}
    own = {key: value for key, value in tree.get("data", {}).items() if f"data.{key}" not in _OF_SPLITS_BY_TIME}
    overrides = {**tree, "data": own}
    return replace(sources, data=rows_dir, schema=None, options=options, overrides=overrides)


def _unseen_shares(rows_dir: Path) -> dict[str, float]:
    """Of each column the share of validation rows whose value is unknown, beyond that of training rows."""
    from recmill.data.encode.vocabulary import UNKNOWN_ROW
    from recmill.data.prepared.directory import Prepared

    prepared = Prepared(rows_dir)
    try:
        facts = prepared.facts
        if facts.encoding.category != "vocabulary" or facts.multi_hot is not None:
            return {}
        shares = []
        for split in ("train", "validation"):
            segments = [segment.part(0, _SAMPLED_ROWS) for segment in prepared.segments(split)]
            ids = prepared.reader.read(segments).columns.ids
            shares.append((ids == UNKNOWN_ROW).sum(axis=0) / max(1, len(ids)))
        columns = [facts.schema.category_names[column] for column in facts.schema.slot_columns]
        return dict(zip(columns, (shares[1] - shares[0]).tolist(), strict=True)) if columns else {}
    finally:
        prepared.close()


def refuse_processes(procs: int | None) -> None:
    """Complain about several processes: TorchRec trains neither target statistics nor a mean of the weights."""
    from recmill.world import read_world

    size = max(procs or 1, read_world().size)
    if size > 1:
        raise ConfigError(
            f"recipe auto trains in one process, and this run has {size}: its model has target statistics and a "
            "mean of weights, which several processes cannot train; leave out --procs, or take another recipe"
        )


def _plain_options(sources: Sources) -> Tree:
    """The settings of [data] that the options of the command line stand for."""
    return nested({key: value for key, value in sources.options.items() if key.startswith("data.")})


def _find_schema(
    data: Path, given: str | None, asked: AskedColumns, tell: Tell, max_unpacked_bytes: int | None
) -> Schema:
    """The schema that is given, or one that is inferred from the files."""
    if given is not None:
        if asked.time or asked.ignored or asked.categories:
            raise ConfigError(
                f"--schema {given} says what the columns are; leave out --time, --ignore and --categories, or change it"
            )
        return find_schema(given)
    from recmill.data.infer.schema import infer_schema
    from recmill.data.logs.infer import LABEL_NAMES

    text = infer_schema(_paths(data), name=data.stem, asked=asked, max_unpacked_bytes=max_unpacked_bytes).text
    schema = schema_from_tree(tomllib.loads(text), "inferred schema")
    for line in text.splitlines():
        tell(f"auto: {line}")
    found = schema.of_role("label")
    if found and asked.label is None and schema.header and found[0].name.lower() not in LABEL_NAMES:
        raise DataError(
            f"the only column of 0 and 1 in {data} is {found[0].name}, which may not be what is to be predicted; "
            f"say so with --label {found[0].name}, or name another"
        )
    if not schema.has_label:
        names = ", ".join(column.name for column in schema.columns)
        raise DataError(f"{data} has no column that looks like a label; name it with --label (columns: {names})")
    return schema


def _paths(data: Path) -> Sequence[Path]:
    from recmill.data.logs.split import find_all

    if data.is_file():
        return [data]
    if not data.is_dir():
        raise DataError(f"there is no file or directory {data}")
    return find_all(data)


def _prepare_rows(data: Path, schema: Schema, run_dir: Path, tree: Tree) -> tuple[Path, list[Choice]]:
    """Encode the rows once: rare values merged, values numbered by how often they occur, rows shuffled."""
    from recmill.data.logs.opening import open_log
    from recmill.data.logs.time_order import OutOfOrder

    own = dict(tree.get("data", {}))
    bad_rows = own.pop("bad_rows", "fail")
    room = unpacking_limit(tree)
    num_rows = sum(open_log(path, schema, room).whole().estimate_rows() for path in _paths(data))
    is_split = any(own.get(name) for name in _SAY_THE_SPLIT)
    frac, least, seed = holdout_frac(num_rows), min_count(num_rows), int(tree.get("seed", 0))
    out = run_dir / ROWS
    split = dict(own) if is_split else {**own, "holdout_frac": frac}
    held = [] if is_split else [Choice("prepare.holdout_frac", frac, "half of it validates, half of it tests")]
    merged = Choice("prepare.min_count", least, f"rarer values of about {num_rows:,} rows share one row of their table")

    def prepare_from(place: Path, settings: Tree) -> None:
        prepare(
            place,
            out=out,
            schema=schema,
            min_count=least,
            seed=seed,
            bad_rows=bad_rows,
            overrides={f"data.{key}": value for key, value in settings.items()},
            overwrite=True,  # also of rows that were begun here, on files or with settings that were changed since
        )

    try:
        prepare_from(data, split)
    except OutOfOrder:
        with _sorted_rows(data, schema, split, run_dir) as (sorted_dir, choice):
            prepare_from(sorted_dir, {key: value for key, value in split.items() if key != "train_files"})
        return out, [choice, *held, merged]
    return out, [*held, merged]


@contextmanager
def _sorted_rows(data: Path, schema: Schema, split: Tree, run_dir: Path) -> Iterator[tuple[Path, Choice]]:
    """The rows in the order of their times, in a directory that is gone when they are prepared."""
    from recmill.data.logs.opening import training_paths
    from recmill.data.logs.sorting.sort import SortLimits, sort_files

    settings = rows_to_prepare(data, schema, {f"data.{key}": value for key, value in split.items()})
    run_dir.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=run_dir, prefix=".sorted-") as scratch:
        limits = SortLimits(max_unpacked_bytes=settings.max_unpacked_bytes)
        found = sort_files(training_paths(settings), schema, Path(scratch) / "rows", limits=limits)
        reason = f"the {found.num_rows:,} rows are not in the order of their times, and the last ones validate and test"
        yield Path(scratch) / "rows", Choice("prepare.sort", found.column, reason)
