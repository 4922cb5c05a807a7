from itertools import pairwise
from pathlib import Path

import pytest

from recmill.data.batch import Cursor, Position
from recmill.errors import ConfigError
from recmill.settings.clicks import TrainConfig
from recmill.settings.run import Cadence, Stop
from recmill.training.click.assemble import assemble
from recmill.training.click.inputs import Inputs
from recmill.training.click.step import ClickState
from recmill.training.click.task import ClickTask
from recmill.training.loop import loop
from recmill.training.loop.limits import due, evaluation_due, limit_reached
from recmill.training.loop.loop import train
from recmill.training.progress import Progress
from tests.training.conftest import OpenRun, Resolve
from tests.training.records import read_records


def run_to_the_end(config: TrainConfig, open_run: OpenRun) -> tuple[Progress, Path]:
    with Inputs(config) as inputs:
        task = ClickTask(assemble(config), inputs)
        with open_run(task) as run:
            return train(run, task), run.dir


def test_an_epoch_spends_every_training_row_once(resolve: Resolve, open_run: OpenRun) -> None:
    progress, _ = run_to_the_end(resolve("stop.max_epochs=2"), open_run)
    assert progress.num_rows == 2 * 2000
    assert progress.epoch == 2, "passes finished"


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        (("stop.max_steps=7",), 7),
        (("stop.max_rows=550",), 6),
        (("stop.max_steps=7", "stop.max_rows=300"), 3),
        (("stop.max_steps=33", "stop.max_epochs=0"), 33),
    ],
)
def test_limits_really_stop(limits: tuple[str, ...], steps: int, resolve: Resolve, open_run: OpenRun) -> None:
    progress, run_dir = run_to_the_end(resolve(*limits), open_run)
    assert progress.step == steps
    assert [path.name for path in (run_dir / "checkpoints").iterdir()] == [f"step_{steps:010}"]


def _weights(parts: ClickState) -> list[bytes]:
    return [parts.tables.weights(spec.name).tobytes() for spec in parts.tables.specs]


def test_short_batches_at_the_end_are_dropped_if_asked(resolve: Resolve, open_run: OpenRun) -> None:
    config = resolve("data.drop_last=true", "data.num_lanes=6", "data.global_batch=90")
    with Inputs(config) as inputs, inputs.open_training(None) as stream:
        sizes = [batch.num_rows for batch in stream]
    num_full = sizes.index(next(rows for rows in sizes if rows < 90))
    assert sum(sizes) == 2000
    assert 0 < num_full < len(sizes)
    progress, _ = run_to_the_end(config, open_run)
    assert (progress.step, progress.num_rows) == (num_full, 90 * num_full)


def test_dropped_rows_are_trained_on_by_who_goes_on(resolve: Resolve, open_run: OpenRun, tmp_path: Path) -> None:
    """A run of two epochs has its short batch at the end of the second, whether or not it stopped after the first."""
    settings = ("data.drop_last=true", "data.global_batch=92")
    two = resolve(*settings, "stop.max_epochs=2")
    states = []
    for stages in ([two], [resolve(*settings), two]):
        for config in stages:
            with Inputs(config) as inputs:
                task = ClickTask(assemble(config), inputs)
                with open_run(task) as run:
                    progress = train(run, task)
        assert progress.num_rows == 92 * progress.step > 3800
        states.append(_weights(task.state))
        run.dir.rename(tmp_path / f"run_{len(states)}")
    assert states[0] == states[1]


def test_dropping_every_batch_is_refused(resolve: Resolve, open_run: OpenRun) -> None:
    with pytest.raises(ConfigError) as caught:
        run_to_the_end(resolve("data.drop_last=true", "data.global_batch=5000"), open_run)
    assert str(caught.value) == (
        "data.drop_last leaves nothing to train on: the first batch has fewer than data.global_batch = 5,000 rows; "
        "lower data.global_batch or leave out data.drop_last"
    )


