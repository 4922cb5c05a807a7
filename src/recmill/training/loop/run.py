"""A run directory: the settings of a run, its records, and the states it can go on from."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from recmill.errors import FailureError, Interrupted, NonFiniteLoss, RunError
from recmill.files import CONFIG, RESULTS, ROWS, STORE_DIR, VALUES, refuse_unwritable, write_atomic
from recmill.lock import locked
from recmill.observe.console import ProgressLine, format_duration
from recmill.observe.environment import describe_environment
from recmill.observe.record import METRICS, Recorder, last_train_loss
from recmill.run_stamp import new_run_id, write_results, write_run_settings
from recmill.settings.families import AnyConfig
from recmill.settings.tree import to_toml
from recmill.training.checkpoint.checkpoint import read_model
from recmill.training.checkpoint.identity import refuse_foreign_state
from recmill.training.checkpoint.saver import Saver
from recmill.training.checkpoint.snapshot import MODEL
from recmill.training.loop.health import find_warnings
from recmill.training.loop.ledger import LEDGER, Ledger, forget_behind
from recmill.training.loop.limits import limit_reached
from recmill.training.loop.task import Evaluation, StepResult, Task
from recmill.training.progress import Progress
from recmill.world import Group

ENVIRONMENT = "environment.json"


@contextmanager
def opened_run_dir(run_dir: Path, config: AnyConfig, *, resume: bool, overwrite: bool) -> Iterator[None]:
    """A run directory that is this run's alone; a new one has its settings."""
    refuse_file(run_dir)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"--run {run_dir}: the directory cannot be made: {error.strerror or error}") from None
    with locked(run_dir):
        if not resume:
            create_run_dir(run_dir, config, overwrite=overwrite)
        yield


def create_run_dir(run_dir: Path, config: AnyConfig, *, overwrite: bool) -> None:
    """An empty run directory with its settings; an occupied one is rejected or, if asked, emptied."""
    for path in refuse_occupied_run(run_dir, overwrite=overwrite):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run_dir.mkdir(parents=True, exist_ok=True)
    settings = to_toml(config)
    write_run_settings(run_dir, settings, new_run_id(settings, config.data.dir))


def refuse_occupied_run(run_dir: Path, *, overwrite: bool) -> list[Path]:
    """Complain about a directory that a new run must not take; what is to be deleted in one that it may."""
    refuse_file(run_dir)
    refuse_unwritable(run_dir)
    # hidden are the lock, which this run holds, and what a killed one was about to write; the rows were made for it
    files = list(run_dir.iterdir()) if run_dir.is_dir() else []
    occupants = [path for path in files if not path.name.startswith(".") and path.name != ROWS]
    if occupants:
        if not overwrite and not _holds_nothing_but_a_start(run_dir, occupants):
            raise RunError(f"{run_dir} is not empty; continue it with --resume, replace it with --overwrite")
        if not (run_dir / CONFIG).is_file():
            raise RunError(f"{run_dir} is not a run directory (it has no {CONFIG}); --overwrite will not delete it")
    return occupants


def _holds_nothing_but_a_start(run_dir: Path, occupants: Sequence[Path]) -> bool:
    """Whether a run was begun here and ended, for instance by a bad row, before it had saved any weights."""
    of_a_start = {CONFIG, ENVIRONMENT, VALUES, METRICS, "tensorboard", LEDGER, STORE_DIR}
    return (run_dir / CONFIG).is_file() and {path.name for path in occupants} <= of_a_start


def refuse_file(run_dir: Path) -> None:
    """Complain if there is something else where a run directory is wanted."""
    if run_dir.exists() and not run_dir.is_dir():
        raise RunError(f"{run_dir} is a file; --run takes a directory")


def write_settings(run_dir: Path, config: AnyConfig, run_id: str) -> None:
    """Record all settings, the machine, the versions and the command line."""
    write_run_settings(run_dir, to_toml(config), run_id)
    write_atomic(run_dir / ENVIRONMENT, json.dumps(describe_environment(), indent=1))


