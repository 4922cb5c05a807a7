"""The training loop, on one page."""

from recmill.training.loop.limits import due, evaluation_due, limit_reached, save_due
from recmill.training.loop.run import RunWriter
from recmill.training.loop.task import Task
from recmill.training.progress import Progress


def train(run: RunWriter, task: Task) -> Progress:
    """Train from where the run stands to its first limit; the state on disk is the state returned."""
    cadence, stop = task.settings.cadence, task.settings.stop
    progress = run.restore(task)  # zero, or exactly where it stopped
    if cadence.save_at_start:
        run.save(progress, task)
    with task.open_steps(progress.position) as steps, run.keep_last_good(task):
        while not limit_reached(progress, stop):
            result = steps.take(progress.step)  # one optimizer step, forward to update
            if result is None:
                progress = progress.with_skipped(steps.trailing_skipped)
                break
            before, progress = (
                progress,
                progress.after(result.spent, loss=result.loss, step_s=result.step_s, blocked_s=result.blocked_s),
            )
            run.note(progress, result)
            if due(cadence.log_every_steps, progress.step):
                progress = run.log(progress, task)
            evaluate_now = evaluation_due(before, progress, cadence, task.rows_per_epoch)
            if evaluate_now:
                progress = run.note_evaluation(progress, task, task.evaluate("validation"))
            if save_due(before, progress, cadence, has_evaluated=evaluate_now):
                run.save(progress, task)
            if result.signal_number:
                run.interrupt(progress, task, result.signal_number)
    run.save_last(progress, task)
    return progress
