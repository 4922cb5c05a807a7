"""A recipe on sequences from files to its full-ranking numbers, with popularity and Markov beside it.

Prepares --data with --preset, trains --recipe with any --set, and tells the test metrics of the weights that were best
on validation, the minutes of training and the largest resident memory: the whole work of `recmill prepare` and
`recmill train` in processes of their own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.prepare import TELL_PEAK
from benchmarks.report import Report, add_common_options
from recmill.ranking import is_at_ten


def run_words(words: Sequence[str]) -> float:
    """Run a command; its largest resident memory in GiB."""
    told = subprocess.run([sys.executable, "-c", TELL_PEAK, *words], check=True, stdout=subprocess.PIPE, text=True)
    return int(told.stdout.split()[-2]) / 2**20


def measure(args: argparse.Namespace, scratch: Path) -> Report:
    """Prepare, train, read the results."""
    data_dir, run_dir = scratch / "data", args.run or scratch / "run"
    run_words(
        ["prepare", "--preset", args.preset, "--data", str(args.data), "--out", str(data_dir), "--split", args.split]
    )
    began = time.perf_counter()
    words = ["train", args.recipe, "--data", str(data_dir), "--run", str(run_dir)]
    for assignment in args.assignments:
        words += ["--set", assignment]
    peak_gib = run_words(words)
    seconds = time.perf_counter() - began
    results: dict[str, Any] = json.loads((run_dir / "results.json").read_text())
    report = Report("sequences")
    best = results["test_of_best"] or results["test"]
    measured = {"recmill": best, **results["baselines"]}
    names = [name for name in best if is_at_ten(name) and name.startswith(("hr", "ndcg"))]
    for who, metrics in measured.items():
        report.figures |= {f"{who} {name}": metrics[name] for name in names}
    report.figures |= {"minutes": seconds / 60, "peak GiB": peak_gib, "windows/s": results["rows_per_s"]}
    score = next(name for name in names if name.startswith("ndcg"))
    report.ratios = {f"recmill/{who}": best[score] / metrics[score] for who, metrics in results["baselines"].items()}
    report.notes = {
        "recipe": args.recipe,
        "set": args.assignments,
        "file": args.data.name,
        "split": args.split,
        "protocol": best["protocol"],
        "users": best["num_users"],
        "unknown targets": best["num_unknown_targets"],
        "items": results["data"]["items"],
        "epochs": results["epoch"],
        "best step": results["best"]["step"] if results["best"] else None,
        "ended by": results["ended_by"],
    }
    return report


def main(argv: Sequence[str]) -> int:
    """`recmill bench sequences`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench sequences", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, rounds=1)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="events")
    parser.add_argument("--preset", default="user-item", help="how they are read (user-item)")
    parser.add_argument("--split", choices=("leave_one_out", "last", "time"), default="leave_one_out")
    parser.add_argument("--recipe", default="sasrec")
    parser.add_argument("--run", type=Path, metavar="DIR", help="keep the run directory there")
    parser.add_argument("--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        measure(args, Path(scratch)).show(as_json=args.json)
    return 0