class RunWriter:
    """Writes what happens into the run directory and onto the screen; of several processes, only the main one talks."""

    def __init__(
        self,
        run_dir: Path,
        task: Task,
        *,
        line: ProgressLine,
        expected_rows: int | None = None,
        group: Group | None = None,
    ) -> None:
        self.dir = run_dir
        self._group = group or Group()
        self._world = self._group.world
        self._expected_rows = expected_rows
        self._line = line
        self._latest = Progress()
        self._evaluated: tuple[int, Evaluation] | None = None
        self._recorder: Recorder | None = None
        self._restored_step = 0
        self._logged_loss: float | None = None
        self._ledger: Ledger | None = None
        cadence = task.settings.cadence
        self.saver = Saver(
            run_dir, self._group, keep=cadence.keep_checkpoints, score_name=task.score_name, tell=self.tell
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.saver.__exit__(kind, error, trace)
        if self._recorder:
            self._recorder.close()
        if self._ledger:
            self._ledger.close()

    def tell(self, line: str) -> None:
        """A line that stays on the screen."""
        if self._world.is_main:
            self._line.milestone(line)

    def record(self, kind: str, step: int, **values: Any) -> None:
        """Add to the records, which begin at the step the run was restored at."""
        if self._recorder:
            self._recorder.write(kind, step, **values)

    def restore(self, task: Task) -> Progress:
        """Fill the task's state from the newest intact checkpoint; zero progress if there is none."""
        self._latest = self.saver.restore(task.state)
        self._restored_step = self._latest.step
        with self._group.together():
            if self._world.is_main:
                self._open_records(task)
        if task.settings.cadence.keep_ledger:
            self._ledger = Ledger(self.dir, self._world.rank)
        return self._latest

    def _open_records(self, task: Task) -> None:
        """In the main process: records as they were at the step that was restored, and the settings that count now."""
        step = self._restored_step
        if (self.dir / RESULTS).is_dir():
            raise RunError(f"{self.dir / RESULTS} is a directory, and a file is to be written there; remove it")
        self._logged_loss = self._latest.logged_loss
        if self._logged_loss is None:  # an older version saved the state
            self._logged_loss = last_train_loss(self.dir, step)
        self._recorder = Recorder(self.dir, at_step=step)
        if task.settings.cadence.keep_ledger:
            forget_behind(self.dir, step)
        config = task.config
        self.saver.run_id = self.saver.run_id or new_run_id(to_toml(config), config.data.dir)
        write_settings(self.dir, config, self.saver.run_id)  # of a run that goes on, now that it is known to

    def note(self, progress: Progress, result: StepResult) -> None:
        """One more step is done."""
        if self._world.is_main and self._latest.step == self._restored_step:
            (self.dir / RESULTS).unlink(missing_ok=True)  # those of an earlier end are not this run's any more
        self._group.reach(f"after step {progress.step:,}")
        self._latest = progress
        if self._ledger and result.fingerprint:
            self._ledger.note(progress.step, result.fingerprint())
        if self._world.is_main and self._line.wants_update:
            self._line.update(self._describe(progress))

    def log(self, progress: Progress, task: Task) -> Progress:
        """A record of the steps since the last one; the progress from which the next one is counted."""
        interval = progress.interval
        self._logged_loss = interval.loss_sum / interval.num_rows
        self.record(
            "train",
            progress.step,
            epoch=progress.epoch,
            rows=progress.num_rows,
            loss=self._logged_loss,
            rows_per_s=round(interval.num_rows / interval.train_s, 1),
            blocked_frac=round(interval.blocked_s / interval.train_s, 5),
            **task.log_values(),
        )
        self.tell(self._describe(progress))
        self._latest = progress.logged(self._logged_loss)
        return self._latest

    def log_evaluation(self, progress: Progress, evaluation: Evaluation) -> None:
        """A record of how good the model is now."""
        self.record("evaluate", progress.step, split=evaluation.split, **evaluation.as_dict())
        self.tell(f"step {progress.step:,}  {evaluation.describe()}")

    def note_evaluation(self, progress: Progress, task: Task, evaluation: Evaluation) -> Progress:
        """Record an evaluation on the way, and keep the weights if none was better; the progress behind it."""
        self.log_evaluation(progress, evaluation)
        self._evaluated = (progress.step, evaluation)
        self._latest = progress.after_evaluation(evaluation.score)
        best = self._latest.best
        if task.settings.cadence.keep_best and best and best.step == progress.step:
            self.saver.save_best(task.state, self._latest)
        return self._latest

    def evaluation_at(self, step: int) -> Evaluation | None:
        """The evaluation of the state after a step, if it has just been evaluated."""
        return self._evaluated[1] if self._evaluated and self._evaluated[0] == step else None

    def save(self, progress: Progress, task: Task) -> None:
        """Have the state put on disk, unless it is there, while training goes on."""
        self.saver.save(task.state, progress)

    def save_last(self, progress: Progress, task: Task) -> None:
        """Have the state on disk when this returns: saving a saved step is a no-op."""
        self.save(progress, task)
        complaint = self.saver.wait()
        complaints = [each for each in self._group.gather(complaint) if each]
        if complaints:
            kept = self.saver.checkpoint_dirs()
            last = f"the newest checkpoint is {kept[-1]}" if kept else "there is no checkpoint"
            raise FailureError(f"the state after step {progress.step:,} could not be saved: {complaints[0]}; {last}")

    def interrupt(self, progress: Progress, task: Task, signal_number: int) -> NoReturn:
        """Save, and end the run as it was asked to."""
        self.save_last(progress, task)
        raise Interrupted(
            f"ended as asked after step {progress.step:,}; the state is saved, go on with --resume", signal_number
        )

    @contextmanager
    def keep_last_good(self, task: Task) -> Iterator[None]:
        """If the loss stops being finite, save the state before that step, or point to the newest that is finite."""
        try:
            yield
        except NonFiniteLoss as error:
            if all(self._group.gather(task.is_finite())):
                self.save_last(self._latest, task)
            kept = self.saver.checkpoint_dirs()
            where = f"the last good state is {kept[-1]}" if kept else "no earlier state was saved"
            raise NonFiniteLoss(f"{error}\n{where}; lower the learning rates or look at the data") from None

    def finish(self, progress: Progress, task: Task) -> dict[str, Any]:
        """Evaluate, write the weights and, last and once, all results; every process of a run has to call it."""
        evaluations = [self.evaluation_at(progress.step) or task.evaluate("validation"), task.evaluate("test")]
        self.saver.write_model(task.state, progress, self.dir / MODEL)
        for evaluation in evaluations:
            if evaluation is not self.evaluation_at(progress.step):
                self.log_evaluation(progress, evaluation)
        results: dict[str, Any] = {
            "step": progress.step,
            "epoch": progress.epoch,
            "rows": progress.num_rows,
            "skipped_rows": progress.num_skipped,
            "train_s": round(progress.train_s, 3),
            "rows_per_s": round(progress.num_rows / progress.train_s, 1) if progress.train_s else None,
            "train_loss": self._train_loss(progress),
            "blocked_frac": round(progress.blocked_s / progress.train_s, 5) if progress.train_s else None,
            "ended_by": limit_reached(progress, task.settings.stop) or "max_epochs",
            "processes": self._world.size,
            **{name: value for name, value in task.log_values().items() if not name.endswith("_lr")},
            "best": self._describe_best(progress, task, evaluations),
            **{evaluation.split: evaluation.as_dict() for evaluation in evaluations},
        }
        results |= self._compare(results, task)
        results["warnings"] = find_warnings(results, task.config)
        for warning in results["warnings"]:
            self.tell(f"warning: {warning}")
        if self._world.is_main:
            results = write_results(self.dir, results)
        self._group.wait_for_all()
        return results

    def _train_loss(self, progress: Progress) -> float | None:
        """The mean loss of the steps since the last record or, without any, of those of that record."""
        interval = progress.interval
        return interval.loss_sum / interval.num_rows if interval.num_rows else self._logged_loss

    def _compare(self, results: dict[str, Any], task: Task) -> dict[str, Any]:
        """The test of the best weights, and baselines beside it; the task holds the best weights afterwards."""
        best, test_of_best, weights = results["best"], None, "last"
        if best and best["model"] == MODEL:
            test_of_best = results["test"]
        elif best and best["model"] is not None:
            with self._group.together():
                refuse_foreign_state(self.dir / best["model"], self.saver.run_id, task.config)
            read_model(self.dir / best["model"], task.state)
            evaluation, weights = task.evaluate("test"), "best"
            self.tell(f"step {best['step']:,}  {evaluation.describe()}  (the best weights on validation)")
            test_of_best = evaluation.as_dict()
        return {"test_of_best": test_of_best, **task.compare("test", weights)}

    def _describe_best(
        self, progress: Progress, task: Task, evaluations: Sequence[Evaluation]
    ) -> dict[str, Any] | None:
        """The best validation score, the end of the run included, its step, and where its weights are."""
        final = next((e.score for e in evaluations if e.split == "validation"), None)
        best = progress.after_evaluation(final).best
        if best is None:
            return None
        is_kept = self.saver.best_dir(best).is_dir()
        model = MODEL if best.step == progress.step else str(self.saver.best_dir(best).relative_to(self.dir))
        return {task.score_name: best.score, "step": best.step, "model": model if model == MODEL or is_kept else None}

    def _describe(self, progress: Progress) -> str:
        interval = progress.interval
        rows_per_s = interval.num_rows / interval.train_s if interval.train_s else 0.0
        text = (
            f"step {progress.step:,}  epoch {progress.epoch}  {progress.num_rows:,} rows  "
            f"loss {interval.loss_sum / max(1, interval.num_rows):.4f}  {rows_per_s:,.0f} rows/s  "
            f"blocked {interval.blocked_s / (interval.train_s or 1):.1%}"
        )
        if progress.num_skipped:
            text += f"  {progress.num_skipped:,} bad rows"
        if self._expected_rows and rows_per_s:
            text += f"  {format_duration(max(0, self._expected_rows - progress.num_rows) / rows_per_s)} left"
        return text
