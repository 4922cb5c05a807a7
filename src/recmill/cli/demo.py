"""`recmill demo`: a synthetic log, a model trained from its raw text, and its numbers beside the best possible."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.cli.options import Verbs

if TYPE_CHECKING:
    from recmill.data.synthetic.clicks import ClickWorld


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("demo", help="from nothing to a trained, evaluated model in two minutes")
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="where data and run go (demo)")
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N", help="rows of the log (1,000,000)")
    parser.add_argument("--days", type=int, default=6, metavar="D", help="days of the log (6)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the world and of the model (0)")
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Make the log unless it is there, train, print the table."""
    from recmill.data.synthetic.clicks import read_world, write_criteo
    from recmill.recipes.demo import SYNTH_SCALE
    from recmill.recipes.resolve import config
    from recmill.settings.synthetic import SynthSpec
    from recmill.training.job import run_job

    data_dir, run_dir = args.out / "data", args.out / "run"
    spec = SynthSpec(rows=args.rows, days=args.days, seed=args.seed, scale=SYNTH_SCALE)
    world = read_world(data_dir)
    if world is None or world.spec != spec:
        print(f"demo: writing {args.rows:,} rows of raw text to {data_dir}", file=sys.stderr)
        world = write_criteo(spec, data_dir, overwrite=world is not None)
    else:
        print(f"demo: {data_dir} holds this world already", file=sys.stderr)
    settings = config("demo", data=data_dir, overrides={"seed": args.seed})
    print(f"demo: training DLRM from the raw text, one epoch, into {run_dir}", file=sys.stderr)
    results = run_job(settings, run_dir, overwrite=True)
    print_table(results, world, run_dir)
    return 0


def print_table(results: dict[str, Any], world: "ClickWorld", run_dir: Path) -> None:
    """What was reached, beside what could be."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    test, best = results["test"], world.best_possible.test
    table = Table(box=box.SIMPLE_HEAD, title=f"DLRM after {results['rows']:,} rows, on the test half of the last day")
    for heading in ("", "recmill", "best possible", "difference"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, metric in (("AUROC", "auroc"), ("logloss", "logloss")):
        reached, possible = test[metric], getattr(best, metric)
        table.add_row(name, f"{reached:.4f}", f"{possible:.4f}", f"{reached - possible:+.4f}")
    table.add_row("rows/s", f"{results['rows_per_s']:,.0f}", "", "")
    table.add_row("waiting for data", f"{results['blocked_frac']:.1%}", "", "")
    console = Console()
    console.print(table)
    without_pairs = world.best_without_pairs.test.auroc
    console.print(f"best AUROC without interactions: {without_pairs:.4f}", highlight=False)
    console.print(f"run directory: {run_dir}", highlight=False, soft_wrap=True)
