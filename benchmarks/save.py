"""What saving costs: steps of the `small` recipe in turns with and without a state being saved meanwhile.

A turn is as many steps as lie between two saves. In a turn that saves, the state is copied before its first step and
written, with its checksums and onto the disk, while the steps are taken.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Report, add_common_options, median_ratio, take_turns
from benchmarks.train import build_config
from recmill.data.synthetic.clicks import write_criteo
from recmill.settings.synthetic import SynthSpec
from recmill.training.checkpoint.saver import Saver
from recmill.training.click.assemble import assemble
from recmill.training.click.inputs import Inputs
from recmill.training.click.step import take_step
from recmill.training.progress import Progress
from recmill.world import Group


def measure(scratch: Path, *, every_steps: int, rounds: int) -> Report:
    """Both ways, turn by turn."""
    data_dir = scratch / "data"
    write_criteo(SynthSpec(rows=100_000, days=2, seed=0, scale=0.02), data_dir)
    config = build_config("small", "dlrm", data_dir, "adagrad")
    with Inputs(config) as inputs, inputs.open_training(None) as stream:
        batches = itertools.cycle(list(itertools.islice(stream, 16)))
    parts = assemble(config)
    numbers, copies = itertools.count(1), list[float]()
    with Saver(scratch, Group(), keep=1, score_name="auroc", tell=print) as saver:

        def steps() -> None:
            for step in range(every_steps):
                take_step(parts, next(batches), step)

        def plain() -> float:
            began = time.perf_counter()
            steps()
            return time.perf_counter() - began

        def saving() -> float:
            began = time.perf_counter()
            saver.save(parts, Progress(step=next(numbers)))
            copies.append(time.perf_counter() - began)
            steps()
            if complaint := saver.wait():
                raise RuntimeError(complaint)
            return time.perf_counter() - began

        steps()
        timings = take_turns({"saving": saving, "plain": plain}, rounds=rounds)
    report = Report("save")
    for name, timing in timings.items():
        report.figures[f"{name} samples/s"] = every_steps * config.data.global_batch / timing.median_s
        report.figures[f"{name} spread"] = timing.spread_frac
    report.figures["stall s"] = sorted(copies)[len(copies) // 2]
    report.figures["bytes saved"] = float(sum(path.stat().st_size for path in scratch.rglob("*.safetensors")))
    report.ratios["saving/plain"] = median_ratio(timings, "saving", "plain")
    report.notes = {"table rows": sum(config.data.num_table_rows), "every steps": every_steps, "rounds": rounds}
    return report


def main(argv: Sequence[str]) -> int:
    """`recmill bench save`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench save", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, rounds=7)
    parser.add_argument("--every-steps", type=int, default=200, help="steps from one save to the next (200)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        report = measure(Path(scratch), every_steps=args.every_steps, rounds=args.rounds)
    report.show(as_json=args.json)
    return 0
