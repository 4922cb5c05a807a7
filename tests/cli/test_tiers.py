"""Mistakes and mishaps of runs whose tables lie in tiers: what a person is told, and what is left."""

import errno
import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from recmill.embeddings.store import segment
from recmill.lock import LOCK, locked
from recmill.training.checkpoint.saved_state import open_state, verify
from recmill.training.checkpoint.state_diff import compare
from tests.cli.command import Command
from tests.laws.tiered_runs import TIERED, TINY, checkpoint_of, train


def words(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture(scope="module")
def run_dir(tiny_world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny_world_dir, tmp_path_factory.mktemp("tiers") / "run", *TIERED)


@pytest.fixture
def own_run(run_dir: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run_dir, tmp_path / "own"))


def start(recmill: Command, data: Path, run: Path, *settings: str):  # type: ignore[no-untyped-def]
    return recmill("train", "demo", "--data", data, "--run", run, *words(*TINY, "stop.max_steps=6", *settings))


def test_a_store_that_a_living_process_holds_is_rejected(
    tiny_world_dir: Path, recmill: Command, tmp_path: Path
) -> None:
    (tmp_path / "rows").mkdir()
    place = f"store.dir={tmp_path / 'rows'}"
    with locked(tmp_path / "rows"):
        rejected = start(recmill, tiny_world_dir, tmp_path / "run", *TIERED, place)
    assert rejected.status == 2
    assert f"{tmp_path / 'rows'} is in use by process {os.getpid()} on {socket.gethostname()}" in rejected.err


def test_the_lock_of_a_dead_process_is_no_obstacle(tiny_world_dir: Path, recmill: Command, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    owner = {"host": socket.gethostname(), "pid": 999_999_999}
    (tmp_path / "rows" / LOCK).write_text(json.dumps(owner))
    (tmp_path / "rows" / "segment-0000000003.rows").write_bytes(b"left by it")
    done = start(recmill, tiny_world_dir, tmp_path / "run", *TIERED, f"store.dir={tmp_path / 'rows'}")
    assert done.status == 0, done.err
    (tmp_path / "rows").mkdir(exist_ok=True)
    (tmp_path / "rows" / LOCK).write_text(json.dumps({**owner, "host": "elsewhere"}))
    rejected = start(recmill, tiny_world_dir, tmp_path / "other", *TIERED, f"store.dir={tmp_path / 'rows'}")
    assert rejected.status == 2
    assert "in use by process 999999999 on elsewhere; if that one is gone, remove" in rejected.err


def test_a_directory_that_cannot_be_written_is_named_before_the_first_step(
    tiny_world_dir: Path, recmill: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no directory")
    rejected = start(recmill, tiny_world_dir, tmp_path / "run", *TIERED, f"store.dir={tmp_path / 'file' / 'rows'}")
    assert rejected.status == 2
    assert f"{tmp_path / 'file'} is not a directory; choose another place" in rejected.err
    rejected = start(recmill, tiny_world_dir, tmp_path / "run2", *TIERED, "store.dir=/proc/rows")
    assert rejected.status == 2
    assert "/proc/rows cannot be written" in rejected.err


def test_a_full_disk_ends_the_run_and_leaves_what_was_saved(
    own_run: Path, recmill: Command, monkeypatch: pytest.MonkeyPatch, tiny_world_dir: Path
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(segment, "write_at", fail)
        ended = recmill("train", "--run", own_run, "--resume", "--set", "stop.max_steps=9")
    assert ended.status in (1, 2)
    assert "rows of embedding tables could not be written: No space left on device; make room" in ended.err
    assert not any(verify(own_run).values())
    again = recmill("train", "--run", own_run, "--resume", "--set", "stop.max_steps=9")
    assert again.status == 0, again.err
    whole = train(tiny_world_dir, own_run.parent / "whole", *TIERED, "stop.max_steps=9")
    assert not compare(open_state(own_run), open_state(whole)).tensors


def test_a_cache_that_is_too_small_for_a_batch_says_how_large_it_must_be(
    tiny_world_dir: Path, recmill: Command, tmp_path: Path
) -> None:
    rejected = start(recmill, tiny_world_dir, tmp_path / "run", "store.kind=cached_ssd", "store.cache_memory=4KiB")
    assert rejected.status == 2
    assert "store.cache_memory holds 204 rows, and a batch of 100 rows uses" in rejected.err
    assert "set store.cache_memory=1MiB or more, or lower data.global_batch" in rejected.err
    assert (
        start(recmill, tiny_world_dir, tmp_path / "run", "store.kind=cached_ssd", "store.cache_memory=1MiB").status == 0
    )


@pytest.mark.parametrize("setting", ["seed=1", "tables.kind=adagrad", "model.embedding_dim=8"])
def test_a_checkpoint_of_another_run_is_rejected(
    setting: str, own_run: Path, tiny_world_dir: Path, recmill: Command, tmp_path: Path
) -> None:
    layers = ("model.bottom=[8, 8]",) if "dim" in setting else ()
    other = train(tiny_world_dir, tmp_path / "other", *TIERED, setting, *layers)
    shutil.rmtree(checkpoint_of(own_run, 6))
    shutil.copytree(checkpoint_of(other, 6), checkpoint_of(own_run, 6))
    rejected = recmill("train", "--run", own_run, "--resume", "--set", "stop.max_steps=9")
    assert rejected.status == 2
    assert str(checkpoint_of(own_run, 6)) in rejected.err
    rejected = recmill("train", "--run", own_run, "--resume", "--set", "stop.max_steps=9", "--set", setting)
    assert (rejected.status, setting.partition("=")[0] in rejected.err) == (2, True)


@pytest.mark.parametrize("setting", ["seed=1", "tables.kind=adagrad"])
def test_weights_of_another_run_are_evaluated_as_in_memory(
    setting: str, run_dir: Path, tiny_world_dir: Path, recmill: Command, tmp_path: Path
) -> None:
    memory = train(tiny_world_dir, tmp_path / "memory")
    for settings in (TIERED, ()):
        weights = train(tiny_world_dir, tmp_path / f"other{len(settings)}", *settings, setting) / "model"
        told = [recmill("evaluate", run, "--weights", weights, "--json") for run in (run_dir, memory)]
        assert [each.status for each in told] == [0, 0], told
        found = [json.loads(each.out) for each in told]
        for each in found:
            each.pop("run", None)
        assert found[0] == found[1]


def test_what_the_cache_has_done_is_in_the_metrics(run_dir: Path) -> None:
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    last = [record for record in records if record["kind"] == "train"][-1]
    assert 0 <= last["store_hit_rate"] <= 1
    for key in ("store_rows_read", "store_bytes_written", "store_wait_s", "store_disk_bytes", "store_hit_rate.cat_25"):
        assert key in last
