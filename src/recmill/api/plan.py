"""What a run will need, before anything is allocated."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from recmill.errors import ConfigError
from recmill.observe.html import html_table
from recmill.recipes.resolve import Overrides, config
from recmill.settings.clicks import TrainConfig
from recmill.settings.families import AnyConfig
from recmill.settings.sequences import SequenceConfig

if TYPE_CHECKING:
    from recmill.training.click.plan import ClickPlan
    from recmill.training.click.sharded_plan import ProcessPlan
    from recmill.training.sequence.plan import SequencePlan

GIB = 1 << 30


@dataclass(frozen=True)
class RunPlan:
    """What each process of a run needs, and what there is for it."""

    config: AnyConfig
    procs: int
    memory_bytes: int  # for each process
    detail: "ClickPlan | SequencePlan | tuple[ProcessPlan, ...]"

    @property
    def total_bytes(self) -> int:
        """What the largest process needs."""
        if isinstance(self.detail, tuple):
            return max(plan.total_bytes for plan in self.detail)
        return self.detail.total_bytes

    @property
    def fits(self) -> bool:
        """Whether there is memory for it."""
        return self.total_bytes <= self.memory_bytes

    @property
    def suggested_tiers(self) -> str:
        """Options with which rows lie in files and the run fits; empty if it fits, or if none help."""
        if isinstance(self.detail, tuple) or not isinstance(self.config, TrainConfig) or self.config.store.is_tiered:
            return ""
        from recmill.training.click.tier_plan import suggest_budget

        room: int = self.detail.room_for_tables(self.memory_bytes)  # type: ignore[union-attr]
        return "" if self.fits else suggest_budget(self.config, room)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        if isinstance(self.detail, tuple):
            ranks = [{**plan.as_dict(), "fits": plan.total_bytes <= self.memory_bytes} for plan in self.detail]
            return {"processes": ranks, "device_memory_bytes": self.memory_bytes, "fits": self.fits}
        if isinstance(self.config, TrainConfig):
            return {**self.detail.as_dict(self.memory_bytes), "fits": self.fits}  # type: ignore[union-attr]
        return {
            **asdict(self.detail),
            "total_bytes": self.total_bytes,
            "memory_bytes": self.memory_bytes,
            "fits": self.fits,
        }

    def _repr_html_(self) -> str:
        whether = "fits" if self.fits else "does not fit"
        rows = [(f"{self.total_bytes / GIB:.3f}", f"{self.memory_bytes / GIB:.3f}", whether)]
        return html_table(("needed GiB", "there GiB", ""), rows)


def plan(
    source: str | Path | AnyConfig,
    *,
    data: str | Path | None = None,
    overrides: Overrides = (),
    schema: str | None = None,
    items: int | None = None,
    procs: int = 1,
    memory_bytes: int | None = None,
    device_memory_bytes: int | None = None,
) -> RunPlan:
    """The memory that a run needs: of all on this machine, or of each of several processes.

    A sequence model is as large as its catalogue: give prepared `data`, or the number of `items`. `memory_bytes` is of
    the machine, `device_memory_bytes` of each process.
    """
    settings = config(source, data=data, overrides=overrides, schema=schema)
    return plan_config(settings, items, procs, memory_bytes, device_memory_bytes)


def plan_config(
    settings: AnyConfig, items: int | None, procs: int | None, memory: int | None, device_memory: int | None
) -> RunPlan:
    """The plan of resolved settings; without a number of processes, of one that has all memory."""
    if procs is not None and procs < 1:
        raise ConfigError(f"--procs is {procs}: tables are spread over at least one process; give --procs N")
    if procs is None and device_memory is not None:
        raise ConfigError("--device-memory is of each of several processes; give --procs N too")
    num_procs = procs or 1
    available = device_memory or (memory or psutil.virtual_memory().total) // num_procs
    if isinstance(settings, SequenceConfig):
        return RunPlan(settings, num_procs, available, _plan_sequences(settings, items, num_procs))
    if items is not None:
        raise ConfigError(f"--items {items} is for sequence models; leave it out")
    if procs is None or (procs == 1 and device_memory is None):
        from recmill.training.click.plan import make_plan

        return RunPlan(settings, 1, available, make_plan(settings))
    from recmill.training.click.sharded_plan import plan_processes

    return RunPlan(settings, num_procs, available, tuple(plan_processes(settings, num_procs, available)))


def _plan_sequences(settings: SequenceConfig, items: int | None, num_procs: int) -> "SequencePlan":
    from recmill.data.events.prepare import open_prepared_sequences
    from recmill.training.sequence.plan import make_sequence_plan
    from recmill.training.sequence.sharding import spread_kind

    if (items is None) == (not settings.data.dir):
        raise ConfigError("a sequence model is as large as its catalogue: give --data DIR or --items N, one of them")
    if items is not None and items < 1:
        raise ConfigError(f"--items {items}: a catalogue has at least one item")
    num_items, num_trained = items, None
    if num_items is None:
        sequences = open_prepared_sequences(Path(settings.data.dir)).sequences
        num_items, num_trained = sequences.num_items, int(sequences.train_lengths.sum())
    spread_kind(settings, num_procs)  # refuses what a run would refuse
    return make_sequence_plan(settings, num_items, num_procs, num_trained)
