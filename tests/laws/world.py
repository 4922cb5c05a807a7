"""Law *world*: any number of processes see the same global batches and come to the same losses and metrics."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recmill.training.loop.ledger import read_ledger
from tests.laws.compare import losses

# The first step of an Adagrad without accumulator is as large for a gradient of rounding errors as for any other.
CALM = ("tables.initial_accumulator=0.1", "dense.initial_accumulator=0.1")


def train_with(procs: int, words: Sequence[str], run_dir: Path, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Train in so many processes, one thread each; the results of the run."""
    done = try_with(procs, words, run_dir, settings)
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[str, Any] = json.loads((run_dir / "results.json").read_text())
    return results


def try_with(
    procs: int, words: Sequence[str], run_dir: Path, settings: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """The same of a run that may fail."""
    command = [sys.executable, "-m", "recmill", "train", *words, "--run", str(run_dir)]
    command += [word for setting in settings for word in ("--set", setting)]
    command += ["--procs", str(procs)] if procs > 1 else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def assert_same_world(one: Path, other: Path, *, relative: float = 1e-5) -> None:
    """The same rows in every step, bit for bit; losses, AUROC and ranks up to the order of sums."""
    assert read_ledger(one).tobytes() == read_ledger(other).tobytes()
    expected, actual = ([loss for _, loss in losses(run_dir)] for run_dir in (one, other))
    assert len(expected) == len(actual) > 0
    np.testing.assert_allclose(expected, actual, rtol=relative)
    results = [json.loads((run_dir / "results.json").read_text()) for run_dir in (one, other)]
    for split in ("validation", "test"):
        ours, theirs = (each[split] for each in results)
        if "auroc" in ours:
            assert abs(ours["auroc"] - theirs["auroc"]) <= 1e-6
            assert ours["num_rows"] == theirs["num_rows"]
            continue
        assert ours["num_users"] == theirs["num_users"]
        for name in (name for name in ours if "@" in name):  # two items that score alike may change places
            assert abs(ours[name] - theirs[name]) <= 1.5 / ours["num_users"], name
