"""Short runs of every recipe family, hashed: proof that a refactor changed no weight, no optimizer state, no metric.

    recmill bench same-bytes --out before.json          # at the commit before
    recmill bench same-bytes --compare before.json      # at the commit after, on the same machine

Each run is `python -m recmill train …`; half of them are stopped in the middle and resumed. `--source DIR` runs another
checkout in place of this one, with the packages of this environment.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from benchmarks.report import Report

CHECKOUT = Path(__file__).resolve().parents[1]
# What a metrics record measures with a clock.
_MEASURED = ("time", "rows_per_s", "blocked_frac", "train_s", "reading_frac", "waiting_frac", "exchange_frac")
_OFTEN = ("cadence.log_every_steps=10", "cadence.save_every_steps=20", "cadence.evaluate_every_steps=30")
_SMALL_CLICKS = ("data.global_batch=128", "data.num_lanes=8", "data.block_bytes=20000", "data.max_rows_per_table=500")
_TABLES = f"data.table_rows={[300] * 26}"
_SMALL_SEQUENCES = ("model.embedding_dim=16", "data.max_length=12", "data.global_batch=64", "stop.max_epochs=4")
_ENGINE = ("loss.kind=sampled", "loss.num_sampled=32", "tables.lr=0.01")

_NO_AVERAGE = ("average.from_step=0", "average.every_steps=1", "average.recent_frac=1.0")


@dataclass(frozen=True)
class Case:
    """One run: its recipe, the data it takes, its settings, and how it is started."""

    recipe: str
    data: str
    settings: tuple[str, ...] = ()
    procs: int = 1
    stop_at: int = 0  # steps after which the run is stopped and resumed; 0: it is left alone


CASES = {
    "demo": Case("demo", "raw", (_TABLES, *_SMALL_CLICKS), stop_at=50),
    "demo on two processes": Case("demo", "raw", (_TABLES, *_SMALL_CLICKS), procs=2, stop_at=50),
    "mlperf-dcnv2": Case(
        "mlperf-dcnv2",
        "raw",
        (
            *_SMALL_CLICKS,
            "model.embedding_dim=8",
            "model.bottom=[16,8]",
            "model.top=[16,1]",
            "model.cross_rank=4",
            "cadence.evaluate_every_epochs=0",
            "data.eval_batch=1024",
            "stop.max_steps=80",
        ),
    ),
    "oneflow": Case(
        "oneflow",
        "raw",
        (
            *_SMALL_CLICKS,
            "model.embedding_dim=8",
            "model.bottom=[16,8]",
            "model.top=[16,1]",
            "tables.lr=0.1",
            "dense.lr=0.1",
            "data.eval_batch=1024",
            "stop.max_steps=80",
        ),
        stop_at=30,
    ),
    "criteo-small": Case(
        "criteo-small",
        "rows",
        ("data.num_lanes=8", "data.block_rows=64", "average.from_step=60", "stop.max_epochs=1"),
        stop_at=70,
    ),
    "finalmlp, micro-batches, bf16": Case(
        "small",
        "rows",
        (
            *_SMALL_CLICKS[:2],
            "data.block_rows=64",
            "model.kind=finalmlp",
            "model.embedding_dim=8",
            "update.micro_batches=2",
            "precision.kind=bf16",
            "tables.kind=adagrad",
        ),
    ),
    "projection, ftrl": Case(
        "small",
        "raw",
        (
            _TABLES,
            *_SMALL_CLICKS,
            "model.kind=projection",
            "model.embedding_dim=16",
            "tables.kind=ftrl",
            "tables.lr=0.05",
            "dense.kind=adamw",
            "dense.lr=0.001",
        ),
    ),
    "dcn by rows on two processes": Case(
        "ray",
        "raw",
        (
            _TABLES,
            *_SMALL_CLICKS,
            "model.embedding_dim=8",
            "model.bottom=[16,8]",
            "model.top=[16,1]",
            "model.cross_rank=4",
            "sharding.kind=row_wise",
            "stop.max_steps=60",
            "data.eval_batch=1024",
        ),
        procs=2,
    ),
    "sasrec": Case("sasrec", "sequences", _SMALL_SEQUENCES, stop_at=30),
    "bert4rec": Case("bert4rec", "sequences", (*_SMALL_SEQUENCES, "average.from_step=10"), stop_at=30),
    "bert4rec on two processes": Case(
        "bert4rec",
        "sequences",
        (*_SMALL_SEQUENCES, *_ENGINE, *_NO_AVERAGE, "tables.kind=adagrad", "sharding.engine=torchrec"),
        procs=2,
    ),
    "goodreads": Case(
        "goodreads",
        "sequences",
        (*_SMALL_SEQUENCES, "loss.num_sampled=32", "data.max_validation_users=50", "data.max_test_users=50"),
    ),
}


def run_recmill(source: Path, *words: str) -> None:
    """One command of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "recmill", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")


