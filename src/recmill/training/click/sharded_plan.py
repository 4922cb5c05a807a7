"""What each of several processes will need, worked out before anything is allocated."""

from dataclasses import asdict, dataclass
from typing import Any

from recmill.settings.clicks import TrainConfig
from recmill.training.click.plan import make_plan
from recmill.training.click.sharded import plan_shards, refuse_sharded
from recmill.training.footprint import BASE_BYTES
from recmill.world import World

# How often the vectors that are exchanged exist: made, in the order of their receivers, received, in that of the model.
_TIMES_ON_THE_WAY = 4


@dataclass(frozen=True)
class ProcessPlan:
    """One process."""

    rank: int
    holdings: tuple[str, ...]  # tables, and which part of them
    table_bytes: int  # with what the optimizer keeps
    dense_bytes: int
    batch_bytes: int
    exchange_bytes: int
    copy_bytes: int  # of the state that is being saved, where there is room for it
    traffic_bytes: int  # received from others in a step
    total_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {**asdict(self), "holdings": list(self.holdings)}


def plan_processes(config: TrainConfig, num_procs: int, memory_bytes: int) -> list[ProcessPlan]:
    """All processes of one machine, each with so much memory."""
    world = World(size=num_procs, local_size=num_procs)
    refuse_sharded(config, world)
    shards, whole = plan_shards(config, world, memory_bytes), make_plan(config)
    batch_bytes = (whole.step_bytes + whole.evaluation_bytes) // num_procs
    num_rows = 2 * config.data.global_batch + config.data.eval_batch  # forward, backward, and in an evaluation
    layer_copy_bytes = whole.copy_bytes - whole.table_bytes
    plans = []
    for rank in range(num_procs):
        held = shards.shards_of(rank)
        holdings = tuple(place.describe(shard) for place, shard in held)
        table_bytes = shards.table_bytes(rank)
        exchange_bytes = _TIMES_ON_THE_WAY * shards.made_bytes(rank, num_rows)
        plans.append(
            ProcessPlan(
                rank,
                holdings,
                table_bytes,
                whole.dense_bytes,
                batch_bytes,
                exchange_bytes,
                copy_bytes=table_bytes + (0 if rank else layer_copy_bytes),
                traffic_bytes=shards.traffic_bytes(rank, config.data.global_batch),
                total_bytes=table_bytes + whole.dense_bytes + batch_bytes + exchange_bytes + BASE_BYTES,
            )
        )
    return plans
