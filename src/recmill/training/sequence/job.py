"""A whole run on sequences: settings in, a run directory out, the baselines beside its results."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from recmill.files import write_atomic
from recmill.observe.console import ProgressLine
from recmill.settings.sequences import SequenceConfig
from recmill.training.checkpoint.checkpoint import read_model
from recmill.training.loop.limits import expected_rows
from recmill.training.loop.loop import train
from recmill.training.loop.run import MODEL, RESULTS, Run, opened_run_dir
from recmill.training.sequence.evaluate import refuse_unfit_protocol
from recmill.training.sequence.sharding import spread_kind
from recmill.training.sequence.task import SequenceTask, open_sequence_task
from recmill.world import joined, read_world


def run_sequence_job(
    config: SequenceConfig, run_dir: Path, *, resume: bool = False, overwrite: bool = False
) -> dict[str, Any]:
    """Train, evaluate on validation and test, write the run directory; what `results.json` holds."""
    world = read_world()
    kind = spread_kind(config, world.size)
    with joined(world, is_sharded=kind is not None) as group, ExitStack() as stack:
        with group.together():  # a mistake in the settings or the data leaves no directory behind
            task = open_sequence_task(config, group, kind)
            refuse_unfit_protocol(config, task.prepared.sequences)
        with group.together():
            if world.is_main:
                stack.enter_context(opened_run_dir(run_dir, config, resume=resume, overwrite=overwrite))
        line = stack.enter_context(ProgressLine())
        expected = expected_rows(config.stop, config.data.global_batch, task.rows_per_epoch)
        stack.enter_context(task.signals.watched())
        run = stack.enter_context(Run(run_dir, task, line=line, expected_rows=expected, group=group))
        progress = train(run, task)
        validation = run.verdict_at(progress.step) or task.evaluate("validation")
        results = run.finish(progress, task, [validation, task.evaluate("test")])
        results = add_comparisons(results, run, task)
        if world.is_main:
            write_atomic(run_dir / RESULTS, json.dumps(results, indent=1))
        return results


def add_comparisons(results: dict[str, Any], run: Run, task: SequenceTask) -> dict[str, Any]:
    """The test of the best weights, if they are not the last ones, and of the baselines, under the same protocol."""
    best = results["best"]
    if best and best["model"] not in (None, MODEL):
        read_model(run.dir / best["model"], task.state)
        evaluation = task.evaluate("test")
        run.tell(f"step {best['step']:,}  {evaluation.describe()}  (the best weights on validation)")
        results["test_of_best"] = evaluation.as_dict()
    else:
        results["test_of_best"] = results["test"] if best and best["model"] else None
    results["baselines"] = task.judge_baselines("test")
    manifest = task.prepared.manifest
    results["data"] = {name: manifest[name] for name in ("preset", "rules", "users", "items", "events", "future_items")}
    return results
