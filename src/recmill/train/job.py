"""A whole run: settings in, a run directory out."""

from pathlib import Path
from typing import Any

from recmill.config import to_toml
from recmill.files import write_atomic
from recmill.observe.console import ProgressLine
from recmill.train.assemble import assemble
from recmill.train.checkpoint import CONFIG
from recmill.train.click import ClickTask
from recmill.train.config import TrainConfig
from recmill.train.inputs import Inputs
from recmill.train.lock import locked
from recmill.train.loop import train
from recmill.train.precision import refuse_on_cpu
from recmill.train.run import Run, create_run_dir, refuse_file, write_environment


def run_job(config: TrainConfig, run_dir: Path, *, resume: bool = False, overwrite: bool = False) -> dict[str, Any]:
    """Train, evaluate on validation and test, write the run directory; what `results.json` holds."""
    refuse_on_cpu(config.precision)
    refuse_file(run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    with locked(run_dir), Inputs(config) as inputs, ProgressLine() as line:
        if resume:
            write_atomic(run_dir / CONFIG, to_toml(config))
            write_environment(run_dir)
        else:
            create_run_dir(run_dir, config, overwrite=overwrite)
        task = ClickTask(assemble(config), inputs)
        rows_per_epoch = task.rows_per_epoch
        expected = expected_rows(config, rows_per_epoch)
        if config.data.global_batch > rows_per_epoch:
            line.milestone(
                f"warning: data.global_batch = {config.data.global_batch:,} is more than the about {rows_per_epoch:,} "
                "rows there are to train on, so that a step takes them all; lower data.global_batch"
            )
        with task.signals.watched(), Run(run_dir, task, line=line, expected_rows=expected) as run:
            progress = train(run, task)
            validation = run.verdict_at(progress.step) or task.evaluate("validation")
            return run.finish(progress, task, [validation, task.evaluate("test")])


def expected_rows(config: TrainConfig, rows_per_epoch: int) -> int | None:
    """About how many rows the run will train on; None if only time limits it."""
    stop = config.stop
    limits = (stop.max_epochs * rows_per_epoch, stop.max_steps * config.data.global_batch, stop.max_rows)
    return min((limit for limit in limits if limit), default=None)
