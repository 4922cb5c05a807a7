"""Two runs of the same command compared: bytes, results, losses and the rows they trained on."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from recmill.embeddings.piece import What
from recmill.training.checkpoint.saved_rows import has_stored_rows
from recmill.training.checkpoint.saved_tables import SavedTables
from recmill.training.loop.ledger import read_ledger


def state_bytes(run_dir: Path) -> dict[str, bytes]:
    """All tensors of the final model and of the last checkpoint, which holds the optimizers' states too."""
    last = max((run_dir / "checkpoints").glob("step_*"))
    found = dict[str, bytes]()
    for directory in (run_dir / "model", last):
        for path in sorted(directory.glob("*.safetensors")):
            found[str(path.relative_to(run_dir))] = path.read_bytes()
        if has_stored_rows(directory):
            found |= _bytes_of_rows(directory, str(directory.relative_to(run_dir)))
    return found


def _bytes_of_rows(directory: Path, name: str) -> dict[str, bytes]:
    """Of tables in files of rows, which may lie in them in any order."""
    whats: tuple[What, ...] = ("weights", "state")
    found = dict[str, bytes]()
    for what in whats:
        with SavedTables(directory, what) as saved:
            for table in saved.names:
                rows = saved.read_rows(table)
                found[f"{name}/{what}/{table}"] = b"".join(portion.numpy().tobytes() for portion in rows)
    return found


def results_without_times(run_dir: Path) -> dict[str, Any]:
    """How far a run came, and its metrics."""
    results = json.loads((run_dir / "results.json").read_text())
    return {name: results[name] for name in ("step", "epoch", "rows", "best", "validation", "test")}


def losses(run_dir: Path) -> list[tuple[int, float]]:
    """The step and the mean loss of every training record, in the order of the file."""
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [(record["step"], record["loss"]) for record in records if record["kind"] == "train"]


def record_keys(run_dir: Path) -> Counter[tuple[Any, ...]]:
    """How often each kind of record of a step and a split is in the file."""
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return Counter((record["kind"], record["step"], record.get("split")) for record in records)


def loss_difference(left_alone: Path, under_fire: Path) -> float:
    """The largest relative one; infinite if the runs have not recorded the same steps."""
    expected, actual = dict(losses(left_alone)), dict(losses(under_fire))
    if expected.keys() != actual.keys():
        return math.inf
    return max(abs(actual[step] - loss) / loss for step, loss in expected.items())


def compare(left_alone: Path, under_fire: Path) -> dict[str, float]:
    """The figures of two runs of the same command."""
    expected, actual = (Counter(read_ledger(run_dir)["row"].tolist()) for run_dir in (left_alone, under_fire))
    records = record_keys(under_fire)
    is_equal = (
        state_bytes(left_alone) == state_bytes(under_fire)
        and results_without_times(left_alone) == results_without_times(under_fire)
        and losses(left_alone) == losses(under_fire)
        and read_ledger(left_alone).tobytes() == read_ledger(under_fire).tobytes()
    )
    return {
        "bit_equal": float(is_equal),
        "loss_difference": loss_difference(left_alone, under_fire),
        "rows": float(expected.total()),
        "rows_lost": float((expected - actual).total()),
        "rows_repeated": float((actual - expected).total()),
        "records": float(records.total()),
        "records_lost": float(len(record_keys(left_alone).keys() - records.keys())),
        "records_repeated": float(records.total() - len(records)),
    }
