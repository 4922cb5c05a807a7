"""Whatever moment a run is killed at, its records are there exactly once when it has gone on to its end."""

import json
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recmill.settings.clicks import TrainConfig
from recmill.settings.families import AnyConfig
from recmill.training.job import run_job
from recmill.training.loop import run as run_module
from recmill.training.loop.run import RunWriter
from tests.observe.scalars import read_scalars
from tests.training.sequence.worlds import make_world, resolve

CADENCE = ("cadence.log_every_steps=2", "cadence.save_every_steps=3", "cadence.evaluate_every_steps=4")
MOMENTS = {
    "behind the first record": (RunWriter, "log", 1),
    "behind a record and before its checkpoint": (RunWriter, "log", 3),
    "behind an evaluation": (RunWriter, "note_evaluation", 2),
    "behind a checkpoint": (RunWriter, "save", 2),
    "behind the last checkpoint": (RunWriter, "save_last", 1),
    "behind the last evaluations": (RunWriter, "_describe_best", 1),
    "before the results": (RunWriter, "_compare", 1),
    "behind the results": (run_module, "write_results", 1),
}


class Killed(BaseException):
    """As by `kill -9`: nothing catches it."""


def killed_behind(function: Callable[..., Any], times: int) -> Callable[..., Any]:
    calls = 0

    def wrapped(*words: Any, **options: Any) -> Any:
        nonlocal calls
        result = function(*words, **options)
        calls += 1
        if calls == times:
            raise Killed
        return result

    return wrapped


def keys_of(run_dir: Path) -> Counter[tuple[str, int, str | None]]:
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return Counter((record["kind"], record["step"], record.get("split")) for record in records)


def points_of(run_dir: Path) -> dict[str, list[int]]:
    return {tag: [step for step, _ in points] for tag, points in read_scalars(run_dir).items()}


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AnyConfig]:
    chains = make_world(tmp_path_factory.mktemp("world") / "chains")[1]
    return {"sequence": resolve(chains, "model.kind=sasrec", "stop.max_steps=8", *CADENCE)}


@pytest.fixture
def _a_second_for_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of events are read in the order of their names, which have the second of their start."""
    from tensorboard.summary.writer import event_file_writer

    seconds = count(int(time.time()))
    monkeypatch.setattr(event_file_writer, "time", SimpleNamespace(time=lambda: float(next(seconds))))


@pytest.mark.usefixtures("_a_second_for_each_start")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("family", ["click", "sequence"])
def test_records_of_a_killed_run_are_there_once(
    family: str,
    moment: str,
    tiny_config: TrainConfig,
    configs: dict[str, AnyConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    click = tiny_config.with_(
        {"stop.max_steps": 8, **{name: int(value) for name, value in (each.split("=") for each in CADENCE)}}
    )
    config, run_dir = configs.get(family, click), tmp_path / "run"
    owner, name, times = MOMENTS[moment]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killed_behind(getattr(owner, name), times))
        with pytest.raises(Killed):
            run_job(config, run_dir)
    run_job(config, run_dir, resume=True)
    run_job(config, run_dir, resume=True)  # a finished run has nothing to add
    expected = {("train", step, None) for step in (2, 4, 6, 8)} | {("evaluate", step, "validation") for step in (4, 8)}
    assert keys_of(run_dir) == Counter(expected | {("evaluate", 8, "test")})
    for tag, steps in points_of(run_dir).items():
        assert steps == sorted(set(steps)), f"{tag}: {steps}"
        assert not tag.startswith("train/") or steps == [2, 4, 6, 8], f"{tag}: {steps}"
