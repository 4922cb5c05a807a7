"""Options that several verbs have, and the settings they stand for."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recmill.data.logs.raw_format import AskedColumns
    from recmill.models.click.own import BuildLayers
    from recmill.recipes.resolve import Sources

Verbs = Any  # argparse's own type of a group of subparsers is private


def add_set_option(parser: argparse.ArgumentParser, explanation: str) -> None:
    """Any number of single settings."""
    parser.add_argument("--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE", help=explanation)


def add_recipe_options(parser: argparse.ArgumentParser, data_help: str) -> None:
    """Where the settings of a new job come from."""
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="named settings; `recmill recipes` lists them")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML, laid over the recipe's")
    parser.add_argument("--data", type=Path, metavar="DIR", help=data_help)
    parser.add_argument("--schema", metavar="NAME|FILE", help="columns of the rows: criteo, kaggle or a .toml file")


def add_time_split_options(parser: argparse.ArgumentParser) -> None:
    """A split by time."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--test-after", metavar="DATE", help="test on rows from this date on; the last tenth of those before validates"
    )
    group.add_argument("--test-days", type=int, metavar="N", help="the same for rows of the last N days, UTC")


def add_bad_rows_option(parser: argparse.ArgumentParser) -> None:
    """What happens to lines that cannot be rows."""
    parser.add_argument("--bad-rows", choices=("fail", "skip"), help="what to do with a line that cannot be a row")


def add_unpacking_option(parser: argparse.ArgumentParser) -> None:
    """What packed files may become, for verbs without --set."""
    parser.add_argument(
        "--max-unpacked-bytes",
        type=int,
        metavar="N",
        help="what a packed file may become in scratch space (nine tenths of what is free)",
    )


def add_column_options(parser: argparse.ArgumentParser, preface: str) -> None:
    """What columns are, where a schema is inferred."""
    parser.add_argument("--time", metavar="COLUMN", help=f"{preface}the column of times (found by its values)")
    parser.add_argument("--ignore", nargs="+", default=[], metavar="COLUMN", help=f"{preface}columns to leave out")
    parser.add_argument(
        "--categories", nargs="+", default=[], metavar="COLUMN", help=f"{preface}categories that look like numbers"
    )


def asked_of(args: argparse.Namespace) -> "AskedColumns":
    """What a command line says of columns, --label included."""
    from recmill.data.logs.raw_format import AskedColumns

    return AskedColumns(args.label, args.time, tuple(args.ignore), tuple(args.categories))


def add_weights_options(parser: argparse.ArgumentParser) -> None:
    """Which weights of a run; the former names of the option are accepted too."""
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument(
        "--weights",
        default="best",
        metavar="best|last|PATH",
        help="those with the best validation score if the run kept them (default), the last ones, or a directory",
    )
    for option, value in (("--best", "best"), ("--last", "last")):
        weights.add_argument(
            option, action="store_const", const=value, dest="weights", default="best", help=argparse.SUPPRESS
        )
    weights.add_argument("--model", dest="weights", default="best", help=argparse.SUPPRESS)


def add_layers_option(parser: argparse.ArgumentParser) -> None:
    """Layers of one's own."""
    parser.add_argument(
        "--layers", metavar="FILE.py:FUNCTION", help="build the layers with this function of (settings, schema)"
    )


@dataclass(frozen=True)
class NewestState:
    """A run, checkpoint or model directory that stands for the newest state there is in it now."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def __call__(self) -> str:
        """Its directory."""
        from recmill.training.checkpoint.saved_state import open_state

        return str(open_state(self.path).directory.resolve())


def sources_from(args: argparse.Namespace) -> "Sources":
    """Recipe, file, options and --set of a command line."""
    from recmill.recipes.resolve import Sources

    options: dict[str, Any] = {
        "data.bad_rows": getattr(args, "bad_rows", None),
        "data.test_after": getattr(args, "test_after", None),
        "data.holdout_days": getattr(args, "test_days", None),
        "device": getattr(args, "device", None),
    }
    if (warm_start := getattr(args, "warm_start", None)) is not None:
        options["warm_start.from_dir"] = NewestState(warm_start)
    if (layers := getattr(args, "layers", None)) is not None:
        options |= {"model.kind": "custom", "model.layers": layers}
    return Sources(
        recipe=args.recipe,
        file=args.config,
        data=args.data,
        schema=args.schema,
        vocabulary=getattr(args, "vocabulary", None),
        options={key: value for key, value in options.items() if value is not None},
        overrides=args.assignments,
    )


def import_layers(place: str | None) -> "BuildLayers | None":
    """The function that --layers names."""
    import importlib.util
    import sys

    from recmill.errors import ConfigError

    if place is None:
        return None
    path, _, name = place.rpartition(":")
    if not name.isidentifier() or not path.endswith(".py") or not Path(path).is_file():
        raise ConfigError(f"--layers {place}: write FILE.py:FUNCTION, a file that is there and a function in it")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))  # what the file imports may lie beside it
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"--layers {place}: {path} cannot be imported: {type(error).__name__}: {error}") from error
    build: BuildLayers | None = getattr(module, name, None)
    if not callable(build):
        raise ConfigError(f"--layers {place}: {path} has no function {name}")
    return build
