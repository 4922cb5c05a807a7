"""All that can be done with a saved state can be done with one whose rows lie in files, with the same results."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from recmill.errors import RunError
from recmill.training.checkpoint.extract import extract
from recmill.training.checkpoint.reshard import export, reshard
from recmill.training.checkpoint.saved_state import WHATS, describe, open_state, verify
from recmill.training.checkpoint.state_diff import StateDiff, compare
from tests.laws.tiered_runs import TIERED, checkpoint_of, flip_byte, resume, train


@pytest.fixture(scope="module")
def runs(tiny_world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same run with its rows in files, and in memory."""
    scratch = tmp_path_factory.mktemp("tiers")
    return train(tiny_world_dir, scratch / "tiered", *TIERED), train(tiny_world_dir, scratch / "memory")


def differing(a: Path, b: Path) -> StateDiff:
    """But for where the rows are."""
    found = compare(open_state(a), open_state(b))
    found.values = {key: value for key, value in found.values.items() if not key.startswith("settings.store")}
    return found


def test_the_states_are_the_same(runs: tuple[Path, Path]) -> None:
    tiered, memory = runs
    for step in (3, 6):
        assert differing(checkpoint_of(tiered, step), checkpoint_of(memory, step)).is_empty
    assert differing(tiered / "model", memory / "model").is_empty
    facts, others = (describe(open_state(each), WHATS) for each in runs)
    for key in ("step", "kind", "tensors", "counters"):
        assert facts[key] == others[key]
    for ours, theirs in zip(facts["tables"], others["tables"], strict=True):
        assert {**ours, "pieces": 0} == {**theirs, "pieces": 0}
        assert ours["pieces"][0]["file"] == "store.json"


def test_it_is_resharded_exported_and_extracted(runs: tuple[Path, Path], tmp_path: Path) -> None:
    tiered, memory = (open_state(each) for each in runs)
    reshard(tiered, tmp_path / "three", 3)
    assert not list((tmp_path / "three").glob("*.rows"))
    assert differing(tmp_path / "three", memory.directory).is_empty
    assert verify(tmp_path / "three") == {tmp_path / "three": []}
    export(tiered, tmp_path / "weights")
    assert differing(tmp_path / "weights", runs[1] / "model").is_empty
    assert verify(tmp_path / "weights") == {tmp_path / "weights": []}
    for what in WHATS:
        for name, state in (("tiered", tiered), ("memory", memory)):
            extract(state, "cat_9", tmp_path / f"{name}_{what}.npy", what)
        arrays = [np.load(tmp_path / f"{name}_{what}.npy") for name in ("tiered", "memory")]
        assert arrays[0].tobytes() == arrays[1].tobytes()


@pytest.mark.parametrize("from_tiered", [True, False])
def test_a_run_goes_on_from_files_in_memory_and_back(
    from_tiered: bool, runs: tuple[Path, Path], tiny_world_dir: Path, tmp_path: Path
) -> None:
    whole = train(tiny_world_dir, tmp_path / "whole", "stop.max_steps=12")
    into_memory, into_files = ("store.kind=device_mem", "store.cache_memory=1GiB"), TIERED
    first, second = (into_memory, into_files) if from_tiered else (into_files, into_memory)
    run = Path(shutil.copytree(runs[0 if from_tiered else 1], tmp_path / "run"))
    resume(run, *first, "stop.max_steps=9")
    resume(run, *second, "stop.max_steps=12")
    assert differing(checkpoint_of(run, 12), checkpoint_of(whole, 12)).is_empty
    assert (checkpoint_of(run, 12) / "store.json").exists() == from_tiered


@pytest.mark.parametrize("state", ["warm_start.state=false", "warm_start.state=true"])
def test_a_run_begins_with_rows_from_files_or_from_memory(
    state: str, runs: tuple[Path, Path], tiny_world_dir: Path, tmp_path: Path
) -> None:
    found = []
    for name, source, settings in (
        ("memory from memory", runs[1], ()),
        ("memory from files", runs[0], ()),
        ("files from memory", runs[1], TIERED),
        ("files from files", runs[0], TIERED),
    ):
        place = f"warm_start.from_dir={source}"
        run = train(tiny_world_dir, tmp_path / name, place, state, "seed=5", "stop.max_steps=3", *settings)
        found.append(open_state(run))
    for other in found[1:]:
        diff = compare(found[0], other)
        assert not diff.tensors
        assert diff.num_tensors > 50


def test_a_damaged_segment_is_named_and_the_run_falls_back(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(runs[0], tmp_path / "run"))
    file = checkpoint_of(run, 6) / "segment-0000000001.rows"
    flip_byte(file, 5000)
    damage = verify(run)
    assert [directory for directory, complaints in damage.items() if complaints] == [checkpoint_of(run, 6)]
    assert str(file) in damage[checkpoint_of(run, 6)][0]
    resume(run, "stop.max_steps=9")
    assert f"{file} is not the file that manifest.json lists" in capsys.readouterr().err
    assert not verify(run)[checkpoint_of(run, 9)]


def test_only_what_a_checkpoint_lists_counts(runs: tuple[Path, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[0], tmp_path / "run"))
    (checkpoint_of(run, 6) / "segment-0000000009.rows").write_bytes(b"torn" * 2000)
    assert differing(run, runs[0]).is_empty
    (run / "store").mkdir()
    (run / "store" / "segment-0000000004.rows").write_bytes(b"torn" * 2000)
    resume(run, "stop.max_steps=9")
    assert not verify(run)[checkpoint_of(run, 9)]


def test_an_absent_segment_is_named(runs: tuple[Path, Path], tmp_path: Path) -> None:
    directory = Path(shutil.copytree(checkpoint_of(runs[0], 6), tmp_path / "state"))
    (directory / "segment-0000000000.rows").unlink()
    assert any("segment-0000000000.rows is missing" in each for each in verify(directory)[directory])
    with pytest.raises(RunError, match=r"segment-0000000000\.rows"), open_state(directory).tables("weights"):
        pass