def make_data(source: Path, scratch: Path) -> dict[str, Path]:
    """A click log, the same prepared, and prepared sequences."""
    raw, rows, world, sequences = (scratch / name for name in ("raw", "rows", "world", "sequences"))
    run_recmill(source, *["synth", "criteo", "--rows", "20000", "--days", "3", "--scale", "0.0001", "--out"], str(raw))
    run_recmill(source, "prepare", "--data", str(raw), "--out", str(rows), "--seed", "0")
    run_recmill(source, *["synth", "interactions", "--users", "600", "--items", "120", "--out"], str(world))
    events = str(world / "interactions.csv")
    run_recmill(source, "prepare", "--preset", "events", "--data", events, "--out", str(sequences))
    return {"raw": raw, "rows": rows, "sequences": sequences}


def train(source: Path, case: Case, data_dir: Path, run_dir: Path) -> None:
    """The run of a case, in one piece or in two."""
    assignments = (*_OFTEN, *case.settings)
    words = [word for assignment in assignments for word in ("--set", assignment)]
    procs = ["--procs", str(case.procs)] if case.procs > 1 else []
    common = ["--run", str(run_dir), *procs]
    first = ["--set", f"stop.max_steps={case.stop_at}"] if case.stop_at else []
    run_recmill(source, "train", case.recipe, "--data", str(data_dir), *words, *first, *common)
    if case.stop_at:
        last = next((s for s in assignments if s.startswith("stop.max_steps")), "stop.max_steps=0")
        run_recmill(source, "train", "--resume", "--set", last, *common)


def hash_tensors(paths: Sequence[Path]) -> str:
    """Of all tensors of some files: names, shapes and bytes."""
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda path: path.name):
        for name, values in sorted(load_file(path).items()):
            digest.update(f"{path.name}/{name} {values.dtype} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def read_metrics(run_dir: Path) -> list[Any]:
    """All that a run has told, without what a clock has measured."""
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [{key: _by_present_names(v) for key, v in record.items() if key not in _MEASURED} for record in records]


def _by_present_names(value: Any) -> Any:
    """A protocol as it is written now; older checkouts call `filter_seen` `seen`."""
    if isinstance(value, dict) and "seen" in value:
        rest = {key: below for key, below in value.items() if key != "seen"}
        return {**rest, "filter_seen": value["seen"] == "removed"}
    return value


def hash_run(run_dir: Path) -> dict[str, str]:
    """Final weights, the state of the last checkpoint, and all metrics."""
    last = max((run_dir / "checkpoints").glob("step_*"))
    metrics = json.dumps(read_metrics(run_dir), sort_keys=True)
    return {
        "weights": hash_tensors(list((run_dir / "model").glob("*.safetensors"))),
        "state": hash_tensors(list(last.glob("*.safetensors"))),
        "metrics": hashlib.sha256(metrics.encode()).hexdigest(),
    }


def main(argv: Sequence[str]) -> int:
    """`recmill bench same-bytes`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench same-bytes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, default=CHECKOUT, metavar="DIR", help="the checkout to run (this one)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the hashes")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with hashes that --out wrote")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep data and runs in this new directory")
    parser.add_argument("--only", metavar="NAME", help="one case")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(argv)
    hashes: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        scratch = args.keep or Path(temporary)
        scratch.mkdir(exist_ok=True)
        data = make_data(args.source, scratch)
        for name, case in CASES.items():
            if args.only in (None, name):
                run_dir = scratch / f"run {name}"
                train(args.source, case, data[case.data], run_dir)
                hashes[name] = hash_run(run_dir)
    if args.out:
        args.out.write_text(json.dumps(hashes, indent=1))
    before = json.loads(args.compare.read_text()) if args.compare else hashes
    differing = [
        f"{name}: {part}" for name in hashes for part in hashes[name] if hashes[name][part] != before[name][part]
    ]
    report = Report("same-bytes", {"runs": float(len(hashes)), "differing": float(len(differing))})
    report.notes = {"differing": differing} if args.compare else {"written": str(args.out)}
    report.show(as_json=args.json)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
