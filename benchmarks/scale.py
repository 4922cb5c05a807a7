"""One process against two on the same cores, and our engine against TorchRec's: runs that take turns.

local      one process with our own kernels
torchrec   one process with TorchRec's tables
two        two processes with TorchRec's tables, each with half of the threads

All train the same global batches of the same log from the same first values. The losses of all steps are compared, and
the layers start with an accumulator that is not 0: without one, the first step of a weight is as large for a gradient
of rounding errors as for any other, and what differs in the last bit differs soon in the first.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import Report, Timing, add_common_options, median_ratio, take_turns
from recmill.data.synthetic import SynthSpec, write_criteo

WAYS = {
    "local": ("--set", "sharding.engine=local"),
    "torchrec": ("--set", "sharding.engine=torchrec"),
    "two": ("--procs", "2"),
}
SETTINGS = (
    "tables.kind=adagrad",
    "dense.kind=adagrad",
    "tables.lr=0.01",
    "dense.lr=0.01",
    "tables.initial_accumulator=0.1",
    "dense.initial_accumulator=0.1",
    "cadence.log_every_steps=1",
    "data.max_validation_batches=1",
    "data.max_test_batches=1",
)


def run_once(way: str, model: str, data_dir: Path, run_dir: Path, num_steps: int) -> dict[str, Any]:
    """Train so many steps; the results of the run."""
    words = [sys.executable, "-m", "recmill", "train", model, "--data", str(data_dir), "--run", str(run_dir)]
    words += [word for setting in (*SETTINGS, f"stop.max_steps={num_steps}") for word in ("--set", setting)]
    done = subprocess.run(
        [*words, "--overwrite", *WAYS[way]], capture_output=True, text=True, check=False, env=os.environ
    )
    if done.returncode:
        raise RuntimeError(f"{way} failed with status {done.returncode}:\n{done.stderr[-2000:]}")
    results: dict[str, Any] = json.loads((run_dir / "results.json").read_text())
    return results


def losses(run_dir: Path) -> list[float]:
    """Of all steps."""
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["kind"] == "train"]


def seconds_of_steps(run_dir: Path, first: int) -> float:
    """Of the steps behind the first ones, which fill caches."""
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    rates = [(r["rows"], r["rows_per_s"]) for r in records if r["kind"] == "train"]
    sizes = [rows - before for (rows, _), (before, _) in zip(rates[1:], rates[:-1], strict=True)]
    return sum(float(size / rate) for size, (_, rate) in list(zip(sizes, rates[1:], strict=True))[first:])


def measure(model: str, data_dir: Path, scratch: Path, *, num_steps: int, rounds: int) -> Report:
    """All ways, turn by turn."""
    report = Report("scale")
    shares: dict[str, Any] = {}

    def turn(way: str) -> float:
        run_dir = scratch / way
        results = run_once(way, model, data_dir, run_dir, num_steps)
        shares[way] = {name: results[name] for name in results if name.endswith("_frac")}
        return seconds_of_steps(run_dir, num_steps // 10)

    timings: dict[str, Timing] = take_turns({way: partial(turn, way) for way in WAYS}, rounds=rounds)
    for way, timing in timings.items():
        report.figures[f"{way} s"] = timing.median_s
        report.figures[f"{way} spread"] = timing.spread_frac
        for name, share in shares[way].items():
            report.figures[f"{way} {name}"] = share
    told = {way: losses(scratch / way) for way in WAYS}
    for one, other in (("local", "torchrec"), ("local", "two")):
        pairs = zip(told[one], told[other], strict=True)
        report.figures[f"largest loss difference {one}/{other}"] = max(abs(a - b) / a for a, b in pairs)
    report.ratios = {
        "two/torchrec": median_ratio(timings, "two", "torchrec"),
        "local/torchrec": median_ratio(timings, "local", "torchrec"),
    }
    report.notes = {"model": model, "steps": num_steps, "rounds": rounds}
    return report


def main(argv: Sequence[str]) -> int:
    """`recmill bench scale`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, rounds=3)
    parser.add_argument("--model", choices=("small", "mlperf"), default="small")
    parser.add_argument("--steps", type=int, default=200, help="steps of each run (200)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = Path(scratch) / "data"
        batch = {"small": 2048, "mlperf": 4096}[args.model]
        write_criteo(SynthSpec(rows=(args.steps + 20) * batch * 2, days=2, seed=0, scale=0.02), data_dir)
        report = measure(args.model, data_dir, Path(scratch), num_steps=args.steps, rounds=args.rounds)
    report.show(as_json=args.json)
    return 0
