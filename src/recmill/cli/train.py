"""`recmill train`: from raw text, prepared rows or sequences to a trained, evaluated model in a run directory."""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.cli.options import (
    Verbs,
    add_bad_rows_option,
    add_column_options,
    add_layers_option,
    add_recipe_options,
    add_set_option,
    add_time_split_options,
    asked_of,
    import_layers,
    sources_from,
)
from recmill.errors import ConfigError

if TYPE_CHECKING:
    from recmill.recipes.resolve import Mode
    from recmill.settings.families import AnyConfig

BAD_RUN = 1


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("train", help="train a model from raw logs, prepared rows or sequences")
    add_recipe_options(parser, "directory of raw logs, of prepared rows or sequences; a file; - for standard input")
    parser.add_argument(
        "--vocabulary", type=Path, metavar="DIR", help="encode raw logs as this prepared directory was encoded"
    )
    parser.add_argument("--label", metavar="COLUMN", help="recipe auto: the column to predict (found by its name)")
    add_column_options(parser, "recipe auto: ")
    # under torchrun, which takes --run for a part of its own --run-path, it has the longer name
    parser.add_argument("--run", "--run-dir", type=Path, required=True, metavar="DIR", help="run directory to write")
    add_set_option(parser, "one setting, e.g. dense.lr=0.01")
    add_bad_rows_option(parser)
    add_time_split_options(parser)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), help="where to compute (auto)")
    parser.add_argument(
        "--warm-start", type=Path, metavar="PATH", help="begin with the tables of this checkpoint, model or run"
    )
    add_layers_option(parser)
    parser.add_argument("--strict", action="store_true", help="status 1 if the finished run has warnings")
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on from the newest checkpoint of the run directory")
    existing.add_argument("--overwrite", action="store_true", help="replace the run directory")
    existing.add_argument("--start-or-resume", action="store_true", help="start the run, or go on if it was started")
    parser.add_argument("--procs", type=int, metavar="N", help="train in N processes of this machine")
    parser.add_argument("--max-restarts", type=int, metavar="R", help="restart them up to R times if one dies (0)")
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Resolve the settings and train."""
    from recmill.api.train import print_line, resolve_or_choose
    from recmill.data.logs.stdin_file import given_path

    if args.data is not None:
        args.data = given_path(args.data, procs=args.procs)
    sources, asked = sources_from(args), asked_of(args)
    config, goes_on = resolve_or_choose(sources, args.run, mode_of(args), asked, print_line, args.procs)
    if args.procs is not None or args.max_restarts is not None:
        return start_processes(args, config)
    from recmill.cli.show import print_results
    from recmill.training.job import run_job
    from recmill.world import read_world

    layers = import_layers(args.layers)
    results = run_job(config, args.run, resume=goes_on, overwrite=args.overwrite, build_layers=layers)
    if read_world().is_main:
        print_results(results, args.run)
    return BAD_RUN if args.strict and results["warnings"] else 0


def mode_of(args: argparse.Namespace) -> "Mode":
    """What is to become of a run directory that is there."""
    if args.resume:
        return "resume"
    return "start_or_resume" if args.start_or_resume else "overwrite" if args.overwrite else "new"


def start_processes(args: argparse.Namespace, config: "AnyConfig") -> int:
    """The same command, without the options that led here, in as many processes; the status of the first that fails."""
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
    refuse_missing_torchrec(config, args.procs)  # said once here, and not by every process
    options = torchrun.TorchrunOptions(max_restarts=args.max_restarts or 0)
    words = ("-m", "recmill", *without_procs(args.words))
    job = Job("train", sys.executable, words, procs=args.procs)
    threads = thread_words(job.procs, len(os.sched_getaffinity(0)), os.environ)
    return torchrun.submit(torchrun.plan(replace(job, environment=threads), options))


def refuse_missing_torchrec(config: "AnyConfig", procs: int) -> None:
    """Complain if the processes would need TorchRec and it is not installed."""
    from recmill.training.job import open_job
    from recmill.world import World

    if procs > 1:
        open_job(config).uses_torchrec(World(size=procs, local_size=procs))


def without_procs(words: list[str]) -> list[str]:
    """The words of a command that its processes are given, however the options were spelt."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--procs")
    parser.add_argument("--max-restarts")
    return parser.parse_known_args(words)[1]
