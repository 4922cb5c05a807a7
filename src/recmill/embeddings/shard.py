"""Tables of several columns spread over processes by TorchRec, with its planner.

Traps that are closed here. The order of columns in what comes back depends on the plan, and is put right by name.
Row-wise tables need batches of one size in all processes.
TorchRec's own training pipeline overlaps the exchange of ids with computing by rewriting the model; the same stages,
asked for by name, leave the model as it is, so that an evaluation in between cannot meet a batch of training.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torchrec
from numpy.typing import NDArray
from torch import Tensor, nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError
from torchrec.distributed.types import ParameterSharding

from recmill.embeddings.bounds import Bounds
from recmill.embeddings.copies import CopiedTables
from recmill.embeddings.piece import Piece, set_first_values
from recmill.embeddings.plan import (
    Placement,
    Shard,
    ShardPlan,
    kinds_by_table,
    may_cut_columns,
    plan_by_hand,
    refuse_unfit,
)
from recmill.embeddings.shard_fused import TABLES, FusedTables, with_optimizer
from recmill.embeddings.table import TableSpec
from recmill.errors import ConfigError
from recmill.settings.optimizers import TableOptimizer
from recmill.settings.run import Sharding, ShardKind
from recmill.world import Group, World

_POOLING = {"sum": torchrec.PoolingType.SUM, "mean": torchrec.PoolingType.MEAN}


class _Bags(nn.Module):
    """All tables as TorchRec knows them, with no memory of their own yet."""

    def __init__(self, specs: Sequence[TableSpec], dim: int) -> None:
        super().__init__()
        configs = [
            torchrec.EmbeddingBagConfig(
                name=spec.name,
                embedding_dim=dim,
                num_embeddings=spec.num_rows,
                feature_names=[spec.name],
                pooling=_POOLING[spec.pooling],
            )
            for spec in specs
        ]
        self.tables = torchrec.EmbeddingBagCollection(tables=configs, device=torch.device("meta"))


def make_shard_plan(
    sharding: Sharding,
    specs: Sequence[TableSpec],
    dim: int,
    optimizer: TableOptimizer,
    *,
    world: World,
    rank_batch: int,
    memory_bytes: int,
) -> ShardPlan:
    """Where all tables are, `memory_bytes` of which a process may fill."""
    refuse_unfit(sharding, optimizer, dim, specs)
    kinds = kinds_by_table(sharding, specs)
    by_hand: dict[str, ShardKind] = {name: kind for name, kind in kinds.items() if kind != "auto"}
    if len(by_hand) == len(specs):
        return plan_by_hand(specs, dim, optimizer, by_hand, world.size)
    topology = Topology(
        world_size=world.size,
        local_world_size=world.local_size,
        compute_device=world.device.split(":")[0],
        hbm_cap=memory_bytes,
        ddr_cap=memory_bytes,
    )
    whole = ["table_wise", *(["column_wise"] if may_cut_columns(optimizer) else [])]
    complaint = ""
    for free in (whole, [*whole, "row_wise"]):  # rows cost more traffic: only if nothing else fits
        planner = EmbeddingShardingPlanner(
            topology=topology,
            batch_size=rank_batch,
            constraints={spec.name: _constraints(by_hand.get(spec.name), free) for spec in specs},
            storage_reservation=FixedPercentageStorageReservation(0.0),
        )
        try:
            found = planner.plan(with_optimizer(_Bags(specs, dim), optimizer, world), [_Sharder()])
        except PlannerError as error:
            complaint = str(error).splitlines()[0]
            continue
        return _from_torchrec(found.plan[TABLES], specs, dim, optimizer, world.size)
    raise ConfigError(
        f"the tables do not fit {world.size} processes of {memory_bytes / 2**30:.2f} GiB each (TorchRec's planner: "
        f"{complaint}); use more processes, or lower data.max_rows_per_table"
    )


def _constraints(by_hand: ShardKind | None, free: list[str]) -> ParameterConstraints:
    kernel = "dense" if by_hand == "data_parallel" else "fused"
    return ParameterConstraints(sharding_types=[by_hand] if by_hand else free, compute_kernels=[kernel])


class _Sharder(EmbeddingBagCollectionSharder):  # type: ignore[misc]  # TorchRec's types are not told
    """TorchRec's, which on a CPU also does what it does not offer there: rows."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """What the planner may choose from."""
        return [*super().sharding_types(compute_device_type), "row_wise"]


