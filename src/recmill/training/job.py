"""A whole run of any family: settings in, a run directory out; and a finished run opened again."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch

from recmill.models.click.own import BuildLayers
from recmill.observe.console import ProgressLine
from recmill.observe.environment import source_version
from recmill.run_stamp import facts_of_data
from recmill.settings.changes import common_settings
from recmill.settings.families import AnyConfig, FamilyName, family_of
from recmill.settings.run import WarmStart
from recmill.training.checkpoint.checkpoint import read_model
from recmill.training.checkpoint.take_over import refuse_inside, take_over
from recmill.training.device import choose_gpus, has_torchrec
from recmill.training.loop.limits import expected_rows
from recmill.training.loop.loop import train
from recmill.training.loop.run import RunWriter, opened_run_dir
from recmill.training.loop.signals import Signals
from recmill.training.loop.task import Task
from recmill.world import Group, World, joined, read_world

NO_WARM_START = WarmStart()
# By family, "module:class" of its job: a family is chosen without importing the other.
JOBS: dict[FamilyName, str] = {
    "click": "recmill.training.click.job:ClickJob",
    "sequence": "recmill.training.sequence.job:SequenceJob",
}


class FamilyJob(Protocol):
    """What families do differently: which data they open, what they check, and the task they build."""

    def uses_torchrec(self, world: World) -> bool:
        """Whether TorchRec holds the tables."""

    def verify(self) -> None:
        """Compare the checksums of prepared files, as the settings say."""

    def opened(self, *, is_verified: bool = False) -> AbstractContextManager[None]:
        """A body in which the data is open; checksums that are verified are not compared again."""

    def refuse_unfit(self, world: World) -> None:
        """Complain about settings or data that a run could not train with, before anything is written."""

    def refuse_warm_start(self, settings: WarmStart) -> None:
        """Complain about weights that the run could not begin with."""

    def keep_values(self, run_dir: Path) -> None:
        """Write what tells people which values the rows of tables stand for, if the run has to keep it."""

    def build_task(self, group: Group, signals: Signals, *, is_new: bool, run_dir: Path | None = None) -> Task:
        """The model with its first values; those that take long are left out if it is not new.

        Only what is trained has a run directory, where it may put what does not fit into memory.
        """


def open_job(config: AnyConfig, build_layers: BuildLayers | None = None) -> FamilyJob:
    """The job of the settings' family."""
    module, name = JOBS[family_of(config).name].split(":")
    job: FamilyJob = getattr(import_module(module), name)(config, build_layers)
    return job


def read_own_world(config: AnyConfig) -> World:
    """Who this process is among those of its run, and where it computes."""
    num_gpus = choose_gpus(config.device, torch.cuda.device_count(), is_torchrec_there=has_torchrec())
    return read_world(num_gpus=0 if family_of(config).name == "sequence" else num_gpus)


def run_job(
    config: AnyConfig,
    run_dir: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    build_layers: BuildLayers | None = None,
    line: ProgressLine | None = None,
) -> dict[str, Any]:
    """Train, evaluate on validation and test, write the run directory; what `results.json` holds."""
    run_dir, job, world = Path(run_dir), open_job(config, build_layers), read_own_world(config)
    warm_start: WarmStart = getattr(config, "warm_start", NO_WARM_START)
    is_sharded, facts = job.uses_torchrec(world), common_facts(config, run_dir, world) if world.size > 1 else {}
    with (
        joined(world, is_sharded=is_sharded, timeout_s=config.world.timeout_s, facts=facts) as group,
        ExitStack() as stack,
    ):
        group.reach("reading checksums")
        with group.together():
            if world.local_rank == 0:  # one process reads all files of a machine; the others wait
                job.verify()
        group.reach("opening the data")
        with group.together():  # a mistake in the settings or the data leaves no directory behind
            stack.enter_context(job.opened(is_verified=True))
            job.refuse_unfit(world)
            if warm_start.from_dir and not resume:
                refuse_inside(warm_start, run_dir)
                job.refuse_warm_start(warm_start)
        with group.together():
            if world.is_main:
                stack.enter_context(opened_run_dir(run_dir, config, resume=resume, overwrite=overwrite))
                job.keep_values(run_dir)
        group.reach("building the model")
        with group.together():
            signals = Signals()
            task = job.build_task(group, signals, is_new=True, run_dir=run_dir)
        shown = stack.enter_context(line or ProgressLine())
        expected = expected_rows(config.stop, config.data.global_batch, task.rows_per_epoch)
        stack.enter_context(signals.watched())
        run = stack.enter_context(RunWriter(run_dir, task, line=shown, expected_rows=expected, group=group))
        if warm_start.from_dir and not group.from_main(run.saver.checkpoint_dirs()):
            take_over(task.state, warm_start, group, run.tell)
        return run.finish(train(run, task), task)


def common_facts(config: AnyConfig, run_dir: Path, world: World) -> dict[str, str]:
    """What all processes of a run have to have in common: version, settings, data, and which run it is."""
    facts = {"version": source_version(), **common_settings(config), "--run": run_dir.resolve().name}
    facts["device"] = world.device.partition(":")[0]
    for name in ("dir", "vocabulary"):
        if path := getattr(config.data, name, ""):
            facts |= facts_of_data(f"data.{name}", Path(path))
    return facts


@contextmanager
def trained_task(
    config: AnyConfig, weights_dir: Path, build_layers: BuildLayers | None = None, *, is_own_data: bool = True
) -> Iterator[Task]:
    """The task of a run with weights that it has saved, in this process alone; on its own data, or on others."""
    alone = config.with_({"sharding": {"engine": "auto", "kind": "auto"}, "device": "cpu"})  # however it was trained
    job = open_job(alone, build_layers)
    with job.opened():
        task = job.build_task(Group(), Signals(), is_new=False)
        read_model(weights_dir, task.state, is_own_data=is_own_data)
        yield task
