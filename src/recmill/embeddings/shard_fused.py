"""Tables in TorchRec's hands, whatever they are looked up by: their owner, their learning rate and their pieces.

TorchRec's planner takes dense kernels on a CPU if it may, and then the rule that was asked for is not the one that
moves the tables; every kernel is therefore told to be a fused one, and checked.
"""

import logging
import warnings
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import nn
from torch.distributed._shard.metadata import ShardMetadata
from torchrec.distributed.batched_embedding_kernel import BatchedFusedEmbedding, BatchedFusedEmbeddingBag
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import (
    EmbeddingModuleShardingPlan,
    EnumerableShardingSpec,
    ParameterSharding,
    ShardingEnv,
    ShardingPlan,
)
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from recmill.embeddings.piece import Piece, What
from recmill.embeddings.plan import ShardPlan, refuse_rule
from recmill.errors import ConfigError
from recmill.settings.optimizers import TableOptimizer
from recmill.settings.table_rules import TABLE_RULES
from recmill.world import World

# What they say of themselves while they are loaded and plan is for their authors.
for _name in ("torchrec", "torch.fx._symbolic_trace"):
    logging.getLogger(_name).setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module=r"torchrec|fbgemm_gpu|torch\.(fx|distributed|autograd)")

TABLES = "tables"  # what a module that is to be spread calls its tables
M = TypeVar("M", bound=nn.Module)


def _to_torchrec(plan: ShardPlan, device: str) -> ShardingPlan:
    module = EmbeddingModuleShardingPlan()
    num_gpus = torch.cuda.device_count()
    for place in plan.placements:
        if place.kind == "data_parallel":
            continue  # `CopiedTables` has them
        ranks = [shard.rank for shard in place.shards]
        parts = [
            ShardMetadata(
                shard_offsets=[shard.first_row, shard.first_column],
                shard_sizes=[shard.num_rows, shard.num_columns],
                placement=f"rank:{shard.rank}/" + ("cpu" if device == "cpu" else f"cuda:{shard.rank % num_gpus}"),
            )
            for shard in place.shards
        ]
        module[place.spec.name] = ParameterSharding(place.kind, "fused", ranks, EnumerableShardingSpec(parts))
    return ShardingPlan({TABLES: module})


def _torchrec_class(kind: str) -> Any:
    place = TABLE_RULES[kind].torchrec
    assert place is not None, "refuse_rule has let it through"
    module, name = place.split(":")
    return getattr(import_module(module), name)


def with_optimizer(module: M, optimizer: TableOptimizer, world: World) -> M:
    """The tables with the rule that will move them, fused into the backward pass."""
    refuse_rule(optimizer, world.device)
    # the accumulator's first value is set with the first values, for which FBGEMM has no setting; the others are 0
    left_out = ("initial_accumulator", "momentum", "weight_decay")
    numbers = {name: number for name, number in optimizer.numbers.items() if name not in left_out}
    betas = {"betas": (numbers.pop("beta1"), numbers.pop("beta2"))} if "beta1" in numbers else {}
    apply_optimizer_in_backward(
        _torchrec_class(optimizer.kind), module.parameters(), {"lr": optimizer.lr, **numbers, **betas}
    )
    return module


class FusedTables:
    """A module's tables, spread by a plan; what is not data-parallel in it."""

    def __init__(
        self, module: nn.Module, sharder: Any, plan: ShardPlan, optimizer: TableOptimizer, world: World
    ) -> None:
        self._plan, self._optimizer, self._world = plan, optimizer, world
        self._model = DistributedModelParallel(
            with_optimizer(module, optimizer, world),
            env=ShardingEnv.from_process_group(torch.distributed.group.WORLD),
            device=torch.device(world.device),
            plan=_to_torchrec(plan, world.device.split(":")[0]),
            sharders=[sharder],
        )
        self.module: Any = getattr(self._model.module, TABLES)
        self._engines = [kernel.emb_module for kernel in self._kernels]
        self._refuse_wrong_owner()

    def set_lr(self, value: float) -> None:
        """The learning rate of the next update."""
        for engine in self._engines:
            engine.set_learning_rate(value)

    def set_num_updates(self, value: int) -> None:
        """How many were finished."""
        for engine in self._engines:
            engine.iter.fill_(value)

    @property
    def _kernels(self) -> list[Any]:
        """What holds this process's rows and moves them."""
        return [kernel for lookup in self.module._lookups for kernel in lookup._emb_modules]

    def _refuse_wrong_owner(self) -> None:
        """Complain if a table would be moved by another rule than the settings name, or by none."""
        fused = [each for each in self._kernels if isinstance(each, BatchedFusedEmbeddingBag | BatchedFusedEmbedding)]
        owned = {name for kernel in fused for name in kernel.emb_module.table_names}
        held = {place.spec.name for place, _ in self._plan.shards_of(self._world.rank) if place.kind != "data_parallel"}
        rules = {str(kernel.emb_module.optimizer.name).lower() for kernel in fused}
        if lost := sorted(held - owned):
            raise ConfigError(f"TorchRec has given no optimizer to {', '.join(lost[:5])}; the run would not train them")
        if strange := sorted(rules - {TABLE_RULES[self._optimizer.kind].fbgemm}):
            raise ConfigError(f"TorchRec would move the tables by {strange[0]} in place of {self._optimizer.kind}")

    def pieces(self) -> list[Piece]:
        """What this process holds."""
        states: dict[str, Any] = self._model.fused_optimizer.state_dict()["state"]
        num_rows = {place.spec.name: place.spec.num_rows for place in self._plan.placements}
        pieces = list[Piece]()
        for key, weights in self._model.state_dict().items():
            name, width = key.split(".")[-2], self._plan.state_width
            pieces += _pieces_of(name, "weights", (num_rows[name], self._plan.dim), weights)
            for state in states.get(key, {}).values():
                pieces += _pieces_of(name, "state", (num_rows[name], width), state) if width else []
        return pieces


def _pieces_of(name: str, what: What, shape: tuple[int, int], tensor: Any) -> list[Piece]:
    found = []
    for shard in tensor.local_shards():
        offsets = [*shard.metadata.shard_offsets, 0][:2]
        values = shard.tensor.detach()
        values = values.view(len(values), -1)
        if values.numel():
            found.append(Piece(name, what, shape, offsets[0], offsets[1], values))
    return found
