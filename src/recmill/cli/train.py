"""`recmill train`: from raw text to a trained, evaluated model in a run directory."""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.errors import ConfigError

if TYPE_CHECKING:
    from recmill.settings.clicks import TrainConfig

Verbs = Any  # argparse's own type of a group of subparsers is private


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("train", help="train a model from raw text")
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="named settings; `recmill recipes` lists them")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML, laid over the recipe's")
    parser.add_argument("--data", type=Path, metavar="DIR", help="directory of raw logs, or of prepared rows")
    parser.add_argument(
        "--vocabulary", type=Path, metavar="DIR", help="encode raw logs as this prepared directory was encoded"
    )
    parser.add_argument("--schema", metavar="NAME|FILE", help="columns of the rows: criteo, kaggle or a .toml file")
    # under torchrun, which takes --run for a part of its own --run-path, it has the longer name
    parser.add_argument("--run", "--run-dir", type=Path, required=True, metavar="DIR", help="run directory to write")
    add_set_option(parser, "one setting, e.g. dense.lr=0.01")
    parser.add_argument("--bad-rows", choices=("fail", "skip"), help="what to do with a line that cannot be a row")
    parser.add_argument(
        "--warm-start", type=Path, metavar="PATH", help="begin with the tables of this checkpoint, model or run"
    )
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on from the newest checkpoint of the run directory")
    existing.add_argument("--overwrite", action="store_true", help="replace the run directory")
    existing.add_argument("--start-or-resume", action="store_true", help="start the run, or go on if it was started")
    parser.add_argument("--procs", type=int, metavar="N", help="train in N processes of this machine")
    parser.add_argument("--max-restarts", type=int, metavar="R", help="start them again so often if one dies (0)")
    parser.set_defaults(run_verb=run)


def add_set_option(parser: argparse.ArgumentParser, explanation: str) -> None:
    """Any number of single settings."""
    parser.add_argument("--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE", help=explanation)


def run(args: argparse.Namespace) -> int:
    """Resolve the settings and train."""
    from recmill.cli import sequences

    is_several = args.procs is not None or args.max_restarts is not None
    if sequences.is_wanted(args):
        settings, goes_on = sequences.chosen_config(args)
        return start_processes(args) if is_several else sequences.train(settings, args, resume=goes_on)
    config, resume = chosen_config(args)
    if is_several:
        return start_processes(args)
    from recmill.training.job import run_job
    from recmill.world import read_world

    results = run_job(config, args.run, resume=resume, overwrite=args.overwrite)
    if read_world().is_main:
        print_results(results, args.run)
    return 0


def start_processes(args: argparse.Namespace) -> int:
    """The same command, without the words that led here, in as many processes; the status of the first that fails."""
    from recmill.launch import torchrun
    from recmill.launch.job import Job, thread_words
    from recmill.world import read_world

    if args.procs is None:
        raise ConfigError(
            f"--max-restarts {args.max_restarts} is about the processes that --procs N starts; give it too"
        )
    if args.max_restarts and not (args.resume or args.start_or_resume):
        raise ConfigError(
            f"--max-restarts {args.max_restarts}: what is started again must go on where it was; "
            "give --start-or-resume too"
        )
    if (world := read_world()).size > 1:
        raise ConfigError(
            f"--procs {args.procs}: this is process {world.rank} of {world.size} that a launcher has started; "
            "leave --procs to one of the two"
        )
    options = torchrun.TorchrunOptions(max_restarts=args.max_restarts or 0)
    words = ("-m", "recmill", *without_procs(args.words))
    job = Job("train", sys.executable, words, procs=args.procs)
    threads = thread_words(job.procs, len(os.sched_getaffinity(0)), os.environ)
    return torchrun.submit(torchrun.plan(replace(job, environment=threads), options))


