"""What a run will need, worked out from its settings before anything is allocated."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from recmill.settings.clicks import TrainConfig
from recmill.training.click.assemble import build_model, count_inputs
from recmill.training.click.tier_plan import TierPlan, plan_tiers, suggest_budget
from recmill.training.footprint import BASE_BYTES, FLOAT_BYTES, Need, lower_batch, refuse_too_large

_SAMPLE_ROWS = 4


@dataclass(frozen=True)
class TablePlan:
    """One embedding table."""

    name: str
    num_rows: int
    dim: int
    state_width: int  # numbers that are kept for a row besides: by the optimizer, and to know its rate and its mean

    @property
    def weight_bytes(self) -> int:
        """Of its vectors."""
        return self.num_rows * self.dim * FLOAT_BYTES

    @property
    def total_bytes(self) -> int:
        """With all that is kept for its rows."""
        return self.weight_bytes + self.num_rows * self.state_width * FLOAT_BYTES


@dataclass(frozen=True)
class ClickPlan:
    """The memory and the arithmetic of a run."""

    tables: tuple[TablePlan, ...]
    dense_parameters: int
    dense_state_width: int  # numbers the optimizer keeps for a parameter
    flops_per_row: int  # of a forward pass through the layers; a training step is about three times that
    step_bytes: int  # of a batch forward and backward
    evaluation_bytes: int  # of a batch forward alone
    tiers: TierPlan | None = None

    @property
    def batch_bytes(self) -> int:
        """Of a step or an evaluation, whichever takes more."""
        return max(self.step_bytes, self.evaluation_bytes)

    @property
    def num_rows(self) -> int:
        """Of all tables."""
        return sum(table.num_rows for table in self.tables)

    @property
    def weight_bytes(self) -> int:
        """Of all tables, without the optimizer's state."""
        return sum(table.weight_bytes for table in self.tables)

    @property
    def dense_bytes(self) -> int:
        """Weights of the layers, their gradients, and what the optimizer keeps."""
        return self.dense_parameters * (2 + self.dense_state_width) * FLOAT_BYTES

    @property
    def table_bytes(self) -> int:
        """Of all tables, with all that is kept for their rows."""
        return sum(table.total_bytes for table in self.tables)

    @property
    def held_bytes(self) -> int:
        """What of all tables is in memory."""
        return self.tiers.memory_bytes if self.tiers else self.table_bytes

    @property
    def total_bytes(self) -> int:
        """What a process needs; the memory a step has freed is kept for the next, and does not fit an evaluation."""
        return self.held_bytes + self.dense_bytes + self.step_bytes + self.evaluation_bytes + BASE_BYTES

    @property
    def copy_bytes(self) -> int:
        """What a saved state is copied to first, where there is room for it."""
        layers = self.dense_parameters * (1 + self.dense_state_width) * FLOAT_BYTES
        is_copied = self.tiers is None or self.tiers.kind == "cached_host_mem"  # files are linked
        return layers + (self.table_bytes if is_copied else 0)

    def as_dict(self, memory: int) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {
            "tables": [
                {
                    "name": t.name,
                    "rows": t.num_rows,
                    "dim": t.dim,
                    "weight_bytes": t.weight_bytes,
                    "bytes": t.total_bytes,
                }
                for t in self.tables
            ],
            "rows": self.num_rows,
            "weight_bytes": self.weight_bytes,
            "table_bytes": self.table_bytes,
            "dense_parameters": self.dense_parameters,
            "dense_bytes": self.dense_bytes,
            "batch_bytes": self.batch_bytes,
            "flops_per_row": self.flops_per_row,
            "total_bytes": self.total_bytes,
            "copy_bytes": self.copy_bytes,
            "memory_bytes": memory,
            "max_rows_per_table": self.largest_cap(memory),
            **({"tiers": self.tiers.as_dict()} if self.tiers else {}),
        }

    def largest_cap(self, memory_bytes: int) -> int | None:
        """The largest data.max_rows_per_table with which the run fits, or None if not even small tables help."""
        return self._largest_cap(memory_bytes - (self.total_bytes - self.held_bytes))

    def lower_tables(self, room: int) -> str:
        """What to do so that the tables take no more than this."""
        cap = self._largest_cap(room)
        way_out = f"set data.max_rows_per_table={cap} or less" if cap else "lower model.embedding_dim"
        return f"{way_out}, or spread the tables over machines"

    def room_for_tables(self, memory_bytes: int) -> int:
        """What there is for them beside all else."""
        return memory_bytes - (self.total_bytes - self.held_bytes)

    def _largest_cap(self, room: int) -> int | None:
        def fits(cap: int) -> bool:
            capped = (min(table.num_rows, cap) * (table.total_bytes // table.num_rows) for table in self.tables)
            return sum(capped) <= room

        if not fits(2):
            return None
        low, high = 2, max(table.num_rows for table in self.tables)  # the first fits
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return high if fits(high) else low


def plan_tables(config: TrainConfig) -> tuple[TablePlan, ...]:
    """All tables with what is kept for their rows; nothing is built."""
    dim = config.model.table_dim
    state_width = config.tables.state_width(dim) + 2 * config.model.target_encoding_folds
    state_width += dim * (config.average.from_step > 0)
    names, sizes = config.data.schema_of_rows.category_names, config.data.num_table_rows
    return tuple(TablePlan(name, rows, dim, state_width) for name, rows in zip(names, sizes, strict=True))


def refuse_large_run(config: TrainConfig, memory_bytes: int, num_procs: int = 1) -> None:
    """Complain about a run of which one of so many processes needs more than all memory that it can have.

    Tables are left out if there are several processes: where theirs go is planned by what memory each has.
    """
    plan = make_plan(config)
    needs = [
        Need("layers", plan.dense_bytes, lambda _room: "make the layers of [model] smaller"),
        _batch_need("a training step", plan.step_bytes // num_procs, "data.global_batch", config.data.global_batch),
        _batch_need("an evaluation", plan.evaluation_bytes // num_procs, "data.eval_batch", config.data.eval_batch),
    ]
    if num_procs == 1 and plan.tiers:
        needs.insert(0, Need("cached rows", plan.held_bytes, plan.tiers.lower_cache))
    elif num_procs == 1:
        needs.insert(0, Need("embedding tables", plan.table_bytes, lambda room: _lower_tables(plan, config, room)))
    refuse_too_large(needs, memory_bytes)


def _lower_tables(plan: ClickPlan, config: TrainConfig, room: int) -> str:
    tiers = suggest_budget(config, room)
    return f"keep rows in files with {tiers}, or {plan.lower_tables(room)}" if tiers else plan.lower_tables(room)


def _batch_need(what: str, num_bytes: int, setting: str, batch: int) -> Need:
    return Need(what, num_bytes, lower_batch(setting, batch, num_bytes))


def make_plan(config: TrainConfig) -> ClickPlan:
    """Of one process; the layers are built without their values to be counted, the tables are not.

    Layers of a user's own are not known by the settings, and count as none.
    """
    data, dim, tables = config.data, config.model.table_dim, plan_tables(config)
    is_averaged = config.average.from_step > 0
    with torch.device("meta"):
        model = nn.Identity() if config.model.kind == "custom" else build_model(config)
    num_inputs = count_inputs(config)
    flops, activations = (0, 0) if config.model.kind == "custom" else _count(model, num_inputs, len(tables), dim)
    input_bytes = 8 * sum(data.slots_per_column) + FLOAT_BYTES * num_inputs
    forward_bytes = FLOAT_BYTES * (len(tables) * dim + activations)
    # a step has vectors and activations once forward and once backward, an evaluation forward alone
    rows_at_a_time = -(-data.global_batch // config.update.micro_batches)
    step_bytes = input_bytes * data.global_batch + 2 * forward_bytes * rows_at_a_time
    evaluation_bytes = (input_bytes + forward_bytes) * data.eval_batch
    return ClickPlan(
        tables,
        sum(parameter.numel() for parameter in model.parameters()),
        config.dense.state_width + is_averaged,
        flops,
        step_bytes,
        evaluation_bytes,
        plan_tiers(config),
    )


def _count(model: torch.nn.Module, num_inputs: int, num_categories: int, dim: int) -> tuple[int, int]:
    """Floating-point operations and numbers that come out of layers, per row of a forward pass."""
    outputs = list[int]()

    def note(_module: object, _inputs: object, output: torch.Tensor, *, of: Sequence[object]) -> None:
        if not of:  # a module that holds others hands on what they made
            outputs.append(output.numel())

    for module in model.modules():
        module.register_forward_hook(partial(note, of=list(module.children())))
    # in double precision all goes through torch's own operations, which are the ones it counts
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.double()(
            torch.zeros(_SAMPLE_ROWS, num_inputs, dtype=torch.float64, device="meta"),
            torch.zeros(_SAMPLE_ROWS, num_categories, dim, dtype=torch.float64, device="meta"),
        )
    return counter.get_total_flops() // _SAMPLE_ROWS, sum(outputs) // _SAMPLE_ROWS
