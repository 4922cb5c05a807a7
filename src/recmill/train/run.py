"""A run directory: what a run was told, what it noted, and the states it can go on from."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
from recmill.train.checkpoint import read_checkpoint, read_progress, write_checkpoint, write_model
from recmill.train.config import TrainConfig
from recmill.train.evaluate import Evaluation
from recmill.train.limits import limit_reached
from recmill.train.progress import Best, Progress
from recmill.train.step import Parts

CONFIG = "config.toml"
RESULTS = "results.json"
CHECKPOINTS = "checkpoints"
MODEL = "model"
BEST = "best"


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


def find_best_model(run_dir: Path) -> Path:
    """The weights with the best validation AUROC of a finished run."""
    if not (run_dir / RESULTS).is_file():
        raise RunError(f"{run_dir} has no {RESULTS}: the run is not finished; go on with --resume")
    best = json.loads((run_dir / RESULTS).read_text())["best"]
    if best is None or best["model"] is None:
        raise RunError(f"{run_dir} kept no best weights (cadence.keep_best); judge the last ones without --best")
    return run_dir / str(best["model"])


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
        self._judged: tuple[int, Evaluation] | None = None
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
            **_scale_record(parts),
        )
        self._line.milestone(self._describe(progress))
        self._interval = Interval(progress)

    def log_evaluation(self, progress: Progress, evaluation: Evaluation) -> None:
        """A record of how good the model is now."""
        self.recorder.write("evaluate", progress.step, split=evaluation.split, **evaluation.as_dict())
        self._line.milestone(f"step {progress.step:,}  {evaluation.describe()}")

    def judge(self, progress: Progress, parts: Parts, evaluation: Evaluation) -> Progress:
        """Record an evaluation on the way, and keep the weights if none was better; the progress with its verdict."""
        self.log_evaluation(progress, evaluation)
        self._judged = (progress.step, evaluation)
        self._latest = progress.judged(evaluation.result.auroc)
        best = self._latest.best
        if parts.config.cadence.keep_best and best and best.step == progress.step:
            write_model(self.best_dir(best), parts, progress)
        return self._latest

    def verdict_at(self, step: int) -> Evaluation | None:
        """The evaluation of the state after a step, if it has just been judged."""
        return self._judged[1] if self._judged and self._judged[0] == step else None

    def best_dir(self, best: Best) -> Path:
        """Where the weights of the best evaluation are kept."""
        return self.dir / BEST / f"step_{best.step:010}"

    def save(self, progress: Progress, parts: Parts) -> Path:
        """Put the state on disk, unless it is there, and let go of checkpoints beyond those to keep."""
        directory = self.dir / CHECKPOINTS / f"step_{progress.step:010}"
        if progress.step != self._saved_step:  # a directory of that name may be a damaged one
            write_checkpoint(directory, parts, progress)
            self._saved_step = progress.step
        for old in self.checkpoint_dirs()[: -parts.config.cadence.keep_checkpoints]:
            shutil.rmtree(old)
        self._drop_surpassed(progress)
        return directory

    def _drop_surpassed(self, progress: Progress) -> None:
        """Let go of weights that are the best of no checkpoint from which the run might go on."""
        bests = [progress.best]
        for directory in self.checkpoint_dirs():
            with suppress(OSError, ValueError):  # a damaged one has no say
                bests.append(read_progress(directory).best)
        needed = {self.best_dir(best) for best in bests if best}
        for directory in set((self.dir / BEST).glob("step_*")) - needed:
            shutil.rmtree(directory)

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
            if evaluation is not self.verdict_at(progress.step):
                self.log_evaluation(progress, evaluation)
        results: dict[str, Any] = {
            "step": progress.step,
            "epoch": progress.epoch,
            "rows": progress.num_rows,
            "skipped_rows": progress.num_skipped,
            "train_s": round(progress.train_s, 3),
            "rows_per_s": round(progress.num_rows / progress.train_s, 1) if progress.train_s else None,
            "blocked_frac": round(progress.blocked_s / progress.train_s, 5) if progress.train_s else None,
            "ended_by": limit_reached(progress, parts.config.stop) or "max_epochs",
            **_scale_record(parts),
            "best": self._describe_best(progress, evaluations),
            **{evaluation.split: evaluation.as_dict() for evaluation in evaluations},
        }
        write_atomic(self.dir / RESULTS, json.dumps(results, indent=1))
        return results

    def _describe_best(self, progress: Progress, evaluations: Sequence[Evaluation]) -> dict[str, Any] | None:
        """The best validation AUROC, the end of the run included, its step, and where its weights are."""
        final = next((e.result.auroc for e in evaluations if e.split == "validation"), None)
        best = progress.judged(final).best
        if best is None:
            return None
        is_kept = self.best_dir(best).is_dir()
        model = MODEL if best.step == progress.step else str(self.best_dir(best).relative_to(self.dir))
        return {"auroc": best.auroc, "step": best.step, "model": model if model == MODEL or is_kept else None}

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


def _scale_record(parts: Parts) -> dict[str, Any]:
    """What a run with a loss scale tells about it."""
    scale = parts.loss_scale
    return {"loss_scale": scale.scale, "skipped_steps": scale.num_skipped} if scale else {}


def is_finite(parts: Parts) -> bool:
    """Whether every weight, and all that batch norm has measured, is a number."""
    layers = all(bool(torch.isfinite(tensor).all()) for tensor in parts.model.state_dict().values())
    return layers and all(bool(np.isfinite(parts.tables.weights(spec.name)).all()) for spec in parts.tables.specs)
