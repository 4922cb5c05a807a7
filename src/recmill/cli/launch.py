"""`recmill launch`: another command of recmill in many processes, here or on a cluster."""

import argparse
import os
import sys
from difflib import get_close_matches
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from recmill.cli.options import Verbs
from recmill.errors import ConfigError

if TYPE_CHECKING:
    from recmill.launch.job import Job

LAUNCHERS = ("torchrun", "slurm", "mpi", "torchx")
# The options that not every launcher has a use for, and those that have.
OF_LAUNCHER = {
    "max_restarts": ("torchrun", "slurm", "torchx"),
    "address": ("torchrun",),
    "port": ("torchrun", "mpi"),
    "partition": ("slurm",),
    "time": ("slurm",),
    "cpus_per_proc": ("slurm",),
    "sbatch": ("slurm",),
    "mpi": ("mpi",),
    "hosts": ("mpi",),
    "scheduler": ("torchx",),
    "scheduler_option": ("torchx",),
    "image": ("torchx",),
}


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "launch",
        help="start a command in many processes, here or on a cluster",
        usage="recmill launch --on {torchrun,slurm,mpi,torchx} [options] -- train RECIPE ...",
    )
    parser.add_argument("--on", choices=LAUNCHERS, required=True, help="what starts the processes")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="hosts (1)")
    parser.add_argument("--procs", type=int, default=1, metavar="P", help="processes on each host (1)")
    parser.add_argument("--name", default="recmill", help="of the job (recmill)")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=TEXT", help="for the processes' environment"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be submitted, and submit nothing")
    add_launcher_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a command of recmill, behind --")
    parser.set_defaults(run_verb=partial(run, verbs))


def add_launcher_options(parser: argparse.ArgumentParser) -> None:
    """Those of `OF_LAUNCHER`; none has a default here, so that one which is given can be told from one which is not."""

    def add(option: str, explanation: str, **words: Any) -> None:
        launchers = ", ".join(OF_LAUNCHER[option.strip("-").replace("-", "_")])
        parser.add_argument(option, help=f"{explanation} [{launchers}]", **words)

    add("--max-restarts", "restart the processes up to R times if one dies (0)", type=int, metavar="R")
    add("--address", "one of several hosts, where their agents meet", metavar="HOST")
    add("--port", "where the processes meet on that host, or on the first (29400)", type=int)
    add("--partition", "queue to wait in", metavar="NAME")
    add("--time", "limit of one turn; the job is queued again when it is over", metavar="TIME")
    add("--cpus-per-proc", "cores of each process", type=int, metavar="C")
    add("--sbatch", "any other option of sbatch, e.g. --sbatch=--account=ads", action="append", metavar="OPTION")
    add("--mpi", "whose mpiexec it is (what `mpiexec --version` says)", choices=("openmpi", "mpich"))
    add("--hosts", "as many as --nodes", metavar="A,B")
    add("--scheduler", "of TorchX (local_cwd)", metavar="NAME")
    add("--scheduler-option", "for that scheduler", action="append", metavar="NAME=TEXT")
    add("--image", "or directory, with recmill in it", metavar="NAME")


def run(verbs: Verbs, args: argparse.Namespace) -> int:
    """Plan, then show or submit."""
    refuse_useless_options(args)
    launcher, submission = make_plan(args, *parsed_command(verbs, args))
    if args.dry_run:
        print(submission)
        return 0
    return int(launcher.submit(submission))


def refuse_useless_options(args: argparse.Namespace) -> None:
    """Complain about an option that would do nothing."""
    for name, launchers in OF_LAUNCHER.items():
        if getattr(args, name) is not None and args.on not in launchers:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{option} is for --on {' or '.join(launchers)}, and --on {args.on} has no use for it; leave it out"
            )


