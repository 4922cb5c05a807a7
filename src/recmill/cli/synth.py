"""`recmill synth criteo` and `recmill synth interactions`: logs with a known right answer."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.cli.options import Verbs

if TYPE_CHECKING:
    from recmill.data.synthetic.clicks import ClickWorld, LastDay


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    kinds = verbs.add_parser("synth", help="write a synthetic log with a known right answer").add_subparsers(
        title="logs", metavar="LOG", required=True
    )
    parser = kinds.add_parser("criteo", help="click logs in Criteo's text format: day_0, day_1, … and world.json")
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N", help="rows of all days (1,000,000)")
    parser.add_argument("--days", type=int, default=6, metavar="D", help="files to spread them over (6)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the same seed gives the same bytes (0)")
    parser.add_argument(
        "--scale", type=float, default=0.001, metavar="X", help="distinct values, as a share of Criteo's"
    )
    parser.add_argument("--click-rate", type=float, default=0.25, metavar="P", help="share of rows with a click")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="T")
    parser.add_argument("--overwrite", action="store_true", help="replace the directory, once the new one is complete")
    parser.set_defaults(run_verb=run)
    add_interactions_parser(kinds)
    add_table_parser(kinds)


def add_interactions_parser(kinds: Verbs) -> None:
    """Declare the log of events."""
    parser = kinds.add_parser("interactions", help="events of users who follow planted chains: interactions.csv")
    parser.add_argument("--users", type=int, default=5_000, metavar="N", help="how many users (5,000)")
    parser.add_argument("--items", type=int, default=500, metavar="N", help="all of them in every chain (500)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the same seed gives the same bytes (0)")
    parser.add_argument("--min-length", type=int, default=10, metavar="N", help="events of a user (10)")
    parser.add_argument("--max-length", type=int, default=30, metavar="N", help="events of a user (30)")
    parser.add_argument("--noise", type=float, default=0.2, metavar="P", help="share of events off the chain (0.2)")
    parser.add_argument("--rules", type=int, default=2, metavar="N", help="chains, one of which each user follows (2)")
    parser.add_argument("--overwrite", action="store_true", help="replace the directory, once the new one is complete")
    parser.set_defaults(run_verb=run_interactions)


def add_table_parser(kinds: Verbs) -> None:
    """Add `synth table`."""
    parser = kinds.add_parser("table", help="a CSV of strings, numbers, dates and lists with a planted rule: table.csv")
    parser.add_argument(
        "--kind", choices=("clicks", "shop"), default="shop", help="many categories, or a shop's mixed columns (shop)"
    )
    parser.add_argument("--rows", type=int, default=100_000, metavar="N", help="how many rows (100,000)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the same seed gives the same bytes (0)")
    parser.add_argument("--overwrite", action="store_true", help="replace the directory, once the new one is complete")
    parser.set_defaults(run_verb=run_table)


def run_table(args: argparse.Namespace) -> int:
    """Write the table and say what can be reached."""
    from recmill.data.synthetic.tables import TABLE, write_table
    from recmill.settings.synthetic import SynthTable
    from recmill.settings.tree import from_tree

    spec = from_tree(SynthTable, {name: getattr(args, name) for name in SynthTable.model_fields}, "synth")
    known = write_table(spec, args.out, overwrite=args.overwrite)
    best = known["best_possible"]
    print(f"{args.out / TABLE}: {spec.rows:,} rows, {best['num_clicks'] / spec.rows:.1%} of them positive")
    print(f"best possible   AUROC {best['auroc']:.4f}  logloss {best['logloss']:.4f}")
    print(f"next: recmill train auto --data {args.out / TABLE} --run runs/{args.out.name}")
    return 0


def run_interactions(args: argparse.Namespace) -> int:
    """Write the events and say what can be reached."""
    from recmill.data.synthetic.chains import EVENTS_FILE, write_chains
    from recmill.settings.synthetic import ChainSpec
    from recmill.settings.tree import from_tree

    spec = from_tree(ChainSpec, {name: getattr(args, name) for name in ChainSpec.model_fields}, "synth")
    world = write_chains(spec, args.out, overwrite=args.overwrite)
    best = "; ".join(
        f"{name} NDCG@10 {each.ndcg:.4f} HR@10 {each.hr:.4f}"
        for name, each in (("validation", world.validation), ("test", world.test))
    )
    print(f"{args.out}: {world.num_events:,} events of {spec.users:,} users, {spec.items:,} items")
    print(f"best possible   {best}")
    print(f"next: recmill prepare --preset events --data {args.out / EVENTS_FILE} --out {args.out}_sequences")
    return 0


def run(args: argparse.Namespace) -> int:
    """Write the log and say what was written."""
    from recmill.data.synthetic.clicks import write_criteo
    from recmill.settings.synthetic import SynthSpec
    from recmill.settings.tree import from_tree

    spec = from_tree(SynthSpec, {name: getattr(args, name) for name in SynthSpec.model_fields}, "synth")
    started_s = time.perf_counter()
    world = write_criteo(
        spec,
        args.out,
        threads=args.threads,
        overwrite=args.overwrite,
        on_progress=_show_progress(spec.rows) if sys.stderr.isatty() else None,
    )
    print(describe_world(world, args.out, time.perf_counter() - started_s))
    print(f"next: recmill train demo --data {args.out} --run runs/{args.out.name}")
    return 0


def describe_world(world: "ClickWorld", out_dir: Path, seconds: float) -> str:
    """What was written, how fast, and what the best predictors score on its last day."""
    rows = world.spec.rows
    return "\n".join(
        (
            f"{out_dir}: {rows:,} rows in {world.spec.days} days, {world.num_bytes / 2**20:,.1f} MiB, "
            f"{rows / seconds:,.0f} rows/s, click rate {world.num_clicks / rows:.4f}",
            f"best possible on the last day   {_describe_scores(world.best_possible)}",
            f"best without category pairs     {_describe_scores(world.best_without_pairs)}",
        )
    )


def _describe_scores(scores: "LastDay") -> str:
    parts = {"": scores.whole, "validation ": scores.validation, "test ": scores.test}
    return " · ".join(f"{name}AUROC {_number(s.auroc)} logloss {_number(s.logloss)}" for name, s in parts.items())


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _show_progress(num_rows: int) -> Callable[[int], None]:
    """Tells a terminal how far the rows are, once per hundredth."""
    shown = -1

    def show(num_written: int) -> None:
        nonlocal shown
        percent = 100 * num_written // num_rows
        if percent > shown:
            shown = percent
            end = "\n" if percent == 100 else ""
            print(f"\r{num_written:,} of {num_rows:,} rows ({percent} %)", end=end, file=sys.stderr, flush=True)

    return show
