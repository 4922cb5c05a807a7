"""What a run tells its group, and what its processes have to have in common."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recmill.training import job as job_module
from recmill.training.job import common_facts, run_job
from recmill.world import Group, World
from tests.training.conftest import Resolve

PAIR = World(rank=1, size=2, local_rank=1, local_size=2)


def test_the_time_out_of_the_settings_reaches_the_group(
    resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    @contextmanager
    def note(world: World, **words: Any) -> Iterator[Group]:
        given.update(words)
        raise KeyError(world.rank)
        yield

    monkeypatch.setattr(job_module, "joined", note)
    with pytest.raises(KeyError):
        run_job(resolve("world.timeout_s=7.5"), tmp_path / "run")
    assert given["timeout_s"] == 7.5


def test_processes_compare_what_decides_the_result_and_not_how_they_go_about_it(resolve: Resolve) -> None:
    config, run_dir = resolve(), Path("runs/one")
    facts = common_facts(config, run_dir, PAIR)
    alike = config.with_({"threads": 3, "world.timeout_s": 9.0, "data.reader_threads": 2, "data.verify": "always"})
    assert common_facts(alike, Path("/elsewhere/one"), PAIR) == facts
    for key, value in {"seed": 5, "dense.lr": 0.7, "cadence.log_every_steps": 3, "stop.max_epochs": 9}.items():
        other = common_facts(config.with_({key: value}), run_dir, PAIR)
        assert [name for name in facts if facts[name] != other[name]] == [key]
    assert common_facts(config, Path("runs/two"), PAIR)["--run"] == "two"
    assert facts["version"].startswith("0.")


def test_processes_compare_the_files_of_their_data(resolve: Resolve, tmp_path: Path) -> None:
    config = resolve()
    shutil.copytree(config.data.dir, tmp_path / "copy")
    copy = config.with_({"data.dir": str(tmp_path / "copy")})
    (tmp_path / "copy" / ".hidden").touch()
    facts = common_facts(config, Path("run"), PAIR)
    assert common_facts(copy, Path("run"), PAIR) == facts
    with (tmp_path / "copy" / "day_1").open("ab") as file:
        file.write(b"0\n")
    other = common_facts(copy, Path("run"), PAIR)
    assert [name for name in facts if facts[name] != other[name]] == ["data.dir/day_1"]