def parsed_command(verbs: Verbs, args: argparse.Namespace) -> tuple[tuple[str, ...], argparse.Namespace]:
    """The words behind `--`, and what recmill will make of them: a mistake is found now and not by N processes."""
    command = tuple(args.command[1:] if args.command[:1] == ["--"] else args.command)
    launchable = [verb for verb in verbs.choices if verb != "launch"]
    if not command:
        raise ConfigError(f"what is to be launched? Say it behind --: recmill launch --on {args.on} -- train demo ...")
    if command[0] not in launchable:
        near = get_close_matches(command[0], launchable, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the verbs are {', '.join(launchable)}"
        raise ConfigError(f"{command[0]!r} is not a command of recmill that can be launched; {hint}")
    parsed = verbs.choices[command[0]].parse_args(command[1:])
    if command[0] != "train" and args.nodes * args.procs > 1:
        raise ConfigError(f"only train shares its work among processes; give {command[0]} --nodes 1 --procs 1")
    if getattr(parsed, "procs", None) is not None:
        raise ConfigError(f"--procs {parsed.procs} stands behind --, where train would start its own; move it in front")
    return command, parsed


def make_plan(args: argparse.Namespace, command: tuple[str, ...], parsed: argparse.Namespace) -> tuple[ModuleType, Any]:
    """The launcher and what it would submit."""
    if args.on == "slurm":
        from recmill.launch import slurm

        asked = slurm.SlurmOptions(
            **given(args, "partition", "time", "cpus_per_proc", "max_restarts"), further=tuple(args.sbatch or ())
        )
        return slurm, slurm.plan(make_job(args, going_on(command, parsed)), asked)
    if args.on == "mpi":
        from recmill.launch import mpi

        hosts = tuple(args.hosts.split(",")) if args.hosts else ()
        where = mpi.MpiOptions(args.mpi or mpi.ask_flavour(), hosts, **given(args, "port"))
        return mpi, mpi.plan(make_job(args, command, is_here=True), where)
    if args.max_restarts:
        command = going_on(command, parsed)
    if args.on == "torchx":
        from recmill.launch import torchx

        settings = read_pairs("--scheduler-option", args.scheduler_option or [])
        app = torchx.TorchxOptions(**given(args, "scheduler", "image", "max_restarts"), settings=settings)
        return torchx, torchx.plan(make_job(args, command, is_here=app.scheduler == torchx.HERE), app)
    from recmill.launch import torchrun

    agents = torchrun.TorchrunOptions(**given(args, "address", "port", "max_restarts"))
    return torchrun, torchrun.plan(make_job(args, command, is_here=True), agents)


def given(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options that were, under their names; the others keep the launcher's defaults."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def going_on(command: tuple[str, ...], parsed: argparse.Namespace) -> tuple[str, ...]:
    """The command so that, when a launcher starts it again, it goes on where it was."""
    if command[0] != "train" or parsed.resume or parsed.start_or_resume:
        return command
    if parsed.overwrite:
        raise ConfigError(
            "--overwrite would throw the run away at every restart; leave it out, and delete the run directory first"
        )
    return (*command, "--start-or-resume")


def make_job(args: argparse.Namespace, command: tuple[str, ...], *, is_here: bool = False) -> "Job":
    """The command in its processes; on machines like this one each has its share of the cores."""
    from recmill.launch.job import Job, thread_words

    words = read_pairs("--env", args.env)
    if is_here and args.procs > 0:
        words = {**thread_words(args.procs, len(os.sched_getaffinity(0)), {**os.environ, **words}), **words}
    return Job(args.name, sys.executable, ("-m", "recmill", *command), args.nodes, args.procs, words)


def read_pairs(option: str, pairs: list[str]) -> dict[str, str]:
    """NAME=TEXT, any number of them."""
    for pair in pairs:
        if not pair.partition("=")[0].isidentifier() or "=" not in pair:
            raise ConfigError(f"{option} {pair!r}: write NAME=TEXT")
    return dict(pair.split("=", 1) for pair in pairs)
