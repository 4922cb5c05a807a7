"""What a preparation of click logs does with what it cannot use: bad lines, begun work, full disks, occupied places."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from recmill.data.prepared.prepare import prepare
from recmill.errors import ConfigError, DataError
from tests.data.jobs import digests_of, job_of


def test_bad_lines_are_named_or_counted(tiny_world_dir: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(tiny_world_dir, data_dir)
    with (data_dir / "day_1").open("a") as file:
        file.write("2\tnonsense\n")
    with pytest.raises(DataError, match=r"day_1:1001: "):
        prepare(job_of(data_dir, tmp_path / "out"))
    assert {path.name for path in tmp_path.iterdir()} == {"data"}, "the files may be fixed and prepared at once"
    manifest = prepare(job_of(data_dir, tmp_path / "out", bad_rows="skip"))
    assert manifest["skipped_rows"] == 1
    assert manifest["rows"]["train"] == 2000


def test_many_bad_lines_stop_even_those_who_ignore_them(tiny_world_dir: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(tiny_world_dir, data_dir)
    with (data_dir / "day_1").open("a") as file:
        file.write("2\tnonsense\n" * 50)
    with pytest.raises(
        DataError, match=r"50 of 3,050 lines read are bad .*0.01 .*day_1:1001: .*day_1:1002: .*day_1:1003"
    ):
        prepare(job_of(data_dir, tmp_path / "out", bad_rows="skip"))
    manifest = prepare(job_of(data_dir, tmp_path / "out", bad_rows="skip", max_bad_frac=0.02))
    assert manifest["skipped_rows"] == 50


def test_other_settings_do_not_go_on_with_begun_work(tiny_world_dir: Path, tmp_path: Path) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        if stage == "encode":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(job_of(tiny_world_dir, tmp_path / "out", on_progress=stop))
    with pytest.raises(DataError, match=r"\.out\.preparing holds work that was begun with other settings"):
        prepare(job_of(tiny_world_dir, tmp_path / "out", preset_name="ray"))


def test_a_full_disk_is_said_before_if_it_can_be_foreseen(
    tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(DataError, match=r"needs about .* GiB"):
        prepare(job_of(tiny_world_dir, tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_corrupts_nothing(tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prepare(job_of(tiny_world_dir, tmp_path / "whole"))
    written = 0

    def full_after_a_while(descriptor: int, content: bytes, offset: int, write: Any = os.pwrite) -> int:
        nonlocal written
        written += len(content)
        if written > 200_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(write(descriptor, content, offset))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_after_a_while)
        with pytest.raises(DataError, match="is full; make room and run the same command again"):
            prepare(job_of(tiny_world_dir, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert digests_of(prepare(job_of(tiny_world_dir, tmp_path / "out"))) == digests_of(whole)


def test_an_occupied_directory_is_refused(tiny_world_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep me")
    with pytest.raises(DataError, match="is not empty"):
        prepare(job_of(tiny_world_dir, tmp_path / "out"))
    with pytest.raises(DataError, match="nothing that this command has written"):
        prepare(job_of(tiny_world_dir, tmp_path / "out"), overwrite=True)
    (tmp_path / "out" / "mine.txt").unlink()
    prepare(job_of(tiny_world_dir, tmp_path / "out", seed=3))
    manifest = prepare(job_of(tiny_world_dir, tmp_path / "out"), overwrite=True)
    assert manifest["seed"] is None
    assert json.loads((tmp_path / "out" / "manifest.json").read_text()) == manifest


def test_an_unknown_preset_names_the_known_ones(tiny_world_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no preset 'torchrek'; choose from torchrec, "):
        prepare(job_of(tiny_world_dir, tmp_path / "out", preset_name="torchrek"))
