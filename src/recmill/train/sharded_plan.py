"""What each of several processes will need, worked out before anything is allocated."""

from dataclasses import asdict, dataclass
from typing import Any

from recmill.train.config import TrainConfig
from recmill.train.plan import BASE_BYTES, make_plan
from recmill.train.sharded import plan_shards, refuse_sharded
from recmill.world import World

# TorchRec, FBGEMM and the buffers of gloo, beyond what a process without them takes.
SHARDED_BASE_BYTES = 350 << 20


@dataclass(frozen=True)
class ProcessPlan:
    """One process."""

    rank: int
    holdings: tuple[str, ...]  # tables, and which part of them
    table_bytes: int  # with what the optimizer keeps
    dense_bytes: int
    batch_bytes: int
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
    batch_bytes = whole.batch_bytes // num_procs
    plans = []
    for rank in range(num_procs):
        held = shards.shards_of(rank)
        holdings = tuple(place.describe(shard) for place, shard in held)
        table_bytes = shards.table_bytes(rank)
        total = table_bytes + whole.dense_bytes + batch_bytes + BASE_BYTES + SHARDED_BASE_BYTES
        traffic = shards.traffic_bytes(rank, config.data.global_batch)
        plans.append(ProcessPlan(rank, holdings, table_bytes, whole.dense_bytes, batch_bytes, traffic, total))
    return plans
