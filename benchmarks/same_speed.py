"""Two checkouts by turns: what a refactor has cost, or a change has won, in the benchmarks that matter.

    recmill bench same-speed --before DIR [--rounds 5] [--json]

`--before` is another checkout, such as a git worktree at the commit to compare with. Each benchmark runs in a process
of its own, first in the one, then in the other checkout, with the packages of this environment; a figure's ratio is
the median over the rounds of after / before.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Report

CHECKOUT = Path(__file__).resolve().parents[1]
# By benchmark: its options, and those of its figures that are recmill's own speed.
BENCHMARKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "read": (("--rounds", "3"), ("recmill rows/s",)),
    "train": (("--rounds", "3"), ("raw samples/s", "memory samples/s")),
    "embeddings": (("--rounds", "5"), ("recmill ms@16", "recmill ms@64", "recmill ms@128")),
    "prepare": (("--rounds", "1"), ("recmill rows/s",)),
    "bert4rec": (("--rounds", "2"), ("recmill windows/s",)),
}


def run_bench(source: Path, name: str, options: Sequence[str]) -> dict[str, float]:
    """The figures that a benchmark of a checkout prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source / "src"), str(source)])}
    command = [sys.executable, "-m", "recmill", "bench", name, *options, "--json"]
    done = subprocess.run(command, env=environment, cwd=source, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise SystemExit(f"{' '.join(command)} in {source} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])["figures"]
    return figures


def main(argv: Sequence[str]) -> int:
    """`recmill bench same-speed`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench same-speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, metavar="DIR", help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each checkout (5)")
    parser.add_argument("--only", choices=tuple(BENCHMARKS), help="one benchmark")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(argv)
    report = Report("same-speed")
    for name, (options, wanted) in BENCHMARKS.items():
        if args.only not in (None, name):
            continue
        rounds = [
            (run_bench(args.before, name, options), run_bench(CHECKOUT, name, options)) for _ in range(args.rounds)
        ]
        for figure in wanted:
            # of a time, less is faster
            ratios = [a[figure] / b[figure] if " ms" in figure else b[figure] / a[figure] for a, b in rounds]
            report.figures[f"{name}: {figure} before"] = statistics.median(a[figure] for a, _ in rounds)
            report.figures[f"{name}: {figure} after"] = statistics.median(b[figure] for _, b in rounds)
            report.ratios[f"{name}: {figure}, after/before"] = statistics.median(ratios)
            report.notes[f"{name}: {figure}, rounds"] = [round(ratio, 3) for ratio in ratios]
    report.show(as_json=args.json)
    return 0
