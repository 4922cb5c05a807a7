"""A whole run: settings in, a run directory out."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from recmill.errors import ConfigError
from recmill.observe.console import ProgressLine
from recmill.settings.clicks import TrainConfig
from recmill.training.checkpoint.take_over import refuse_unfit, take_over
from recmill.training.click.assemble import assemble, table_specs
from recmill.training.click.inputs import Inputs, refuse_large_batch
from recmill.training.click.task import ClickTask
from recmill.training.loop.limits import expected_rows
from recmill.training.loop.loop import train
from recmill.training.loop.run import Run, opened_run_dir
from recmill.training.loop.signals import Signals
from recmill.training.loop.task import Task
from recmill.training.optimize.precision import refuse_on_cpu
from recmill.world import Group, World, joined, read_world


def run_job(config: TrainConfig, run_dir: Path, *, resume: bool = False, overwrite: bool = False) -> dict[str, Any]:
    """Train, evaluate on validation and test, write the run directory; what `results.json` holds."""
    world = read_world(num_gpus=torch.cuda.device_count())
    if world.device == "cpu":
        refuse_on_cpu(config.precision)
    is_sharded = uses_torchrec(config, world)
    with joined(world, is_sharded=is_sharded) as group, ExitStack() as stack:
        with group.together():  # a mistake in the settings or the data leaves no directory behind
            inputs = stack.enter_context(Inputs(config))
            refuse_large_batch(config, inputs)
            if is_sharded:
                from recmill.training.click.sharded import refuse_sharded  # TorchRec costs seconds

                refuse_sharded(config, world)
            if config.warm_start.from_dir and not resume:
                refuse_warm_start(config, run_dir)
        with group.together():
            if world.is_main:
                stack.enter_context(opened_run_dir(run_dir, config, resume=resume, overwrite=overwrite))
        with group.together():
            signals = Signals()
            task = build_task(config, inputs, group, signals, is_sharded=is_sharded)
        line = stack.enter_context(ProgressLine())
        expected = expected_rows(config.stop, config.data.global_batch, task.rows_per_epoch)
        stack.enter_context(signals.watched())
        run = stack.enter_context(Run(run_dir, task, line=line, expected_rows=expected, group=group))
        if config.warm_start.from_dir and not group.from_main(run.saver.checkpoint_dirs()):
            take_over(task.state, config.warm_start, group, run.tell)
        progress = train(run, task)
        validation = run.verdict_at(progress.step) or task.evaluate("validation")
        return run.finish(progress, task, [validation, task.evaluate("test")])


def refuse_warm_start(config: TrainConfig, run_dir: Path) -> None:
    """Complain about a beginning that cannot be, while nothing has been written and nothing deleted."""
    if Path(config.warm_start.from_dir).resolve().is_relative_to(run_dir.resolve()):
        raise ConfigError(
            f"warm_start.from_dir = {config.warm_start.from_dir} lies in {run_dir}, which the run is to write; "
            "choose another run directory, or go on with --resume"
        )
    shapes = {spec.name: (spec.num_rows, config.model.table_dim) for spec in table_specs(config)}
    refuse_unfit(config.warm_start, shapes, config)


def uses_torchrec(config: TrainConfig, world: World) -> bool:
    """Whether TorchRec holds the tables: always of several processes and on CUDA, otherwise if asked to."""
    engine, needs_it = config.sharding.engine, world.size > 1 or world.device != "cpu"
    if engine == "local" and needs_it:
        raise ConfigError(
            f"sharding.engine = local is for one process on a CPU, and this run has {world.size} on {world.device}; "
            "leave it out"
        )
    return needs_it or engine == "torchrec"


def build_task(config: TrainConfig, inputs: Inputs, group: Group, signals: Signals, *, is_sharded: bool) -> Task:
    """The model, its tables and its data, in this process or over all of them."""
    if not is_sharded:
        return ClickTask(assemble(config), inputs, signals)
    from recmill.training.click.sharded import ShardedTask, assemble_sharded  # TorchRec costs seconds

    return ShardedTask(assemble_sharded(config, group), inputs, group, signals)
