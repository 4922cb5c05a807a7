"""A compacted state has the same rows in fewer bytes, and a run goes on from it."""

import shutil
from pathlib import Path

import pytest

from recmill.errors import DataError, RunError
from recmill.files import read_manifest
from recmill.lock import locked
from recmill.training.checkpoint.saved_state import open_state, verify
from recmill.training.checkpoint.state_diff import compare
from recmill.training.checkpoint.stored.compact import compact_store
from recmill.training.checkpoint.stored.damage import verify_store
from recmill.training.checkpoint.stored.describe import describe_store
from tests.laws.tiered_runs import TIERED, checkpoint_of, flip_byte, resume, train


def assert_same_state(a: Path, b: Path) -> None:
    assert compare(open_state(a), open_state(b)).is_empty


def test_a_copy_has_only_records_that_count(tiered_run: Path, tmp_path: Path) -> None:
    done = compact_store(tiered_run, tmp_path / "small")
    facts = describe_store(tmp_path / "small")
    assert facts["records"] == facts["live_records"] == done.records_after < done.records_before
    assert facts["bytes"] == done.bytes_after < done.bytes_before == describe_store(tiered_run)["bytes"]
    assert verify_store(tmp_path / "small")["intact"]
    assert_same_state(tiered_run, tmp_path / "small")
    with pytest.raises(RunError, match="is there already"):
        compact_store(tiered_run, tmp_path / "small")


def test_in_its_place_it_replaces_the_old_one_and_the_run_goes_on(own_run: Path, tiny_world_dir: Path) -> None:
    before = shutil.copytree(checkpoint_of(own_run, 6), own_run.parent / "before")
    done = compact_store(own_run)
    assert done.directory == checkpoint_of(own_run, 6)
    assert describe_store(own_run)["live_frac"] == 1
    assert_same_state(before, own_run)
    read_manifest(own_run / "model")
    assert not [path for path in done.directory.parent.iterdir() if path.name.startswith(".")]
    again = compact_store(own_run)
    assert again.bytes_before == again.bytes_after
    resume(own_run, "stop.max_steps=9")
    whole = train(tiny_world_dir, own_run.parent / "whole", *TIERED, "stop.max_steps=9")
    assert not compare(open_state(own_run), open_state(whole)).tensors
    assert not any(verify(own_run).values())


def test_a_run_that_is_trained_and_a_damaged_state_are_left_alone(own_run: Path) -> None:
    with locked(own_run), pytest.raises(RunError, match=r"own_run is in use by process \d+"):
        compact_store(own_run)
    file = checkpoint_of(own_run, 6) / "segment-0000000001.rows"
    flip_byte(file, 10)
    before = sorted(path.name for path in checkpoint_of(own_run, 6).iterdir())
    with pytest.raises((RunError, DataError), match=r"segment-0000000001\.rows is not the file that"):
        compact_store(checkpoint_of(own_run, 6))
    assert sorted(path.name for path in checkpoint_of(own_run, 6).iterdir()) == before
