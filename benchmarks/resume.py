"""A run killed at random moments against one that was left alone: what is lost, what is repeated, what differs.

Kills are `kill -9` of all processes at once or of a single one, between steps and while a state is being written. The
same command is started again each time. In every second start one process is stopped for some seconds (SIGSTOP) and
continued (SIGCONT) before that. Compared are the bytes of all weights and optimizer states, the metrics, the ledger of
trained rows, and how often each record of a step is in `metrics.jsonl`. With several numbers of processes
(`--procs 2,1,3`) each start has the next one; bits then differ as sums do, and losses are compared instead.
"""

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.laws.compare import compare
from tests.laws.kill import train_under_fire

from benchmarks.report import Report
from recmill.data.events.prepare import EventJob, prepare_events
from recmill.data.synthetic.chains import EVENTS_FILE, write_chains
from recmill.data.synthetic.clicks import write_criteo
from recmill.settings.events import EVENT_PRESETS
from recmill.settings.synthetic import ChainSpec, SynthSpec

CADENCE = (
    "cadence.log_every_steps=10",
    "cadence.save_every_steps=15",
    "cadence.evaluate_every_steps=90",
    "cadence.keep_ledger=true",
)
CLICKS = (
    f"data.table_rows={[200] * 26}",
    "data.global_batch=64",
    "data.num_lanes=8",
    "data.block_bytes=20000",
    "stop.max_epochs=3",
    "tables.initial_accumulator=0.1",  # from 0 a rounding error grows a thousandfold within a hundred steps
    "dense.initial_accumulator=0.1",
)
SEQUENCES = ("model.embedding_dim=16", "data.max_length=10", "data.global_batch=64", "stop.max_epochs=10")
# Of sequences: item vectors among the weights, as copies of the embedding engine's rows, and spread by TorchRec.
ENGINE = ("loss.kind=sampled", "loss.num_sampled=64", "tables.lr=0.01")
TIERED = ("store.kind=cached_ssd", "store.cache_memory=150000")
MODELS = {
    "click": ("demo", CLICKS),
    "tiered": ("demo", (*CLICKS, *TIERED)),
    "sasrec": ("sasrec", SEQUENCES),
    "bert4rec": ("bert4rec", (*SEQUENCES, *ENGINE, "tables.kind=adam")),
    "spread": ("sasrec", (*SEQUENCES, *ENGINE, "tables.kind=adagrad", "sharding.engine=torchrec")),
}


def make_words(model: str, num_rows: int, scratch: Path) -> list[str]:
    """Data for a model, and the command that trains it."""
    recipe, settings = MODELS[model]
    data_dir = scratch / "data"
    if recipe == "demo":
        write_criteo(SynthSpec(rows=num_rows, days=3, seed=0, scale=0.0001), data_dir)
    else:
        world_dir, preset = scratch / "world", EVENT_PRESETS["events"]
        write_chains(ChainSpec(users=num_rows // 10, items=300), world_dir)
        prepare_events(EventJob(world_dir / EVENTS_FILE, data_dir, preset.schemas, preset.rules, preset.name))
    return [recipe, "--data", str(data_dir), *(word for s in (*settings, *CADENCE) for word in ("--set", s))]


def main(argv: Sequence[str]) -> int:
    """`recmill bench resume`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench resume", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--kills", type=int, default=20, help="how often the run is killed (20)")
    parser.add_argument("--procs", default="1", help="processes of the run (1); of each start, if several numbers")
    parser.add_argument("--model", choices=list(MODELS), default="click", help="what is trained (click)")
    parser.add_argument("--rows", type=int, default=15_000, help="rows of the synthetic log, ten a user (15,000)")
    parser.add_argument("--stop-s", type=float, default=3.0, help="seconds for which a process is stopped (3); 0: none")
    parser.add_argument("--seed", type=int, default=0, help="of the kills (0)")
    args = parser.parse_args(argv)
    procs = [int(size) for size in args.procs.split(",")]
    report = Report("resume")
    with tempfile.TemporaryDirectory() as scratch:
        left_alone, under_fire = (Path(scratch) / name for name in ("left_alone", "under_fire"))
        words = make_words(args.model, args.rows, Path(scratch))
        train_under_fire(words, left_alone, num_kills=0, rng=random.Random(args.seed), procs=procs[:1])
        rng = random.Random(args.seed)
        fire = train_under_fire(words, under_fire, num_kills=args.kills, rng=rng, procs=procs, stop_s=args.stop_s)
        sorts = {"kills": fire.kills, **asdict(fire)}
        report.figures = {**{sort: float(count) for sort, count in sorts.items()}, **compare(left_alone, under_fire)}
    report.notes = {"model": args.model, "processes": args.procs, "asked for": args.kills, "seed": args.seed}
    report.show(as_json=args.json)
    figures = report.figures
    is_same = figures["bit_equal"] if len(set(procs)) == 1 else figures["loss_difference"] <= 1e-5
    is_exact = not any(figures[f"{what}_{how}"] for what in ("rows", "records") for how in ("lost", "repeated"))
    return 0 if is_same and is_exact and fire.kills >= args.kills else 1
