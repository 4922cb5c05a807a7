"""`recmill bench`: runs a program of `benchmarks/`, which measures recmill and its rivals in one run."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from recmill.cli.options import Verbs
from recmill.errors import MissingExtra

BENCHMARKS = (
    *("auto", "read", "csv-read", "audit", "prepare", "train", "embeddings", "save", "checks", "resume", "scale"),
    *("criteo-kaggle-sample", "events", "bert4rec", "ranking", "sequences", "same-bytes", "same-speed", "tiers"),
)


def add_parser(verbs: Verbs) -> None:
    """Declare the verb; each benchmark has options of its own."""
    parser = verbs.add_parser("bench", help="measure recmill against its rivals", add_help=False)
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, help="what to measure")
    parser.add_argument("-h", "--help", action="store_true", dest="wants_help")
    parser.add_argument("options", nargs=argparse.REMAINDER)
    parser.set_defaults(run_verb=run, parser=parser)


def run(args: argparse.Namespace) -> int:
    """Hand over to the program."""
    if args.name is None:
        print(f"usage: recmill bench {{{','.join(BENCHMARKS)}}} [--json] [options]; see `recmill bench NAME --help`")
        return 0 if args.wants_help else 2
    checkout, module = Path(__file__).resolve().parents[3], args.name.replace("-", "_")
    if not (checkout / "benchmarks" / f"{module}.py").is_file():
        raise MissingExtra(
            f"the benchmarks are part of the source checkout and {checkout} is none: git clone, make install"
        )
    sys.path.insert(0, str(checkout))
    options = [*args.options, *(["--help"] if args.wants_help else [])]
    return int(import_module(f"benchmarks.{module}").main(options))
