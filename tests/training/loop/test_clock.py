"""A clock that jumps back changes no result: durations are read from clocks that only go forward."""

import ast
import time
from itertools import count
from pathlib import Path

import pytest

import recmill
from recmill.settings.clicks import TrainConfig
from recmill.training.job import run_job
from tests.laws.compare import losses, results_without_times, state_bytes

# Records say when they were written; what was verified is compared with the times of files.
TELL_THE_TIME = {"observe/record.py": {"time"}, "verified.py": {"time_ns"}}


def test_times_of_day_are_recorded_and_never_counted_with() -> None:
    source = Path(recmill.__file__).parent
    for path in source.rglob("*.py"):
        name = path.relative_to(source).as_posix()
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found = {
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and (node.value.id, node.attr)
            in {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}
        }
        assert found <= TELL_THE_TIME.get(name, set()), name


def test_a_clock_that_jumps_back_changes_no_result(
    tiny_config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"stop.max_minutes": 60.0, "cadence.save_every_minutes": 30.0, "baselines.enabled": False}
    config = tiny_config.with_({"stop.max_steps": 12, "cadence.save_every_steps": 6, **changes})
    run_job(config, tmp_path / "steady")
    hours = count()
    monkeypatch.setattr(time, "time", lambda: 1e9 - 3600.0 * next(hours))  # an hour earlier each time it is asked
    run_job(config.with_({"stop.max_steps": 6}), tmp_path / "jumping")
    run_job(config, tmp_path / "jumping", resume=True)
    assert next(hours) > 5
    assert state_bytes(tmp_path / "steady") == state_bytes(tmp_path / "jumping")
    assert results_without_times(tmp_path / "steady") == results_without_times(tmp_path / "jumping")
    assert losses(tmp_path / "steady") == losses(tmp_path / "jumping")
