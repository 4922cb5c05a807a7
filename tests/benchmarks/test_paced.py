import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from benchmarks.paced import Line, PacedRun, PacedSteps, open_paced

from recmill.data.batch import Cursor, Position
from recmill.settings.clicks import TrainConfig
from recmill.settings.tree import to_toml
from recmill.training.job import run_job
from recmill.training.loop.task import StepResult
from tests.laws.compare import losses


@dataclass(frozen=True)
class Spent:
    """A batch of one row."""

    num_rows: int = 1
    num_skipped: int = 0

    @property
    def position(self) -> Position:
        return Position((Cursor(),))


@dataclass
class Countdown:
    """Steps whose loss is their number."""

    left: int
    trailing_skipped: int = 7

    def take(self, step: int) -> StepResult | None:
        return StepResult(Spent(), loss=float(step), step_s=0.0) if step < self.left else None

    @contextmanager
    def opened(self, start: Position | None) -> Iterator["Countdown"]:
        assert start is None
        yield self


@pytest.fixture
def ends() -> Iterator[tuple[Line, Line]]:
    """A run's end of a line, and the other."""
    near, far = (Line(end) for end in socket.socketpair())
    yield near, far
    near.close()
    far.close()


def told_losses(far: Line) -> list[float]:
    return [loss for _seconds, loss in far.hear()]


def test_steps_wait_before_every_slice_and_behind_the_last(ends: tuple[Line, Line]) -> None:
    near, far = ends
    for _ in range(4):  # said in advance: nobody has to wait
        far.tell("go on")
    with open_paced(Countdown(5).opened, near, 2, None) as steps:
        assert all(steps.take(step) for step in range(5))
        assert steps.trailing_skipped == 7
    assert [told_losses(far) for _ in range(4)] == [[], [0.0, 1.0], [2.0, 3.0], [4.0]]


def test_the_end_of_the_data_is_no_step(ends: tuple[Line, Line]) -> None:
    near, far = ends
    far.tell("go on")
    steps = PacedSteps(Countdown(0), near, 2)
    assert steps.take(0) is None
    far.tell("go on")
    steps.pause()
    assert [told_losses(far) for _ in range(2)] == [[], []]


def test_a_run_whose_director_is_gone_does_not_wait_for_ever(ends: tuple[Line, Line]) -> None:
    near, far = ends
    far.close()
    with pytest.raises((EOFError, BrokenPipeError)):
        PacedSteps(Countdown(1), near, 2).take(0)


def paced_run(config: TrainConfig, run_dir: Path) -> PacedRun:
    config_path = run_dir.with_suffix(".toml")
    config_path.write_text(to_toml(config))
    words = ["train", "--config", str(config_path), "--run", str(run_dir)]
    return PacedRun(words, procs=1, slice_steps=4, log_path=run_dir.with_suffix(".log"))


def test_a_paced_run_is_stopped_between_slices_and_trains_as_one_that_is_left_alone(
    tiny_config: TrainConfig, tmp_path: Path
) -> None:
    config = tiny_config.with_({"stop.max_steps": 6, "cadence.log_every_steps": 1})
    run_job(config, tmp_path / "alone")
    with paced_run(config, tmp_path / "paced") as run:
        (child,) = psutil.Process(os.getpid()).children()
        assert run.losses == []
        for num_losses in (4, 6):
            assert run.take_slice() > 0
            assert len(run.losses) == num_losses
            assert child.status() == psutil.STATUS_STOPPED
        run.finish()
    assert run.losses == pytest.approx([loss for _, loss in losses(tmp_path / "alone")], rel=1e-12)
    assert (tmp_path / "paced" / "results.json").is_file()


def test_a_paced_run_that_cannot_start_says_why(tiny_config: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(RuntimeError, match=r"run ended with status 2(.|\n)*is a file; --run takes a directory"):
        paced_run(tiny_config, tmp_path / "run").__enter__()


def test_a_paced_run_that_is_not_wanted_any_more_is_gone(tiny_config: TrainConfig, tmp_path: Path) -> None:
    with paced_run(tiny_config, tmp_path / "run") as run:
        (child,) = psutil.Process(os.getpid()).children()
        run.take_slice()
    assert not child.is_running()
    assert not (tmp_path / "run" / "results.json").exists()