def _from_torchrec(
    plan: Mapping[str, ParameterSharding], specs: Sequence[TableSpec], dim: int, optimizer: TableOptimizer, size: int
) -> ShardPlan:
    placements = []
    for spec in specs:
        found = plan[spec.name]
        kind: ShardKind = found.sharding_type
        if found.sharding_spec is None:
            shards = tuple(Shard(rank, 0, spec.num_rows, 0, dim) for rank in range(size))
        else:
            shards = tuple(
                Shard(
                    part.placement.rank(),
                    part.shard_offsets[0],
                    part.shard_sizes[0],
                    part.shard_offsets[1],
                    part.shard_sizes[1],
                )
                for part in found.sharding_spec.shards
            )
        placements.append(Placement(spec, kind, shards))
    return ShardPlan(size, dim, optimizer.state_width(dim), tuple(placements))


class Exchange:
    """Ids of a batch on their way to the processes that hold their rows."""

    def __init__(self, tables: "ShardedTables", ids: NDArray[np.int64], padded_rows: int) -> None:
        self._tables = tables
        self.ids, self.padded_rows = ids, padded_rows
        self._context: Any = None
        self._coming: Any = None
        if tables.bags is not None:
            self._context = tables.bags.create_context()
            self._coming = tables.bags.input_dist(self._context, tables.jagged(ids, padded_rows))
        self._is_under_way = False

    def go_on(self) -> None:
        """All know how many ids to expect: send them."""
        if self._coming is not None and not self._is_under_way:
            self._coming = self._coming.wait()
        self._is_under_way = True

    def look_up(self) -> Tensor | None:
        """The vectors (B, F, D), padding included, of the tables that TorchRec has."""
        self.go_on()
        if self._coming is None:
            return None
        bags = self._tables.bags
        found = bags.compute_and_output_dist(self._context, self._coming.wait()).wait()
        vectors_BFD: Tensor = found.values().view(self.padded_rows, -1, self._tables.dim)
        return in_order(vectors_BFD, [found.keys().index(name) for name in self._tables.sharded_names])


class _InOrder(torch.autograd.Function):
    """(B, F, D) with its columns in another order; backward in the former one, where torch's own adds up zeros."""

    @staticmethod
    def forward(ctx: Any, vectors_BFD: Tensor, order_F: Tensor) -> Tensor:
        """Column `order_F[i]` in the place of column i."""
        ctx.save_for_backward(order_F)
        return vectors_BFD.index_select(1, order_F)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradients' columns, back in their places."""
        (order_F,) = ctx.saved_tensors
        return gradients[0].index_select(1, order_F.argsort()), None


def in_order(vectors_BFD: Tensor, order: Sequence[int]) -> Tensor:
    """The columns that are named, each of them once."""
    if list(order) == sorted(order):
        return vectors_BFD
    moved: Tensor = _InOrder.apply(vectors_BFD, torch.tensor(order, device=vectors_BFD.device))  # type: ignore[no-untyped-call]
    return moved


