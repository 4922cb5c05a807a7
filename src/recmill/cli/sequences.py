"""What `recmill train` and `recmill evaluate` do when the model is one of sequences."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.errors import ConfigError

if TYPE_CHECKING:
    from recmill.settings.sequences import SequenceConfig

# Options of click models, with the names of the arguments that hold them.
_CLICK_OPTIONS = {
    "vocabulary": "--vocabulary",
    "schema": "--schema",
    "bad_rows": "--bad-rows",
    "warm_start": "--warm-start",
}
# Settings that say what others of their section are about, and what stays whatever is chosen.
_CHOICES = {"loss": ("kind", ()), "protocol": ("candidates", ("cutoffs", "seed"))}


def is_wanted(args: argparse.Namespace) -> bool:
    """Whether the recipe, the settings or the run to go on with are of a sequence model."""
    from recmill.models.sequence.ranker import SEQUENCE_CONFIGS
    from recmill.recipes import SEQUENCE_RECIPES
    from recmill.settings.tree import read_toml, with_assignments

    if getattr(args, "resume", False):
        return holds_sequence_run(args.run)
    if args.recipe is not None:
        return args.recipe in SEQUENCE_RECIPES
    if args.config is None:
        return False
    model = with_assignments(read_toml(args.config), args.assignments).get("model")
    return isinstance(model, dict) and model.get("kind") in list(SEQUENCE_CONFIGS)


def holds_sequence_run(run_dir: Path) -> bool:
    """Whether a run directory is one of a sequence model."""
    from recmill.models.sequence.ranker import SEQUENCE_CONFIGS
    from recmill.settings.tree import read_toml
    from recmill.training.checkpoint.checkpoint import CONFIG

    if not (run_dir / CONFIG).is_file():
        return False
    return read_toml(run_dir / CONFIG).get("model", {}).get("kind") in list(SEQUENCE_CONFIGS)


def refuse_click_options(args: argparse.Namespace) -> None:
    """Complain about options that sequence models have no use for."""
    for name, option in _CLICK_OPTIONS.items():
        if getattr(args, name, None) is not None:
            raise ConfigError(f"{option} {getattr(args, name)} does nothing for a sequence model; leave it out")


def resolved_config(args: argparse.Namespace) -> "SequenceConfig":
    """Recipe, then file, then --data, then --set."""
    from recmill.recipes import find_sequence_recipe
    from recmill.settings.sequences import SequenceConfig
    from recmill.settings.tree import from_tree, laid_over, read_toml, with_assignments

    refuse_click_options(args)
    tree: dict[str, Any] = {}
    if args.recipe is not None:
        tree = find_sequence_recipe(args.recipe)().model_dump(mode="json", exclude_none=True)
    if args.config is not None:
        settings = read_toml(args.config)
        tree = laid_over(_without_other_choices(_without_other_kind(tree, settings), settings), settings)
    changes = with_assignments({}, args.assignments)
    tree = _without_other_choices(_without_other_kind(tree, changes), changes)
    return from_tree(SequenceConfig, with_assignments(tree, [*data_assignment(args), *args.assignments]))


def _without_other_kind(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The settings of a recipe, without those that the kind of model which the changes ask for has not."""
    from recmill.models.sequence.ranker import SEQUENCE_CONFIGS

    wanted = changes.get("model")
    kind = wanted.get("kind") if isinstance(wanted, dict) else None
    model = tree.get("model")
    if not model or "kind" not in model or kind not in list(SEQUENCE_CONFIGS) or kind == model["kind"]:
        return tree
    before, after = SEQUENCE_CONFIGS[model["kind"]], SEQUENCE_CONFIGS[kind]
    defaults = {name: field.default for name, field in before.model_fields.items()}
    # what the recipe has left at the other kind's own choice stays the new kind's to choose
    shared = {
        name: value for name, value in model.items() if name in after.model_fields and value != defaults.get(name)
    }
    rest = {name: section for name, section in tree.items() if name != "mask" or kind == "bert4rec"}
    return {**rest, "model": {**shared, "kind": kind}}


