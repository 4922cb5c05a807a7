"""The training loop, on one page."""

import time

from recmill.train.evaluate import evaluate
from recmill.train.inputs import Inputs
from recmill.train.limits import due, evaluation_due, limit_reached, refuse_no_step
from recmill.train.progress import Progress
from recmill.train.run import Run
from recmill.train.step import Parts, take_step


def train(run: Run, parts: Parts, inputs: Inputs) -> Progress:
    """Train from where the run stands to its first limit; the state on disk is the state returned."""
    cadence, stop = parts.config.cadence, parts.config.stop
    least_rows = parts.config.data.global_batch if parts.config.data.drop_last else 1
    rows_per_epoch = inputs.estimate_rows("train")
    progress = run.restore(parts)  # zero, or exactly where it stopped
    with inputs.open_training(progress.position) as stream, run.keep_last_good(parts):
        while not limit_reached(progress, stop):
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
            before, progress = progress, progress.after(batch, step_s=step_s, blocked_s=stream.blocked_s)
            run.note(progress, batch, loss)
            if due(cadence.log_every_steps, progress.step):
                run.log(progress, parts)
            if evaluation_due(before, progress, cadence, rows_per_epoch):
                progress = run.judge(progress, parts, evaluate(parts, inputs, "validation"))
            if due(cadence.save_every_steps, progress.step):
                run.save(progress, parts)
    run.save(progress, parts)  # saving a saved step is a no-op
    return progress
