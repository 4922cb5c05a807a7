"""When things are due, and when a run is over: pure functions of how far it has come."""

from typing import Protocol

from recmill.errors import ConfigError
from recmill.settings.run import Cadence, Stop
from recmill.training.progress import Progress


def due(every_steps: int, step: int) -> bool:
    """Whether something that happens every so many steps happens now; every 0 steps is never."""
    return every_steps > 0 and step % every_steps == 0


def evaluation_due(before: Progress, now: Progress, cadence: Cadence, rows_per_epoch: int) -> bool:
    """Whether the step between the two calls for an evaluation."""
    every = cadence.evaluate_every_epochs
    if due(cadence.evaluate_every_steps, now.step):
        return True
    if every == 0:
        return False
    if every == int(every):  # passes over the data are counted, parts of one only estimated
        return now.epoch // every > before.epoch // every
    rows = every * max(1, rows_per_epoch)
    return now.num_rows // rows > before.num_rows // rows


def save_due(before: Progress, now: Progress, cadence: Cadence, *, has_evaluated: bool) -> bool:
    """Whether the step between the two calls for a checkpoint."""
    every_s = 60 * cadence.save_every_minutes
    return (
        due(cadence.save_every_steps, now.step)
        or (has_evaluated and cadence.save_after_evaluation)
        or (every_s > 0 and now.train_s // every_s > before.train_s // every_s)
    )


def limit_reached(progress: Progress, stop: Stop) -> str | None:
    """The setting that ends the run here, if one does; the end of the last epoch is the stream's to say."""
    spent_and_limit = {
        "max_steps": (progress.step, stop.max_steps),
        "max_rows": (progress.num_rows, stop.max_rows),
        "max_minutes": (progress.train_s, 60 * stop.max_minutes),
        "target_auroc": (progress.best.score if progress.best else 0.0, stop.target_auroc),
        "patience": (progress.num_worse, stop.patience),
    }
    return next((name for name, (spent, limit) in spent_and_limit.items() if limit and spent >= limit), None)


class BatchSettings(Protocol):
    """What the data of every job say about batches."""

    @property
    def global_batch(self) -> int:
        """Rows of a full one."""

    @property
    def drop_last(self) -> bool:
        """Whether only full ones are trained on."""


def least_rows(data: BatchSettings) -> int:
    """How many rows a batch has at least to be trained on."""
    return data.global_batch if data.drop_last else 1


def share_of_full(num_rows: int, global_batch: int) -> float:
    """By how much the mean loss of a batch counts: a row of a short last one weighs as much as any other, not more."""
    return min(1.0, num_rows / global_batch)


def refuse_no_step(step: int, least_rows: int) -> None:
    """Complain if a run would drop the only batch it has."""
    if step == 0:
        raise ConfigError(
            f"data.drop_last leaves nothing to train on: the first batch has fewer than data.global_batch = "
            f"{least_rows:,} rows; lower data.global_batch or leave out data.drop_last"
        )


def expected_rows(stop: Stop, global_batch: int, rows_per_epoch: int) -> int | None:
    """About how many rows, or windows, a run will train on; None if only time limits it."""
    limits = (stop.max_epochs * rows_per_epoch, stop.max_steps * global_batch, stop.max_rows)
    return min((limit for limit in limits if limit), default=None)