def _without_other_choices(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The settings of a recipe or a run, without what they say for choices that the changes replace."""
    kept = dict(tree)
    for section, (choice, shared) in _CHOICES.items():
        wanted, before = changes.get(section), tree.get(section, {})
        if isinstance(wanted, dict) and {choice} <= wanted.keys() & before.keys() and wanted[choice] != before[choice]:
            kept[section] = {name: before[name] for name in shared if name in before}
    return kept


def data_assignment(args: argparse.Namespace) -> list[str]:
    """The setting that --data stands for."""
    return [f"data.dir={str(args.data.resolve())!r}"] if args.data is not None else []


def resumed_config(args: argparse.Namespace) -> "SequenceConfig":
    """The run's own settings; only those that do not change its meaning may be set anew."""
    from recmill.settings.changes import refuse_changes
    from recmill.settings.sequences import SequenceConfig
    from recmill.settings.tree import from_tree, with_assignments

    refuse_click_options(args)
    if args.recipe is not None or args.config is not None:
        raise ConfigError(f"--resume takes the settings of {args.run}; leave out the recipe and --config")
    before = read_run_config(args.run)
    tree = before.model_dump(mode="json", exclude_none=True)
    after = from_tree(SequenceConfig, with_assignments(tree, [*data_assignment(args), *args.assignments]))
    refuse_changes(before, after, args.run)
    return after


def read_run_config(run_dir: Path) -> "SequenceConfig":
    """The settings a run was made with."""
    from recmill.settings.sequences import SequenceConfig
    from recmill.settings.tree import from_tree, read_toml
    from recmill.training.checkpoint.checkpoint import CONFIG

    return from_tree(SequenceConfig, read_toml(run_dir / CONFIG))


def run_config_with(run_dir: Path, assignments: list[str]) -> "SequenceConfig":
    """The settings of a run with some in place of its own, to judge it or to use it."""
    from recmill.settings.sequences import SequenceConfig
    from recmill.settings.tree import from_tree, with_assignments

    tree = read_run_config(run_dir).model_dump(mode="json", exclude_none=True)
    tree = _without_other_choices(tree, with_assignments({}, assignments))
    return from_tree(SequenceConfig, with_assignments(tree, assignments))


def chosen_config(args: argparse.Namespace) -> tuple["SequenceConfig", bool]:
    """The settings, and whether a run that was started goes on with them."""
    from recmill.settings.changes import refuse_changes

    if args.resume:
        return resumed_config(args), True
    config = resolved_config(args)
    if args.start_or_resume and holds_sequence_run(args.run):
        refuse_changes(read_run_config(args.run), config, args.run)
        return config, True
    return config, False


def train(config: "SequenceConfig", args: argparse.Namespace, *, resume: bool) -> int:
    """Train in this process, which may be one of several."""
    from recmill.training.sequence.job import run_sequence_job
    from recmill.world import read_world

    results = run_sequence_job(config, args.run, resume=resume, overwrite=args.overwrite)
    if read_world().is_main:
        print_results(results, args.run)
    return 0


def print_results(results: dict[str, Any], run_dir: Path) -> None:
    """The end of a run, for a person: the model beside the baselines, under one protocol."""
    speed = f", {results['rows_per_s']:,.0f} windows/s" if results["rows_per_s"] else ""
    print(f"trained on {results['rows']:,} windows in {results['step']:,} steps{speed}")
    best = {} if results["test_of_best"] is None else {"best weights": results["test_of_best"]}
    print_verdicts("test", {"last weights": results["test"], **best, **results["baselines"]})
    print(f"run directory: {run_dir}")


def print_verdicts(split: str, told: dict[str, dict[str, Any]]) -> None:
    """Whatever was judged, one below the other, and the protocol that they share."""
    from recmill.ranking import is_at_ten

    first = next(iter(told.values()))
    names = [name for name in first if is_at_ten(name)]
    part = "" if first["whole_split"] else ", a part of them"
    print(f"on {split}, {len(names)} numbers at 10 of {first['num_users']:,} users{part}:")
    for who, metrics in told.items():
        print(f"  {who:<13} " + "  ".join(f"{name} {_shown(metrics[name])}" for name in names))
    protocol = ", ".join(f"{name} = {value}" for name, value in first["protocol"].items())
    print(f"protocol: {protocol}; {first['num_unknown_targets']:,} targets were never trained on")
    if first["num_removed_targets"]:
        print(
            f"{first['num_removed_targets']:,} targets are items that their users know, removed and so never found: "
            "set protocol.seen=kept, or prepare with --repeats first"
        )


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def evaluate(args: argparse.Namespace, weights_dir: Path) -> int:
    """Read weights of a run, judge them, print."""
    from recmill.training.checkpoint.checkpoint import read_model
    from recmill.training.sequence.task import open_sequence_task

    refuse_click_options(args)
    if args.max_batches is not None:
        raise ConfigError(
            f"--max-batches {args.max_batches} is for click models; "
            f"for some users alone: --set data.max_{args.split}_users=N"
        )
    config = run_config_with(args.run_dir, [*data_assignment(args), *args.assignments])
    task = open_sequence_task(config, is_new=False)
    read_model(weights_dir, task.state)
    evaluation, baselines = task.evaluate(args.split), task.judge_baselines(args.split)
    if args.json:
        print(json.dumps({"split": args.split, **evaluation.as_dict(), "baselines": baselines}))
    else:
        print_verdicts(args.split, {"this model": evaluation.as_dict(), **baselines})
    return 0
