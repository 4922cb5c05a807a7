"""The training loop, on one page."""

import time

from recmill.errors import ConfigError
from recmill.train.config import Stop
from recmill.train.evaluate import evaluate
from recmill.train.inputs import Inputs
from recmill.train.progress import Progress
from recmill.train.run import Run
from recmill.train.step import Parts, take_step


def train(run: Run, parts: Parts, inputs: Inputs) -> Progress:
    """Train from where the run stands to its first limit; the state on disk is the state returned."""
    cadence, stop = parts.config.cadence, parts.config.stop
    least_rows = parts.config.data.global_batch if parts.config.data.drop_last else 1
    progress = run.restore(parts)  # zero, or exactly where it stopped
    with inputs.open_training(progress.position) as stream, run.keep_last_good(parts):
        while not is_over(progress, stop):
            began = time.perf_counter()
            batch = next(stream, None)
            if batch is None:
                progress = progress.with_skipped(stream.trailing_skipped)
                break
            if batch.num_rows < least_rows:
                refuse_no_step(progress, least_rows)
                break  # its rows are not spent: who goes on with more epochs trains on them
            loss = take_step(parts, batch, progress.step)
            step_s = time.perf_counter() - began
            progress = progress.after(batch, step_s=step_s, blocked_s=stream.blocked_s)
            run.note(progress, batch, loss)
            if due(cadence.log_every_steps, progress.step):
                run.log(progress, parts)
            if due(cadence.evaluate_every_steps, progress.step):
                run.log_evaluation(progress, evaluate(parts, inputs, "validation"))
            if due(cadence.save_every_steps, progress.step):
                run.save(progress, parts)
    run.save(progress, parts)  # saving a saved step is a no-op
    return progress


def due(every_steps: int, step: int) -> bool:
    """Whether something that happens every so many steps happens now; every 0 steps is never."""
    return every_steps > 0 and step % every_steps == 0


def is_over(progress: Progress, stop: Stop) -> bool:
    """Whether a limit has been reached; the end of the last epoch is the stream's to say."""
    spent_and_limit = (
        (progress.step, stop.max_steps),
        (progress.num_rows, stop.max_rows),
        (progress.train_s, 60 * stop.max_minutes),
    )
    return any(limit and spent >= limit for spent, limit in spent_and_limit)


def refuse_no_step(progress: Progress, least_rows: int) -> None:
    """Complain if a run would drop the only batch it has."""
    if progress.step == 0:
        raise ConfigError(
            f"data.drop_last leaves nothing to train on: the first batch has fewer than data.global_batch = "
            f"{least_rows:,} rows; lower data.global_batch or leave out data.drop_last"
        )