class ShardedTables:
    """Embedding tables over all processes, and the optimizer that owns them."""

    def __init__(self, plan: ShardPlan, optimizer: TableOptimizer, *, seed: int, group: Group) -> None:
        self.plan = plan
        self.dim = plan.dim
        self.optimizer = optimizer
        self.specs = tuple(place.spec for place in plan.placements)
        self._world = group.world
        copied = [place.spec for place in plan.placements if place.kind == "data_parallel"]
        sharded = [place.spec for place in plan.placements if place.kind != "data_parallel"]
        self.sharded_names = [spec.name for spec in sharded]
        self._sharded = sharded
        self._copies = CopiedTables(copied, plan.dim, optimizer, seed=seed, group=group) if copied else None
        self._fused: FusedTables | None = None
        if sharded:
            self._fused = FusedTables(_Bags(sharded, plan.dim), _Sharder(), plan, optimizer, group.world)
        self.bags: Any = self._fused.module if self._fused else None
        self._lr = optimizer.lr
        self._num_updates = 0
        self._bounds = Bounds(self.specs)
        ends = self._bounds.first_slot.tolist()
        self._slots = {spec.name: slice(*ends[i : i + 2]) for i, spec in enumerate(self.specs)}
        names = self.sharded_names + [spec.name for spec in copied]
        self._order = [names.index(spec.name) for spec in self.specs]
        for piece in self._sharded_pieces():
            set_first_values(piece, optimizer, plan.dim, seed)

    @property
    def lr(self) -> float:
        """The learning rate of the next update; the loop moves it along the schedule."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr = value
        if self._fused:
            self._fused.set_lr(value)
        if self._copies:
            self._copies.lr = value

    @property
    def num_updates(self) -> int:
        """Finished ones."""
        return self._num_updates

    @num_updates.setter
    def num_updates(self, value: int) -> None:
        self._num_updates = value
        if self._fused:
            self._fused.set_num_updates(value)
        if self._copies:
            self._copies.num_updates = value

    def start(self, ids: NDArray[np.int64], padded_rows: int) -> Exchange:
        """Send the ids of a batch (B, S) on their way; every process starts with as many padded rows."""
        self._bounds.refuse_outside(ids)
        return Exchange(self, ids, padded_rows)

    def look_up(self, exchange: Exchange) -> Tensor:
        """The vectors (B, F, D), zeros in padded rows; the backward pass updates them."""
        parts = []
        if (sharded := exchange.look_up()) is not None:
            parts.append(sharded)
        if self._copies:
            columns = [slot for spec in self._copies.specs for slot in range(*self._slots[spec.name].indices(1 << 30))]
            copied = self._copies.look_up(np.ascontiguousarray(exchange.ids[:, columns]))
            padding = exchange.padded_rows - len(exchange.ids)
            parts.append(nn.functional.pad(copied, (0, 0, 0, 0, 0, padding)))
        vectors_BFD = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
        return in_order(vectors_BFD, self._order)

    def jagged(self, ids: NDArray[np.int64], padded_rows: int) -> torchrec.KeyedJaggedTensor:
        """The ids of TorchRec's tables as it wants them: table by table, and how many each row has."""
        lengths = np.zeros((len(self._sharded), padded_rows), np.int32)
        if all(spec.num_slots == 1 for spec in self._sharded):
            lengths[:, : len(ids)] = 1
            values = ids.T[[self._slots[spec.name].start for spec in self._sharded]].ravel()
        else:
            parts = [ids[:, self._slots[spec.name]] for spec in self._sharded]
            lengths[:, : len(ids)] = [(part >= 0).sum(axis=1) for part in parts]
            values = np.concatenate([part[part >= 0] for part in parts])
        return torchrec.KeyedJaggedTensor(
            keys=self.sharded_names,
            values=torch.from_numpy(values),
            lengths=torch.from_numpy(lengths.ravel()),
            stride=padded_rows,
        ).to(torch.device(self._world.device))

    def pieces(self) -> list[Piece]:
        """What this process holds."""
        return self._sharded_pieces() + (self._copies.pieces() if self._copies else [])

    def pieces_to_save(self) -> list[Piece]:
        """The same, except that the main process saves the copies."""
        return self._sharded_pieces() + (self._copies.pieces_to_save() if self._copies else [])

    def _sharded_pieces(self) -> list[Piece]:
        return self._fused.pieces() if self._fused else []
