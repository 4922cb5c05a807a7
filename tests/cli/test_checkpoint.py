"""`recmill checkpoint` and `--warm-start` as a person meets them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.command import CHECKPOINT_ACTIONS, TINY, Command


@pytest.fixture(scope="module")
def tiny_run(tiny_world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with two checkpoints, which all tests of the module read."""
    from recmill.cli.main import main

    run_dir = tmp_path_factory.mktemp("checkpoint") / "run"
    words = ["train", "demo", "--data", str(tiny_world_dir), "--run", str(run_dir), *TINY]
    assert main([*words, "--set", "stop.max_steps=4", "--set", "cadence.save_every_steps=2"]) == 0
    return run_dir


@pytest.fixture
def own_run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy of the run, for a test that changes it or tries to."""
    return Path(shutil.copytree(tiny_run, tmp_path / "own_run"))


def test_what_a_run_has_saved_is_listed_and_verified(tiny_run: Path, recmill: Command) -> None:
    listed = recmill("checkpoint", "ls", tiny_run)
    assert listed.status == 0, listed.err
    for word in ("checkpoints/step_0000000002", "checkpoints/step_0000000004", "model", "400", "intact"):
        assert word in listed.out
    saved = json.loads(recmill("checkpoint", "ls", tiny_run, "--json").out)["saved"]
    assert [(each["kind"], each["step"]) for each in saved] == [("checkpoint", 2), ("checkpoint", 4), ("model", 4)]
    verified = recmill("checkpoint", "verify", tiny_run)
    assert (verified.status, verified.out.count(": intact")) == (0, 3)
    assert recmill("checkpoint", "verify", tiny_run / "model").status == 0


def test_a_damaged_file_is_named(own_run: Path, recmill: Command) -> None:
    file = own_run / "checkpoints" / "step_0000000002" / "optimizer.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    damaged = recmill("checkpoint", "verify", own_run)
    assert damaged.status == 2
    assert f"{file} is not the file that manifest.json lists" in damaged.out
    assert json.loads(recmill("checkpoint", "verify", file.parent, "--json").out)["intact"] is False


def test_a_state_is_shown_compared_and_laid_out_anew(tiny_run: Path, recmill: Command, tmp_path: Path) -> None:
    shown = recmill("checkpoint", "show", tiny_run)
    assert shown.status == 0, shown.err
    for word in ("checkpoint after step 4", "num_rows 400", "tables.kind", "cat_25", "50 × 16", "table_state"):
        assert word in shown.out
    assert "table_state" not in recmill("checkpoint", "show", tiny_run, "--what", "weights").out
    assert json.loads(recmill("checkpoint", "show", tiny_run / "model", "--json").out)["kind"] == "model"
    resharded = recmill("checkpoint", "reshard", tiny_run, "--out", tmp_path / "three", "--pieces", 3)
    assert resharded.status == 0, resharded.err
    assert "tables in 1 file before, 3 now" in resharded.out
    same = recmill("checkpoint", "diff", tiny_run, tmp_path / "three")
    assert same.status == 0
    assert "are the same bytes, and nothing else differs" in same.out
    other = recmill("checkpoint", "diff", tiny_run / "checkpoints" / "step_0000000002", tmp_path / "three")
    assert other.status == 1
    for word in ("table: cat_0", "progress.step: 2 in A, 4 in B", "of 82 tensors that both have"):
        assert word in other.out
    assert json.loads(recmill("checkpoint", "diff", tiny_run, tiny_run, "--json").out)["equal"] is True
    assert recmill("checkpoint", "diff", tiny_run, tiny_run / "model", "--what", "weights").status == 0
    assert recmill("checkpoint", "reshard", tiny_run, "--out", tmp_path / "three", "--pieces", 2).status == 2


def test_exported_weights_are_judged_as_the_runs_own(tiny_run: Path, recmill: Command, tmp_path: Path) -> None:
    results = json.loads((tiny_run / "results.json").read_text())
    assert recmill("checkpoint", "export", tiny_run, "--out", tmp_path / "model").status == 0
    for path in (tiny_run / "model").iterdir():
        if path.name != "manifest.json":
            assert (tmp_path / "model" / path.name).read_bytes() == path.read_bytes()
    judged = recmill("evaluate", tiny_run, "--model", tmp_path / "model", "--json")
    assert json.loads(judged.out) == {"split": "test", "weights": str(tmp_path / "model"), **results["test"]}
    older = recmill("evaluate", tiny_run, "--model", tiny_run / "checkpoints" / "step_0000000002", "--json")
    assert json.loads(older.out)["auroc"] != results["test"]["auroc"]


def test_a_table_is_extracted_with_what_its_ids_mean(
    tiny_run: Path, tiny_world_dir: Path, recmill: Command, tmp_path: Path
) -> None:
    told = recmill("checkpoint", "extract", tiny_run, "cat_3", "--out", tmp_path / "x.npy")
    assert told.status == 0, told.err
    assert "50 rows of 16 numbers" in told.out
    assert "row i is id i; ids were made by modulo, from which values cannot be recovered" in told.out
    assert np.load(tmp_path / "x.npy").shape == (50, 16)
    assert "did you mean cat_3?" in recmill("checkpoint", "extract", tiny_run, "cat3", "--out", tmp_path / "y.npy").err
    assert recmill("prepare", "--data", tiny_world_dir, "--out", tmp_path / "rows").status == 0
    words = ("--run", tmp_path / "prepared", "--set", "stop.max_steps=1")
    assert recmill("train", "demo", "--data", tmp_path / "rows", *words).status == 0
    told = recmill("checkpoint", "extract", tmp_path / "prepared" / "model", "cat_3", "--out", tmp_path / "z.npy")
    assert f"what ids stand for is in {tmp_path / 'z.ids.parquet'}" in told.out
    ids = pq.read_table(tmp_path / "z.ids.parquet").to_pydict()
    assert ids["id"] == list(range(len(np.load(tmp_path / "z.npy"))))
    assert ids["meaning"][:3] == ["missing", "unknown", "value"]
    text = "".join((tiny_world_dir / f"day_{day}").read_text() for day in range(3))
    column = {line.split("\t")[14 + 3] for line in text.splitlines()}
    assert set(ids["value"][2:]) <= column
    assert len(set(ids["value"][2:])) == len(ids["id"]) - 2


def test_a_run_starts_warm_by_an_option(tiny_run: Path, tiny_world_dir: Path, recmill: Command, tmp_path: Path) -> None:
    grown = ("--set", "data.table_rows=" + str([80] + [50] * 25), "--set", "data.global_batch=100")
    words = ("train", "demo", "--data", tiny_world_dir, "--run", tmp_path / "warm", *grown)
    done = recmill(*words, "--warm-start", tiny_run, "--set", "stop.max_steps=2")
    assert done.status == 0, done.err
    newest = tiny_run / "checkpoints" / "step_0000000004"
    assert f"warm start: 1,300 rows of 26 tables from {newest.resolve()} (step 4)" in done.err
    assert "tables that have grown, their other rows new: cat_0 (50 to 80 rows)" in done.err
    assert f'from_dir = "{newest.resolve()}"' in (tmp_path / "warm" / "config.toml").read_text()
    again = recmill("train", "--run", tmp_path / "warm", "--resume", "--set", "stop.max_steps=4")
    assert again.status == 0, again.err
    assert "warm start: " not in again.err
    other = recmill("train", "--run", tmp_path / "warm", "--resume", "--warm-start", tiny_run / "model")
    assert "warm_start.from_dir was" in other.err
    shrunk = ("--set", "data.table_rows=" + str([40] + [50] * 25), "--set", "data.global_batch=100")
    words = ("train", "demo", "--data", tiny_world_dir, "--run", tmp_path / "shrunk", *shrunk)
    refused = recmill(*words, "--warm-start", tiny_run)
    assert refused.status == 2
    assert "table cat_0 has 50 rows in" in refused.err
    assert not (tmp_path / "shrunk").exists(), "a mistake leaves no run directory behind"
    assert "--warm-start" in recmill("train", "--help").out


def test_a_run_cannot_start_warm_from_what_it_overwrites(own_run: Path, tiny_world_dir: Path, recmill: Command) -> None:
    words = ("train", "demo", "--data", tiny_world_dir, "--run", own_run, "--overwrite", *TINY)
    assert "which the run is to write; choose another" in recmill(*words, "--warm-start", own_run).err
    assert (own_run / "checkpoints" / "step_0000000004").is_dir()


@pytest.mark.parametrize("action", CHECKPOINT_ACTIONS)
def test_every_action_explains_itself(action: str, recmill: Command) -> None:
    outcome = recmill("checkpoint", action, "--help")
    assert outcome.status == 0
    assert outcome.out.startswith(f"usage: recmill checkpoint {action}")
