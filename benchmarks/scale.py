"""One process against two on the same cores, and our engine against TorchRec's: runs that take their steps in turn.

local      one process with our own kernels
torchrec   one process with TorchRec's tables
two        two processes with TorchRec's tables, each with half of the threads

All train the same global batches of the same log from the same first values. The losses of all steps are compared, and
the layers start with an accumulator that is not 0: without one, the first step of a weight is as large for a gradient
of rounding errors as for any other, and what differs in the last bit differs soon in the first.

The ways are closer than a shared machine is to itself from one second to the next. So in every round the runs of all
ways live at the same time, and each in turn takes a few steps while the others are stopped (`paced.py`). A round's
seconds are those of all steps behind the first tenth: text is parsed every so many steps for all of them, and not in
the same ones by all ways, so that single slices cannot be compared.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.paced import PacedRun
from benchmarks.report import Report, add_common_options, median_ratio, share_turns, take_turns
from recmill.data.synthetic.clicks import write_criteo
from recmill.recipes import find_recipe
from recmill.settings.synthetic import SynthSpec


@dataclass(frozen=True)
class Way:
    """How to train."""

    procs: int
    engine: str


WAYS = {"local": Way(1, "local"), "torchrec": Way(1, "torchrec"), "two": Way(2, "torchrec")}
SLICE_STEPS = {"small": 5, "mlperf": 1}  # a third of a second and half of one
SETTINGS = (
    "tables.kind=adagrad",
    "dense.kind=adagrad",
    "tables.lr=0.01",
    "dense.lr=0.01",
    "tables.initial_accumulator=0.1",
    "dense.initial_accumulator=0.1",
    "data.max_validation_batches=1",
    "data.max_test_batches=1",
)


@dataclass
class Bench:
    """What is trained on what, and what the runs have told."""

    model: str
    data_dir: Path
    scratch: Path
    num_steps: int
    losses: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})  # of all rounds
    shares: dict[str, dict[str, float]] = field(default_factory=dict)  # of the latest round

    @property
    def num_slices(self) -> int:
        """Of a run."""
        return -(-self.num_steps // SLICE_STEPS[self.model])

    @property
    def num_first(self) -> int:
        """How many slices fill caches, and are not timed."""
        return -(-(self.num_steps // 10) // SLICE_STEPS[self.model])

    def take_round(self) -> dict[str, float]:
        """Train all ways, slice by slice in turn; the seconds of each."""
        with ExitStack() as stack:
            runs = {way: stack.enter_context(self._start(way)) for way in WAYS}
            os.sync()  # nobody waits for what the round before has saved
            turns = {way: run.take_slice for way, run in runs.items()}
            take_turns(turns, rounds=self.num_first)
            timings = take_turns(turns, rounds=self.num_slices - self.num_first)
            for way, run in runs.items():
                run.finish()
                self._note(way, run)
        return {way: sum(timing.seconds) for way, timing in timings.items()}

    def _start(self, way: str) -> PacedRun:
        words = ["train", self.model, "--data", str(self.data_dir), "--run", str(self.scratch / way), "--overwrite"]
        settings = (*SETTINGS, f"stop.max_steps={self.num_steps}", f"sharding.engine={WAYS[way].engine}")
        words += [word for setting in settings for word in ("--set", setting)]
        slice_steps, log_path = SLICE_STEPS[self.model], self.scratch / f"{way}.log"
        return PacedRun(words, procs=WAYS[way].procs, slice_steps=slice_steps, log_path=log_path)

    def _note(self, way: str, run: PacedRun) -> None:
        results: dict[str, Any] = json.loads((self.scratch / way / "results.json").read_text())
        self.shares[way] = {name: share for name, share in results.items() if name.endswith("_frac")}
        self.losses[way] += run.losses


def measure(bench: Bench, *, rounds: int) -> Report:
    """All ways, round by round."""
    report = Report("scale")
    timings = share_turns([bench.take_round], rounds=rounds)
    for way in WAYS:
        report.figures[f"{way} s"] = timings[way].median_s
        report.figures[f"{way} spread"] = timings[way].spread_frac
        for name, share in bench.shares[way].items():
            report.figures[f"{way} {name}"] = share
    for one, other in (("local", "torchrec"), ("local", "two")):
        difference = largest_difference(bench.losses[one], bench.losses[other])
        report.figures[f"largest loss difference {one}/{other}"] = difference
    report.ratios = {
        "two/torchrec": median_ratio(timings, "two", "torchrec"),
        "local/torchrec": median_ratio(timings, "local", "torchrec"),
    }
    slice_steps = SLICE_STEPS[bench.model]
    report.notes = {
        "model": bench.model,
        "steps": bench.num_steps,
        "timed steps": bench.num_steps - bench.num_first * slice_steps,
        "steps of a turn": slice_steps,
        "rounds": rounds,
    }
    return report


def largest_difference(some: Sequence[float], others: Sequence[float]) -> float:
    """Between the losses of the same step, as a share of the first."""
    return max(abs(one - other) / one for one, other in zip(some, others, strict=True))


def main(argv: Sequence[str]) -> int:
    """`recmill bench scale`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, rounds=3)
    parser.add_argument("--model", choices=tuple(SLICE_STEPS), default="small")
    parser.add_argument("--steps", type=int, default=200, help="steps of each run (200)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        data_dir = Path(scratch) / "data"
        num_rows = (args.steps + 20) * find_recipe(args.model)().data.global_batch * 2
        write_criteo(SynthSpec(rows=num_rows, days=2, seed=0, scale=0.02), data_dir)
        report = measure(Bench(args.model, data_dir, Path(scratch), args.steps), rounds=args.rounds)
    report.show(as_json=args.json)
    return 0