def without_procs(words: list[str]) -> list[str]:
    """The words of a command that its processes are given, however the options were spelt."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--procs")
    parser.add_argument("--max-restarts")
    return parser.parse_known_args(words)[1]


def chosen_config(args: argparse.Namespace) -> tuple["TrainConfig", bool]:
    """The settings, and whether they are those of a run to go on with."""
    from recmill.settings.changes import refuse_changes
    from recmill.training.checkpoint.checkpoint import CONFIG
    from recmill.training.loop.run import read_run_config

    if args.resume:
        return resumed_config(args), True
    config = resolved_config(args)
    if not (args.start_or_resume and (args.run / CONFIG).is_file()):
        return config, False
    refuse_changes(read_run_config(args.run), config, args.run)
    return config, True


def resolved_config(args: argparse.Namespace) -> "TrainConfig":
    """Recipe, then file, then options, then --set."""
    from recmill.recipes import RECIPES, SEQUENCE_RECIPES, find_recipe
    from recmill.settings.click_models import without_other_kind
    from recmill.settings.clicks import TrainConfig
    from recmill.settings.tree import from_tree, laid_over, read_toml, with_assignments

    if args.recipe is None and args.config is None:
        names = ", ".join([*RECIPES, *SEQUENCE_RECIPES])
        raise ConfigError(f"name a recipe ({names}) or give settings with --config FILE")
    tree: dict[str, Any] = {}
    if args.recipe is not None:
        tree = find_recipe(args.recipe)().model_dump(mode="json", exclude_none=True)
    if args.config is not None:
        settings = read_toml(args.config)
        tree = laid_over(without_other_kind(tree, settings), settings)
    tree = without_other_kind(tree, with_assignments({}, args.assignments))
    tree = with_assignments(tree, [*option_assignments(args), *schema_assignments(args.schema)])
    return from_tree(TrainConfig, with_assignments(taken_over(tree, args.vocabulary), args.assignments))


def taken_over(tree: dict[str, Any], vocabulary: Path | None) -> dict[str, Any]:
    """The settings with the encoding of the prepared directory that the data, or their vocabulary, come from."""
    from recmill.data.prepared.directory import VOCABULARY, is_prepared, read_facts
    from recmill.settings.schemas import SCHEMAS

    data = dict(tree.get("data", {}))
    data_dir = Path(data.get("dir") or ".")
    is_from_prepared = bool(data.get("dir")) and is_prepared(data_dir)
    if is_from_prepared and vocabulary is not None:
        raise ConfigError(f"{data_dir} is encoded already; leave out --vocabulary")
    if not is_from_prepared and vocabulary is None:
        return tree
    directory = data_dir if vocabulary is None else vocabulary
    facts = read_facts(directory)
    data.pop("max_rows_per_table", None)
    data["table_rows"] = list(facts.table_rows)
    is_shipped = SCHEMAS.get(facts.schema.name) == facts.schema
    data["row_schema"] = facts.schema.name if is_shipped else facts.schema.model_dump(mode="json", exclude_none=True)
    if is_from_prepared:
        data["first_half"] = facts.first_half or "validation"
    if facts.multi_hot:
        data["multi_hot"] = list(facts.multi_hot.sizes)
        data["multi_hot_distribution"] = facts.multi_hot.distribution
    if vocabulary is not None and facts.encoding.category == "vocabulary":
        data["vocabulary"] = str((vocabulary / VOCABULARY).resolve())
    return {**tree, "data": data, "encoding": facts.encoding.model_dump(mode="json", exclude_none=True)}


def resumed_config(args: argparse.Namespace) -> "TrainConfig":
    """The run's own settings; only those that do not change its meaning may be set anew."""
    from recmill.settings.changes import refuse_changes
    from recmill.settings.click_models import without_other_kind
    from recmill.settings.clicks import TrainConfig
    from recmill.settings.tree import from_tree, with_assignments
    from recmill.training.loop.run import read_run_config

    if args.recipe is not None or args.config is not None or args.schema is not None:
        raise ConfigError(f"--resume takes the settings of {args.run}; leave out the recipe, --config and --schema")
    before = read_run_config(args.run)
    tree = before.model_dump(mode="json", exclude_none=True)
    tree = without_other_kind(tree, with_assignments({}, args.assignments))
    after = from_tree(TrainConfig, with_assignments(tree, [*option_assignments(args), *args.assignments]))
    refuse_changes(before, after, args.run)
    return after


def option_assignments(args: argparse.Namespace) -> list[str]:
    """The options that stand for settings."""
    data = [f"data.dir={str(args.data.resolve())!r}"] if args.data is not None else []
    data += [f"data.bad_rows={args.bad_rows}"] if args.bad_rows is not None else []
    return data + warm_start_assignments(getattr(args, "warm_start", None))


def warm_start_assignments(path: Path | None) -> list[str]:
    """The setting --warm-start stands for; of a run, the very checkpoint that is its newest now."""
    from recmill.training.checkpoint.saved_state import open_state

    return [f"warm_start.from_dir={str(open_state(path).directory.resolve())!r}"] if path is not None else []


def schema_assignments(name: str | None) -> list[str]:
    """The settings --schema stands for: the schema, and its table sizes in place of a recipe's if it gives any."""
    from recmill.settings.schemas import find_schema

    if name is None:
        return []
    gives_rows = all(column.rows for column in find_schema(name).of_role("category"))
    return [f"data.row_schema={name!r}", *(["data.table_rows=[]"] if gives_rows else [])]


def print_results(results: dict[str, Any], run_dir: Path) -> None:
    """The end of a run, for a person; the evaluations have been shown as they came."""
    told = [f"trained on {results['rows']:,} rows in {results['step']:,} steps"]
    if results["rows_per_s"]:
        told.append(f"{results['rows_per_s']:,.0f} rows/s, {results['blocked_frac']:.1%} waiting for data")
    if results["skipped_rows"]:
        told.append(f"{results['skipped_rows']:,} bad lines passed over")
    print(", ".join(told))
    judged = [f"{results[split]['auroc']} on {told_split(split, results)}" for split in ("validation", "test")]
    print(f"AUROC {', '.join(judged)}")
    if results["best"] and results["best"]["step"] < results["step"]:
        print(f"best AUROC on validation {results['best']['auroc']} after step {results['best']['step']:,}")
    print(f"run directory: {run_dir}")


def told_split(split: str, results: dict[str, Any]) -> str:
    """Its name, and how much of it was judged if a limit left rows out."""
    is_whole, num_rows = results[split]["whole_split"], results[split]["num_rows"]
    return split if is_whole else f"the first {num_rows:,} rows of {split}"
