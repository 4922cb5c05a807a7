import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from recmill.training.job import run_job
from tests.laws.compare import compare, losses
from tests.laws.kill import model_bytes, train_under_fire, workers_of
from tests.laws.world import CALM

WITH_STATE = ("model.kind=dnn", "model.dropout=0.2", "model.batch_norm=true")


@pytest.mark.parametrize("model", [(), pytest.param(WITH_STATE, marks=pytest.mark.slow)], ids=["dlrm", "dnn"])
def test_a_run_killed_three_times_ends_with_the_same_bytes(
    model: tuple[str, ...], tiny_world_dir: Path, tmp_path: Path
) -> None:
    words = ["demo", "--data", str(tiny_world_dir)]
    for assignment in (
        *model,
        "threads=1",  # two that wait for each other crawl where other work shares the cores
        f"data.table_rows={[50] * 26}",
        "data.global_batch=50",
        "stop.max_epochs=6",
        "cadence.log_every_steps=20",
        "cadence.save_every_steps=30",
    ):
        words += ["--set", assignment]
    left_alone, under_fire = tmp_path / "left_alone", tmp_path / "under_fire"
    assert train_under_fire(words, left_alone, num_kills=0, rng=random.Random(0)).kills == 0
    assert train_under_fire(words, under_fire, num_kills=3, rng=random.Random(1)).kills == 3
    assert model_bytes(left_alone) == model_bytes(under_fire)
    expected, actual = (json.loads((run / "results.json").read_text()) for run in (left_alone, under_fire))
    for name in ("step", "epoch", "rows", "validation", "test"):
        assert actual[name] == expected[name]
    assert losses(under_fire) == losses(left_alone), "in every record, those after a kill included"
    steps = [json.loads(line)["step"] for line in (under_fire / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps), "records of the steps that were lost must be gone"


def _words(data_dir: Path, *more: str) -> list[str]:
    settings = (f"data.table_rows={[50] * 26}", "data.global_batch=50", "cadence.keep_ledger=true", *more, *CALM)
    cadence = ("cadence.log_every_steps=10", "cadence.save_every_steps=20")
    return ["demo", "--data", str(data_dir), *(word for s in (*settings, *cadence) for word in ("--set", s))]


@pytest.mark.slow
def test_every_start_may_have_another_number_of_processes(tiny_world_dir: Path, tmp_path: Path) -> None:
    words = _words(tiny_world_dir, "stop.max_epochs=4", "data.num_lanes=6")
    train_under_fire(words, tmp_path / "alone", num_kills=0, rng=random.Random(0))
    assert train_under_fire(words, tmp_path / "fire", num_kills=4, rng=random.Random(3), procs=(2, 1, 3)).kills == 4
    found = compare(tmp_path / "alone", tmp_path / "fire")
    assert (found["rows_lost"], found["rows_repeated"]) == (0, 0)
    assert found["rows"] == 8000, "every row of two days once in each epoch"
    assert found["loss_difference"] < 1e-5


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_nothing_is_lost(tiny_world_dir: Path, tmp_path: Path) -> None:
    words = _words(tiny_world_dir, "stop.max_epochs=6")
    train_under_fire(words, tmp_path / "alone", num_kills=0, rng=random.Random(0), procs=(2,))
    killed = train_under_fire(words, tmp_path / "fire", num_kills=1, rng=random.Random(4), procs=(2,), max_restarts=2)
    assert (killed.killed_one, killed.killed_all) == (1, 0)
    assert compare(tmp_path / "alone", tmp_path / "fire")["bit_equal"]


@pytest.mark.slow
def test_a_run_of_two_processes_under_all_sorts_of_fire(tiny_world_dir: Path, tmp_path: Path) -> None:
    """All killed, one killed, one stopped for a while: the same bytes, and every record once."""
    words = _words(tiny_world_dir, "stop.max_epochs=8")
    train_under_fire(words, tmp_path / "alone", num_kills=0, rng=random.Random(0), procs=(2,))
    rng = random.Random(5)
    fire = train_under_fire(words, tmp_path / "fire", num_kills=4, rng=rng, procs=(2,), stop_s=2.0)
    assert fire.killed_all
    assert fire.killed_one
    assert fire.stopped
    found = compare(tmp_path / "alone", tmp_path / "fire")
    assert found["bit_equal"]
    assert not any(found[f"{what}_{how}"] for what in ("rows", "records") for how in ("lost", "repeated"))


@pytest.mark.slow
def test_a_process_that_is_stopped_for_longer_than_the_time_out_ends_the_run(
    tiny_world_dir: Path, tmp_path: Path
) -> None:
    """With one message, and long before torchrun's agent would kill what does not end."""
    words = _words(tiny_world_dir, "stop.max_epochs=400", "world.timeout_s=8")
    command = [sys.executable, "-m", "recmill", "train", *words, "--run", str(tmp_path / "run"), "--procs", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("step "))
        workers_of(process)[1].suspend()
        began = time.monotonic()
        said = [line for line in process.stderr if line.startswith("recmill: ") and "warning" not in line]
        assert process.wait() == 1
    assert len(said) == 1
    assert "has lost rank 1 (process " in said[0]
    assert "no answer for 8 s (world.timeout_s)" in said[0]
    assert time.monotonic() - began < 60


@pytest.mark.slow
def test_a_run_killed_on_its_way_to_the_same_verdict(tiny_world_dir: Path, tmp_path: Path) -> None:
    """Adam's count, the best evaluation, the patience spent and the kept weights survive kills at random moments."""
    words = ["demo", "--data", str(tiny_world_dir)]
    for assignment in (
        f"data.table_rows={[50] * 26}",
        "data.global_batch=50",
        "stop.max_epochs=8",
        "stop.patience=5",
        "tables.kind=adam",
        "tables.lr=0.002",
        "dense.kind=adamw",
        "dense.lr=0.002",
        "update.micro_batches=2",
        "cadence.evaluate_every_epochs=0.25",
        "cadence.log_every_steps=20",
        "cadence.save_every_steps=35",
    ):
        words += ["--set", assignment]
    results: list[dict[str, Any]] = []
    for name, num_kills in (("left_alone", 0), ("under_fire", 2)):
        killed = train_under_fire(words, tmp_path / name, num_kills=num_kills, rng=random.Random(2))
        assert killed.kills == num_kills
        results.append(json.loads((tmp_path / name / "results.json").read_text()))
    for key in ("step", "rows", "best", "ended_by", "validation", "test"):
        assert results[0][key] == results[1][key], key
    assert results[0]["ended_by"] == "patience"
    assert model_bytes(tmp_path / "left_alone") == model_bytes(tmp_path / "under_fire")
    best = results[0]["best"]["model"]
    assert best.startswith("best/")
    for file in ("dense.safetensors", "tables.safetensors"):
        assert (tmp_path / "left_alone" / best / file).read_bytes() == (
            tmp_path / "under_fire" / best / file
        ).read_bytes()


def test_left_over_scratch_directories_do_not_matter(tiny_world_dir: Path, tmp_path: Path) -> None:
    """A kill in the middle of a save leaves a hidden directory; resuming ignores it."""
    from recmill.recipes import find_recipe
    from recmill.settings.clicks import TrainConfig
    from recmill.settings.tree import from_tree, laid_over, parse_assignments

    tree = find_recipe("demo")().model_dump(mode="json", exclude_none=True)
    words = [f"data.dir={str(tiny_world_dir)!r}", f"data.table_rows={[50] * 26}", "stop.max_steps=2"]
    config = from_tree(TrainConfig, laid_over(tree, parse_assignments(words)))
    run_job(config, tmp_path / "run")
    torn = tmp_path / "run" / "checkpoints" / ".step_0000000009.4711"
    torn.mkdir()
    (torn / "dense.safetensors").write_bytes(b"half")
    assert run_job(config, tmp_path / "run", resume=True)["step"] == 2
