"""The settings of a job, resolved in one place: recipe, file, options, what prepared data brings along, overrides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from recmill.data.prepared.manifest import prepared_kind, settings_for_rows, settings_for_vocabulary
from recmill.errors import ConfigError, DataError, RunError
from recmill.files import CONFIG, STDIN
from recmill.recipes import RECIPES, find_recipe
from recmill.run_stamp import read_run_settings
from recmill.settings.changes import refuse_changes
from recmill.settings.families import CLICK, SEQUENCE, AnyConfig, Family, family_of, family_of_tree
from recmill.settings.reflect import setting_keys
from recmill.settings.schemas import find_schema
from recmill.settings.tree import Tree, from_tree, layered, nested, parse_assignments, read_toml

# The options of the command line that stand for settings.
OPTIONS_OF = {"data.bad_rows": "--bad-rows", "device": "--device", "warm_start.from_dir": "--warm-start"}
Overrides = Mapping[str, Any] | Sequence[str]  # {"dense.lr": 0.1}, or ["dense.lr=0.1"] as on the command line


Mode = Literal["new", "overwrite", "resume", "start_or_resume"]


@dataclass(frozen=True)
class Sources:
    """Where settings come from; what is named later here counts more."""

    base: AnyConfig | None = None
    recipe: str | None = None
    file: Path | None = None
    data: Path | str | None = None
    schema: str | None = None
    vocabulary: Path | str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # by dotted keys; a function is asked for its value
    overrides: Overrides = ()


def config(
    source: str | Path | AnyConfig,
    *,
    data: str | Path | None = None,
    overrides: Overrides = (),
    schema: str | None = None,
    vocabulary: str | Path | None = None,
) -> AnyConfig:
    """The resolved settings of a recipe, a TOML file or a run, with some changed.

    >>> import recmill as rm
    >>> rm.config("demo", overrides={"dense.lr": 0.05, "epochs": 2}).dense.lr
    0.05

    Prepared data brings along its encoding, schema and table sizes. All mistakes are reported at once.
    """
    sources = replace(sources_of(source), data=data, schema=schema, vocabulary=vocabulary, overrides=overrides)
    return resolve(sources)


def sources_of(source: str | Path | AnyConfig | None) -> Sources:
    """What a recipe's name, the path of a TOML file or of a run directory, or given settings stand for."""
    if source is None:
        return Sources()
    if not isinstance(source, str | Path):
        return Sources(base=source)
    path = Path(source)
    if (path / CONFIG).is_file():
        return Sources(base=read_run_config(path))
    if path.suffix == ".toml" or path.is_file():
        return Sources(file=path)
    if path.is_dir() and str(source) not in RECIPES:
        raise RunError(f"{path} is not a run directory: it has no {CONFIG}")
    return Sources(recipe=str(source))


def resolve(sources: Sources) -> AnyConfig:
    """The settings of a new job."""
    if sources.recipe is None and sources.file is None and sources.base is None:
        raise ConfigError(f"name a recipe ({', '.join(RECIPES)}) or give settings with --config FILE")
    base = find_recipe(sources.recipe)() if sources.recipe is not None else sources.base
    written = read_toml(sources.file) if sources.file is not None else {}
    family = family_of(base) if base is not None else _family_of_file(written, sources.overrides)
    overrides = overrides_tree(sources.overrides, family)
    _refuse_other_family(family, {**overrides, **written}, sources)
    tree = layered(family.config, base.to_tree() if base is not None else {}, written)
    # a kind of model that is named last decides which settings of the layers below it count
    tree = layered(family.config, tree, {key: value for key, value in overrides.items() if key == "model"})
    tree = layered(family.config, tree, _options_tree(sources))
    if sources.base is None or sources.data is not None or sources.vocabulary is not None:
        tree = _with_prepared(tree, family, sources.vocabulary)
    return from_tree(family.config, layered(family.config, tree, overrides))


def _family_of_file(written: Tree, overrides: Overrides) -> Family:
    named = overrides_tree(overrides, None)
    return family_of_tree({**written, "model": {**_section(written, "model"), **_section(named, "model")}})


def _section(tree: Tree, name: str) -> Tree:
    section = tree.get(name, {})
    return section if isinstance(section, dict) else {}


def apply_overrides(config: AnyConfig, overrides: Overrides, *, data: str | Path | None = None) -> AnyConfig:
    """Given settings with some changed."""
    family = family_of(config)
    layer = overrides_tree(overrides, family)
    if data is not None:
        layer = layered(family.config, layer, {"data": {"dir": _absolute(data)}})
    return from_tree(family.config, layered(family.config, config.to_tree(), layer))


