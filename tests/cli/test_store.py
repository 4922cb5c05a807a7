"""`recmill store` as a person meets it."""

import json
from pathlib import Path

import pytest

from tests.cli.command import VERBS, Command
from tests.laws.tiered_runs import TIERED, checkpoint_of, flip_byte, train


@pytest.fixture(scope="module")
def run_dir(tiny_world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny_world_dir, tmp_path_factory.mktemp("store") / "run", *TIERED)


def test_a_store_is_described_and_verified(run_dir: Path, recmill: Command) -> None:
    told = recmill("store", "info", run_dir)
    assert told.status == 0, told.err
    for word in ("checkpoint after step 6", "rowwise_adagrad with 1 numbers a row", "of them count", "cat_25", ".rows"):
        assert word in told.out
    facts = json.loads(recmill("store", "info", run_dir, "--json").out)
    assert facts["live_records"] < facts["records"]
    assert recmill("store", "verify", run_dir).out.startswith(f"{checkpoint_of(run_dir, 6)}: intact (2 segments")
    assert json.loads(recmill("store", "verify", run_dir, "--json").out)["intact"] is True


def test_rows_go_out_and_come_back(run_dir: Path, recmill: Command, tmp_path: Path) -> None:
    older, delta = checkpoint_of(run_dir, 3), tmp_path / "delta.parquet"
    written = recmill("store", "delta", run_dir, "--since", 3, "--out", delta)
    assert written.status == 0, written.err
    assert "rows that changed after step 3, of" in written.out
    assert "column value is empty: ids were made by modulo" in written.out
    taken = recmill("store", "import", older, "--rows", delta, "--out", tmp_path / "state")
    assert taken.status == 0, taken.err
    assert f"counters and progress are those of {older} (step 3)" in taken.out
    assert recmill("checkpoint", "verify", tmp_path / "state").status == 0
    assert recmill("store", "export", run_dir, "--out", tmp_path / "rows.parquet", "--table", "cat_1").status == 0
    again = recmill("store", "export", run_dir, "--out", tmp_path / "rows.parquet")
    assert (again.status, "is there already" in again.err) == (2, True)
    compacted = recmill("store", "compact", run_dir, "--out", tmp_path / "small", "--json")
    facts = json.loads(compacted.out)
    assert facts["bytes_after"] < facts["bytes_before"]
    told = recmill("store", "compact", tmp_path / "small")
    assert "MiB of rows before" in told.out


def test_damage_has_a_status_and_a_place(run_dir: Path, recmill: Command, tmp_path: Path) -> None:
    assert recmill("store", "compact", run_dir, "--out", tmp_path / "state").status == 0
    (segment,) = (tmp_path / "state").glob("*.rows")
    flip_byte(segment, 4200)
    damaged = recmill("store", "verify", tmp_path / "state")
    assert damaged.status == 2
    assert f"{segment} is damaged: the checksum of the block at byte 4,096 differs" in damaged.out
    assert f"{segment} is not the file that manifest.json lists" in recmill("checkpoint", "verify", segment.parent).out


def test_what_has_no_stored_rows_says_what_to_do(tiny_world_dir: Path, recmill: Command, tmp_path: Path) -> None:
    run = train(tiny_world_dir, tmp_path / "run")
    for words in (("info",), ("verify",), ("compact",), ("export", "--out", "x.parquet")):
        rejected = recmill("store", words[0], run, *words[1:])
        assert rejected.status == 2
        assert "its tables lie in safetensors; `recmill checkpoint show" in rejected.err


def test_every_action_is_explained(recmill: Command) -> None:
    assert "store" in VERBS
    told = recmill("store", "--help").out
    assert all(action in told for action in ("info", "verify", "compact", "export", "import", "delta"))
