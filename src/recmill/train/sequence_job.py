"""A whole run on sequences: settings in, a run directory out, the baselines beside its results."""

import json
from pathlib import Path
from typing import Any

from recmill.config import to_toml
from recmill.files import write_atomic
from recmill.observe.console import ProgressLine
from recmill.train.checkpoint import CONFIG, read_model
from recmill.train.lock import locked
from recmill.train.loop import train
from recmill.train.run import MODEL, RESULTS, Run, create_run_dir, refuse_file, write_environment
from recmill.train.sequence_config import SequenceConfig
from recmill.train.sequence_task import SequenceTask, open_sequence_task


def run_sequence_job(
    config: SequenceConfig, run_dir: Path, *, resume: bool = False, overwrite: bool = False
) -> dict[str, Any]:
    """Train, evaluate on validation and test, write the run directory; what `results.json` holds."""
    refuse_file(run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    with locked(run_dir), ProgressLine() as line:
        task = open_sequence_task(config)
        if resume:
            write_atomic(run_dir / CONFIG, to_toml(config))
            write_environment(run_dir)
        else:
            create_run_dir(run_dir, config, overwrite=overwrite)
        expected = expected_windows(config, task.rows_per_epoch)
        with task.signals.watched(), Run(run_dir, task, line=line, expected_rows=expected) as run:
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
