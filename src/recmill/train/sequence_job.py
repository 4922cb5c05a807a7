"""A whole run on sequences: settings in, a run directory out, the baselines beside its results."""

import json
from pathlib import Path
from typing import Any

from recmill.errors import ConfigError
from recmill.files import write_atomic
from recmill.observe.console import ProgressLine
from recmill.train.checkpoint import read_model
from recmill.train.loop import train
from recmill.train.run import MODEL, RESULTS, Run, opened_run_dir
from recmill.train.sequence_config import SequenceConfig
from recmill.train.sequence_task import SequenceTask, open_sequence_task
from recmill.world import read_world


def run_sequence_job(
    config: SequenceConfig, run_dir: Path, *, resume: bool = False, overwrite: bool = False
) -> dict[str, Any]:
    """Train, evaluate on validation and test, write the run directory; what `results.json` holds."""
    world = read_world()
    if world.size > 1:
        raise ConfigError(
            f"sequence models train in one process, and this is number {world.rank} of {world.size}; leave out --procs"
        )
    with ProgressLine() as line:
        task = open_sequence_task(config)  # a mistake in the settings or the data leaves no directory behind
        expected = expected_windows(config, task.rows_per_epoch)
        with (
            opened_run_dir(run_dir, config, resume=resume, overwrite=overwrite),
            task.signals.watched(),
            Run(run_dir, task, line=line, expected_rows=expected) as run,
        ):
            progress = train(run, task)
            validation = run.verdict_at(progress.step) or task.evaluate("validation")
            results = run.finish(progress, task, [validation, task.evaluate("test")])
            return add_comparisons(results, run_dir, task, line)


def add_comparisons(results: dict[str, Any], run_dir: Path, task: SequenceTask, line: ProgressLine) -> dict[str, Any]:
    """The test of the best weights, if they are not the last ones, and of the baselines, under the same protocol."""
    best = results["best"]
    if best and best["model"] not in (None, MODEL):
        read_model(run_dir / best["model"], task.state)
        evaluation = task.evaluate("test")
        line.milestone(f"step {best['step']:,}  {evaluation.describe()}  (the best weights on validation)")
        results["test_of_best"] = evaluation.as_dict()
    else:
        results["test_of_best"] = results["test"] if best and best["model"] else None
    results["baselines"] = task.judge_baselines("test")
    manifest = task.prepared.manifest
    results["data"] = {name: manifest[name] for name in ("preset", "rules", "users", "items", "events", "future_items")}
    write_atomic(run_dir / RESULTS, json.dumps(results, indent=1))
    return results


def expected_windows(config: SequenceConfig, windows_per_epoch: int) -> int | None:
    """About how many windows the run will train on; None if only time limits it."""
    stop = config.stop
    limits = (stop.max_epochs * windows_per_epoch, stop.max_steps * config.data.global_batch, stop.max_rows)
    return min((limit for limit in limits if limit), default=None)