def test_the_time_limit_counts_seconds_of_training() -> None:
    assert limit_reached(Progress(train_s=59.9), Stop(max_minutes=1)) is None
    assert limit_reached(Progress(train_s=60.0), Stop(max_minutes=1)) == "max_minutes"
    assert limit_reached(Progress(step=10**9, num_rows=10**12, train_s=1e9), Stop(max_epochs=0)) is None


def test_cadence() -> None:
    assert [step for step in range(1, 10) if due(3, step)] == [3, 6, 9]
    assert not any(due(0, step) for step in range(10))


@pytest.mark.parametrize(
    ("cadence", "expected"),
    [
        (Cadence(), []),
        (Cadence(evaluate_every_steps=4), [4, 8]),
        (Cadence(evaluate_every_epochs=1.0), [5, 10]),
        (Cadence(evaluate_every_epochs=2.0), [10]),
        (Cadence(evaluate_every_epochs=0.5), [3, 5, 8, 10]),
        (Cadence(evaluate_every_epochs=0.7), [4, 7]),
        (Cadence(evaluate_every_steps=4, evaluate_every_epochs=2.0), [4, 8, 10]),
    ],
)
def test_evaluations_come_by_steps_and_by_passes(cadence: Cadence, expected: list[int]) -> None:
    """Ten steps of 20 rows over data of 100."""
    states = [Progress(step, 20 * step, position=Position((Cursor(step // 5),))) for step in range(11)]
    assert [now.step for before, now in pairwise(states) if evaluation_due(before, now, cadence, 100)] == expected


def test_records_evaluations_and_checkpoints_come_at_their_cadence(resolve: Resolve, open_run: OpenRun) -> None:
    config = resolve(
        "cadence.log_every_steps=4",
        "cadence.evaluate_every_steps=6",
        "cadence.save_every_steps=5",
        "cadence.keep_checkpoints=3",
        "stop.max_steps=17",
    )
    _, run_dir = run_to_the_end(config, open_run)
    records = read_records(run_dir)
    assert [r["step"] for r in records if r["kind"] == "train"] == [4, 8, 12, 16]
    assert [(r["step"], r["split"]) for r in records if r["kind"] == "evaluate"] == [
        (6, "validation"),
        (12, "validation"),
    ]
    kept = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
    assert kept == [f"step_{step:010}" for step in (10, 15, 17)]
    assert all(isinstance(r["loss"], float) and 0 < r["loss"] < 5 for r in records if r["kind"] == "train")
    assert list((run_dir / "tensorboard").glob("events.out.tfevents.*"))


def test_a_run_that_goes_on_logs_what_it_would_have_logged(resolve: Resolve, open_run: OpenRun, tmp_path: Path) -> None:
    """Stopped between two records: the mean loss of the second is over all steps since the first."""
    losses = []
    for stops in ((11,), (6, 7, 11)):
        for stop in stops:
            _, run_dir = run_to_the_end(resolve("cadence.log_every_steps=4", f"stop.max_steps={stop}"), open_run)
        losses.append([(r["step"], r["loss"]) for r in read_records(run_dir) if r["kind"] == "train"])
        run_dir.rename(tmp_path / f"run_{len(losses)}")
    assert [step for step, _ in losses[0]] == [4, 8]
    assert losses[0] == losses[1]


def test_evaluating_in_between_changes_nothing(resolve: Resolve, open_run: OpenRun, tmp_path: Path) -> None:
    plain = resolve("stop.max_steps=12")
    watched = resolve("stop.max_steps=12", "cadence.evaluate_every_steps=2", "cadence.save_every_steps=3")
    states = []
    for config in (plain, watched):
        with Inputs(config) as inputs:
            task = ClickTask(assemble(config), inputs)
            with open_run(task) as run:
                train(run, task)
            states.append(_weights(task.state))
        run.dir.rename(tmp_path / f"run_{len(states)}")
    assert states[0] == states[1]


def test_the_loop_is_a_page() -> None:
    assert len(Path(loop.__file__).read_text().splitlines()) <= 70