def resolve_for_run(sources: Sources, run_dir: Path, mode: Mode) -> tuple[AnyConfig, bool]:
    """The settings of a run, and whether it goes on from what it has saved; a run that goes on stays what it was."""
    is_started = (run_dir / CONFIG).is_file()
    if mode == "resume":
        if any(each is not None for each in (sources.recipe, sources.file, sources.schema, sources.vocabulary)):
            raise ConfigError(
                f"--resume takes the settings of {run_dir}; leave out the recipe, --config, --schema and --vocabulary"
            )
        before = read_run_config(run_dir)
        _refuse_other_family(family_of(before), {}, sources)
        after = apply_overrides(apply_overrides(before, _options_tree(sources)), sources.overrides)
    else:
        after = resolve(sources)
        if mode != "start_or_resume" or not is_started:
            return after, False
        before = read_run_config(run_dir)
    if before.data.dir == STDIN:
        raise RunError(
            f"{run_dir} cannot go on: its rows came through standard input, and nobody has kept them; write them to a "
            "file, and start a run on that"
        )
    refuse_changes(before, after, run_dir)
    return after, True


def read_run_config(run_dir: Path) -> AnyConfig:
    """The settings that a run was made with."""
    if not (run_dir / CONFIG).is_file():
        raise RunError(f"{run_dir} is not a run directory: it has no {CONFIG}")
    return read_config_tree(read_run_settings(run_dir).tree, str(run_dir / CONFIG))


def read_config_tree(tree: Tree, where: str) -> AnyConfig:
    """Settings that a run has written."""
    try:
        return from_tree(family_of_tree(tree).config, tree, where)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def overrides_tree(overrides: Overrides, family: Family | None) -> Tree:
    """Overrides as plain nested data; the family's settings say which of them are lists."""
    if isinstance(overrides, str):
        overrides = [overrides]
    if isinstance(overrides, Mapping):
        return nested(overrides)
    return parse_assignments(overrides, family.config if family else None)


def _absolute(data: str | Path) -> str:
    """The path of data from wherever one is; standard input is the same everywhere, and leads to no name."""
    return STDIN if str(data) == STDIN else str(Path(data).resolve())


def _options_tree(sources: Sources) -> Tree:
    options = {key: value() if callable(value) else value for key, value in sources.options.items()}
    if sources.data is not None:
        options["data.dir"] = _absolute(sources.data)
    if sources.schema is not None:
        options["data.row_schema"] = sources.schema
        if all(column.rows for column in find_schema(sources.schema).of_role("category")):
            options["data.table_rows"] = []  # those of the schema count, not a recipe's
    return nested(options)


def _with_prepared(tree: Tree, family: Family, vocabulary: str | Path | None) -> Tree:
    """The settings, with those that the prepared directory of the data, or of the vocabulary, brings along."""
    data_dir = str(tree.get("data", {}).get("dir") or "")
    kind = prepared_kind(Path(data_dir)) if data_dir else None
    if family is SEQUENCE:
        if kind == "rows":
            raise DataError(
                f"{data_dir} holds prepared rows of clicks, and {_model_of(tree)} is a sequence model: prepare events "
                "with `recmill prepare --preset events`, or choose a recipe for clicks such as demo"
            )
        return tree
    if kind == "sequences":
        raise DataError(
            f"{data_dir} holds prepared sequences, and {_model_of(tree)} is a click model: "
            "choose a recipe for sequences, sasrec or bert4rec, or give click logs"
        )
    if kind == "rows" and vocabulary is not None:
        raise ConfigError(f"{data_dir} is encoded already; leave out --vocabulary")
    if kind is None and vocabulary is None:
        return tree
    brought = settings_for_rows(Path(data_dir)) if vocabulary is None else settings_for_vocabulary(Path(vocabulary))
    own = {key: value for key, value in tree["data"].items() if key != "max_rows_per_table"}
    return {**tree, "data": {**own, **brought["data"]}, "encoding": brought["encoding"]}


def _model_of(tree: Tree) -> str:
    return f"model.kind = {tree.get('model', {}).get('kind', 'dlrm')}"


def _refuse_other_family(family: Family, layer: Tree, sources: Sources) -> None:
    """Complain about a kind of model that the recipe's family does not have."""
    model = layer.get("model")
    kind = model.get("kind") if isinstance(model, dict) else None
    other = SEQUENCE if family is CLICK else CLICK
    if sources.recipe is not None and kind in list(other.models):
        raise ConfigError(
            f"model.kind = {kind} is a {other.name} model, and {sources.recipe} is a recipe for {family.name} models; "
            f"name a recipe for {other.name} models, or choose from {', '.join(family.models)}"
        )
    given = {"--schema": sources.schema, "--vocabulary": sources.vocabulary}
    known = set(setting_keys(family.config))
    given |= {OPTIONS_OF.get(key, key): value for key, value in sources.options.items() if key not in known}
    for option, value in given.items() if family is SEQUENCE else ():
        if value is not None:
            raise ConfigError(f"{option} {value} does nothing for a sequence model; leave it out")
