"""What checks of the data cost, in training and until the first step.

Training: batches of `small` with `data.verify = once`, when the checksums of the files are remembered, and with
`never`, from prepared npy rows and from raw text. Both open their inputs anew in every turn and take their steps in
turn with each other, on one model. Raw text has no checksums: only its files are identified.

Opening: seconds until the first batch with `always` (all files are hashed, from the page cache), with `once` when they
are remembered, and with `never`; the first difference is told per GiB of prepared files.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from benchmarks.report import Report, Timing, add_common_options, median_ratio, share_turns, take_turns
from benchmarks.train import WARM_STEPS, build_config
from recmill.data.logs.opening import open_splits
from recmill.data.prepared.prepare import PrepareJob, prepare
from recmill.data.synthetic.clicks import write_criteo
from recmill.files import read_listing
from recmill.recipes.resolve import config as config_of
from recmill.settings.clicks import TrainConfig
from recmill.settings.synthetic import SynthSpec
from recmill.training.click.assemble import assemble
from recmill.training.click.inputs import Inputs
from recmill.training.click.step import ClickState, take_step

CHECKED, UNCHECKED = "once", "never"
SETTLED_S = 2.5  # a file that has just been written is not remembered


def time_training(state: ClickState, configs: dict[str, TrainConfig], num_steps: int) -> dict[str, float]:
    """Seconds of so many steps by each of the settings, which take them in turn."""
    taken = dict.fromkeys(configs, 0.0)
    with ExitStack() as stack:
        streams = {}
        for name, config in configs.items():
            inputs = stack.enter_context(Inputs(config))
            streams[name] = stack.enter_context(inputs.open_training(None))
        for step in range(WARM_STEPS + num_steps):
            for name in list(configs)[:: 1 if step % 2 == 0 else -1]:
                began = time.perf_counter()
                take_step(state, next(streams[name]), step)
                taken[name] += (time.perf_counter() - began) if step >= WARM_STEPS else 0.0
    return taken


def time_opening(config: TrainConfig) -> float:
    """Seconds from closed files to the first batch."""
    began = time.perf_counter()
    with Inputs(config) as inputs, inputs.open_training(None) as stream:
        next(stream)
        return time.perf_counter() - began


def measure(raw: TrainConfig, prepared: TrainConfig, *, num_steps: int, rounds: int) -> Report:
    """Training with and without checks from both kinds of rows; then opening in three ways."""
    report = Report("checks")
    batch = raw.data.global_batch
    for kind, config in (("npy", prepared), ("raw", raw)):
        state = assemble(config)
        ways = {f"{kind} {verify}": verified(config, verify) for verify in (CHECKED, UNCHECKED)}
        time_opening(ways[f"{kind} {CHECKED}"])  # from here on the checksums are remembered
        turn = partial(time_training, state, ways, num_steps)
        timings = share_turns([turn], rounds=rounds)
        for name, timing in timings.items():
            report.figures[f"{name} samples/s"] = num_steps * batch / timing.median_s
            report.figures[f"{name} spread"] = timing.spread_frac
        report.ratios[f"{kind} checked/unchecked"] = median_ratio(timings, f"{kind} {CHECKED}", f"{kind} {UNCHECKED}")
    gib = sum(stated["bytes"] for stated in read_listing(Path(prepared.data.dir))["files"].values()) / 2**30
    turns: dict[str, Callable[[], float]] = {
        verify: partial(time_opening, verified(prepared, verify)) for verify in ("always", CHECKED, UNCHECKED)
    }
    openings = take_turns(turns, rounds=rounds)
    for verify, timing in openings.items():
        report.figures[f"first batch with {verify} s"] = timing.median_s
    report.figures["first step later, first time, s/GiB"] = _later(openings, "always") / gib
    report.figures["first step later, afterwards, s"] = _later(openings, CHECKED)
    report.notes = {"prepared GiB": round(gib, 4), "batch": batch, "steps": num_steps, "rounds": rounds}
    return report


def _later(openings: dict[str, Timing], verify: str) -> float:
    """By how much the first batch comes later: the median over the rounds of each round's own difference."""
    pairs = zip(openings[verify].seconds, openings[UNCHECKED].seconds, strict=True)
    differences = sorted(checked - unchecked for checked, unchecked in pairs)
    return differences[len(differences) // 2]


def verified(config: TrainConfig, verify: str) -> TrainConfig:
    """The settings with another kind of checks."""
    return config.with_({"data.verify": verify})


def build_configs(scratch: Path, num_rows: int) -> tuple[TrainConfig, TrainConfig]:
    """`small` on synthetic raw text, and on the same rows prepared."""
    raw_dir, rows_dir = scratch / "raw", scratch / "rows"
    write_criteo(SynthSpec(rows=num_rows, days=2, seed=0, scale=0.02), raw_dir)
    raw = build_config("small", "dlrm", raw_dir, "adagrad")
    with closing(open_splits(raw.data)) as splits:
        prepare(PrepareJob(splits, raw.data.schema_of_rows, rows_dir))
    prepared = config_of(raw, data=rows_dir)
    assert isinstance(prepared, TrainConfig)
    return raw, prepared


def main(argv: Sequence[str]) -> int:
    """`recmill bench checks`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench checks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, rounds=9)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the synthetic log (1,000,000)")
    parser.add_argument("--steps", type=int, default=50, help="steps of a turn (50)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = str(Path(scratch) / "cache")  # what is remembered is this benchmark's own
        raw, prepared = build_configs(Path(scratch), args.rows)
        os.sync()
        time.sleep(SETTLED_S)
        measure(raw, prepared, num_steps=args.steps, rounds=args.rounds).show(as_json=args.json)
    return 0
