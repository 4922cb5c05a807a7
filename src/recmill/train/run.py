"""A run directory: what a run was told, what it noted, and the states it can go on from."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from recmill.config import from_tree, read_toml, to_toml
from recmill.data.batch import Batch
from recmill.errors import NonFiniteLoss, RunError
from recmill.files import write_atomic
from recmill.observe.console import ProgressLine, format_duration
from recmill.observe.environment import describe_environment
from recmill.observe.record import Recorder
from recmill.train.checkpoint import read_checkpoint, write_checkpoint, write_model
from recmill.train.config import TrainConfig
from recmill.train.evaluate import Evaluation
from recmill.train.progress import Progress
from recmill.train.step import Parts

CONFIG = "config.toml"
RESULTS = "results.json"
CHECKPOINTS = "checkpoints"
MODEL = "model"


def create_run_dir(run_dir: Path, config: TrainConfig, *, overwrite: bool) -> None:
    """An empty run directory with its settings and environment; an occupied one is refused or, if asked, emptied."""
    if run_dir.exists() and not run_dir.is_dir():
        raise RunError(f"{run_dir} is a file; --run takes a directory")
    if run_dir.is_dir() and any(run_dir.iterdir()):
        if not overwrite:
            raise RunError(f"{run_dir} is not empty; continue it with --resume, replace it with --overwrite")
        if not (run_dir / CONFIG).is_file():
            raise RunError(f"{run_dir} is not a run directory (it has no {CONFIG}); --overwrite will not delete it")
        shutil.rmtree(run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    write_atomic(run_dir / CONFIG, to_toml(config))
    write_environment(run_dir)


def write_environment(run_dir: Path) -> None:
    """Record the machine, the versions and the command line."""
    write_atomic(run_dir / "environment.json", json.dumps(describe_environment(), indent=1))


def read_run_config(run_dir: Path) -> TrainConfig:
    """The settings a run was made with."""
    if not (run_dir / CONFIG).is_file():
        raise RunError(f"{run_dir} is not a run directory: it has no {CONFIG}")
    return from_tree(TrainConfig, read_toml(run_dir / CONFIG))


@dataclass
class Interval:
    """What has been noted since the last log record."""

    since: Progress
    loss_sum: float = 0.0


class Run:
    """Writes what happens into the run directory and onto the screen."""

    def __init__(self, run_dir: Path, *, expected_rows: int | None, line: ProgressLine) -> None:
        self.dir = run_dir
        self._expected_rows = expected_rows
        self._line = line
        self._latest = Progress()
        self._interval = Interval(self._latest)
        self._saved_step: int | None = None
        self._recorder: Recorder | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._recorder:
            self._recorder.close()

    @property
    def recorder(self) -> Recorder:
        """Where records go, from the step the run was restored at."""
        if self._recorder is None:
            self._recorder = Recorder(self.dir, at_step=self._latest.step)
        return self._recorder

    def checkpoint_dirs(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return sorted((self.dir / CHECKPOINTS).glob("step_*"))

    def restore(self, parts: Parts) -> Progress:
        """Fill the parts from the newest intact checkpoint; zero progress if there is none."""
        for directory in reversed(self.checkpoint_dirs()):
            try:
                self._latest = read_checkpoint(directory, parts)
            except RunError as error:
                self._line.milestone(f"warning: {error}; falling back on the checkpoint before it")
                continue
            self._saved_step = self._latest.step
            self._line.milestone(f"resumed from {directory} ({self._latest.num_rows:,} rows trained)")
            break
        self._interval = Interval(self._latest)
        return self._latest

    def note(self, progress: Progress, batch: Batch, loss: float) -> None:
        """One more step is done."""
        self._latest = progress
        self._interval.loss_sum += loss * batch.num_rows
        if self._line.wants_update:
            self._line.update(self._describe(progress))

    def log(self, progress: Progress, parts: Parts) -> None:
        """A record of the steps since the last one."""
        since, interval_s = self._interval.since, progress.train_s - self._interval.since.train_s
        num_rows = progress.num_rows - since.num_rows
        self.recorder.write(
            "train",
            progress.step,
            epoch=progress.epoch,
            rows=progress.num_rows,
            loss=self._interval.loss_sum / num_rows,
            rows_per_s=round(num_rows / interval_s, 1),
            blocked_frac=round((progress.blocked_s - since.blocked_s) / interval_s, 5),
            dense_lr=parts.optimizer.param_groups[0]["lr"],
            table_lr=parts.tables.lr,
        )
        self._line.milestone(self._describe(progress))
        self._interval = Interval(progress)

    def log_evaluation(self, progress: Progress, evaluation: Evaluation) -> None:
        """A record of how good the model is now."""
        self.recorder.write("evaluate", progress.step, split=evaluation.split, **evaluation.as_dict())
        self._line.milestone(f"step {progress.step:,}  {evaluation.describe()}")

    def save(self, progress: Progress, parts: Parts) -> Path:
        """Put the state on disk, unless it is there, and let go of checkpoints beyond those to keep."""
        directory = self.dir / CHECKPOINTS / f"step_{progress.step:010}"
        if progress.step != self._saved_step:  # a directory of that name may be a damaged one
            write_checkpoint(directory, parts, progress)
            self._saved_step = progress.step
        for old in self.checkpoint_dirs()[: -parts.config.cadence.keep_checkpoints]:
            shutil.rmtree(old)
        return directory

    @contextmanager
    def keep_last_good(self, parts: Parts) -> Iterator[None]:
        """If the loss stops being finite, save the state before that step, or point to the newest that is finite."""
        try:
            yield
        except NonFiniteLoss as error:
            if is_finite(parts):
                self.save(self._latest, parts)
            kept = self.checkpoint_dirs()
            where = f"the last good state is {kept[-1]}" if kept else "no earlier state was saved"
            raise NonFiniteLoss(f"{error}\n{where}; lower the learning rates or look at the data") from None

    def finish(self, progress: Progress, parts: Parts, evaluations: Sequence[Evaluation]) -> dict[str, Any]:
        """Write the weights and the final results."""
        write_model(self.dir / MODEL, parts, progress)
        for evaluation in evaluations:
            self.log_evaluation(progress, evaluation)
        results: dict[str, Any] = {
            "step": progress.step,
            "epoch": progress.epoch,
            "rows": progress.num_rows,
            "skipped_rows": progress.num_skipped,
            "train_s": round(progress.train_s, 3),
            "rows_per_s": round(progress.num_rows / progress.train_s, 1) if progress.train_s else None,
            "blocked_frac": round(progress.blocked_s / progress.train_s, 5) if progress.train_s else None,
            **{evaluation.split: evaluation.as_dict() for evaluation in evaluations},
        }
        write_atomic(self.dir / RESULTS, json.dumps(results, indent=1))
        return results

    def _describe(self, progress: Progress) -> str:
        since, interval_s = self._interval.since, progress.train_s - self._interval.since.train_s
        num_rows = progress.num_rows - since.num_rows
        rows_per_s = num_rows / interval_s if interval_s else 0.0
        text = (
            f"step {progress.step:,}  epoch {progress.epoch}  {progress.num_rows:,} rows  "
            f"loss {self._interval.loss_sum / max(1, num_rows):.4f}  {rows_per_s:,.0f} rows/s  "
            f"blocked {(progress.blocked_s - since.blocked_s) / (interval_s or 1):.1%}"
        )
        if progress.num_skipped:
            text += f"  {progress.num_skipped:,} bad rows"
        if self._expected_rows and rows_per_s:
            text += f"  {format_duration(max(0, self._expected_rows - progress.num_rows) / rows_per_s)} left"
        return text


def is_finite(parts: Parts) -> bool:
    """Whether every weight, and all that batch norm has measured, is a number."""
    layers = all(bool(torch.isfinite(tensor).all()) for tensor in parts.model.state_dict().values())
    return layers and all(bool(np.isfinite(parts.tables.weights(spec.name)).all()) for spec in parts.tables.specs)
