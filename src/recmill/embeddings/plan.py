"""Which process holds which rows and columns of which table: worked out before anything is allocated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from recmill.embeddings.table import TableSpec
from recmill.errors import ConfigError
from recmill.settings.optimizers import TableOptimizer
from recmill.settings.run import Sharding, ShardKind
from recmill.settings.table_rules import TABLE_RULES

FLOAT_BYTES, ID_BYTES = 4, 8
# FBGEMM moves vectors four numbers at a time.
_COLUMN_STEP = 4


@dataclass(frozen=True)
class Shard:
    """Some rows and columns of a table in one process."""

    rank: int
    first_row: int
    num_rows: int
    first_column: int
    num_columns: int

    @property
    def num_cells(self) -> int:
        """Rows times columns."""
        return self.num_rows * self.num_columns


@dataclass(frozen=True)
class Placement:
    """A table and where its parts are."""

    spec: TableSpec
    kind: ShardKind
    shards: tuple[Shard, ...]

    def describe(self, shard: Shard) -> str:
        """The table, and which part of it lies there."""
        if self.kind == "row_wise":
            return f"{self.spec.name} rows {shard.first_row:,}-{shard.first_row + shard.num_rows - 1:,}"
        if self.kind == "column_wise":
            return f"{self.spec.name} columns {shard.first_column}-{shard.first_column + shard.num_columns - 1}"
        return f"{self.spec.name} (a copy)" if self.kind == "data_parallel" else self.spec.name


@dataclass(frozen=True)
class ShardPlan:
    """All tables of a run of `size` processes."""

    size: int
    dim: int
    state_width: int  # numbers the optimizer keeps for a whole row
    placements: tuple[Placement, ...]

    def shards_of(self, rank: int) -> list[tuple[Placement, Shard]]:
        """What one process holds."""
        return [(place, shard) for place in self.placements for shard in place.shards if shard.rank == rank]

    def table_bytes(self, rank: int) -> int:
        """Of the weights one process holds, and what the optimizer keeps for them."""
        return sum(self._shard_bytes(shard) for _, shard in self.shards_of(rank))

    def _shard_bytes(self, shard: Shard) -> int:
        kept = shard.num_rows * (
            self.state_width * shard.num_columns // self.dim if self.state_width > 1 else self.state_width
        )
        return FLOAT_BYTES * (shard.num_cells + kept)

    def traffic_bytes(self, rank: int, global_batch: int) -> int:
        """What one process receives from others in a step: ids, and vectors forward and their gradients backward."""
        foreign_rows = global_batch * (self.size - 1) // self.size
        received = 0
        for place, shard in self.shards_of(rank):
            if place.kind == "data_parallel":  # ids and gradients of all rows go round
                received += foreign_rows * (place.spec.num_slots * ID_BYTES + self.dim * FLOAT_BYTES)
            else:
                ids = foreign_rows * place.spec.num_slots * ID_BYTES
                received += ids // (self.size if place.kind == "row_wise" else 1)
                received += foreign_rows * shard.num_columns * FLOAT_BYTES
        for place in self.placements:
            if place.kind != "data_parallel":
                received += foreign_rows // max(1, self.size - 1) * self._foreign_columns(place, rank) * FLOAT_BYTES
        return received

    def made_bytes(self, rank: int, num_rows: int) -> int:
        """Of the vectors that one process looks up for so many rows, most of which are other processes'."""
        exchanged = [shard for place, shard in self.shards_of(rank) if place.kind != "data_parallel"]
        return num_rows * sum(shard.num_columns for shard in exchanged) * FLOAT_BYTES

    def _foreign_columns(self, place: Placement, rank: int) -> int:
        return sum(shard.num_columns for shard in place.shards if shard.rank != rank)


def plan_by_hand(
    specs: Sequence[TableSpec], dim: int, optimizer: TableOptimizer, kinds: Mapping[str, ShardKind], size: int
) -> ShardPlan:
    """Each table as it is told, whole ones largest first to the process that has least so far."""
    state_width = optimizer.state_width(dim)
    loads = [0] * size
    placed: dict[str, Placement] = {}
    for spec in sorted(specs, key=lambda spec: -spec.num_rows):
        kind = kinds[spec.name]
        shards = _cut(spec, dim, kind, size, least_loaded=loads.index(min(loads)))
        for shard in shards:
            loads[shard.rank] += shard.num_cells
        placed[spec.name] = Placement(spec, kind, shards)
    return ShardPlan(size, dim, state_width, tuple(placed[spec.name] for spec in specs))


def _cut(spec: TableSpec, dim: int, kind: ShardKind, size: int, *, least_loaded: int) -> tuple[Shard, ...]:
    if kind == "table_wise":
        return (Shard(least_loaded, 0, spec.num_rows, 0, dim),)
    if kind == "data_parallel":
        return tuple(Shard(rank, 0, spec.num_rows, 0, dim) for rank in range(size))
    if kind == "row_wise":
        step = -(-spec.num_rows // size)
        starts = [min(rank * step, spec.num_rows) for rank in range(size + 1)]
        return tuple(Shard(rank, starts[rank], starts[rank + 1] - starts[rank], 0, dim) for rank in range(size))
    step = -(-dim // size // _COLUMN_STEP) * _COLUMN_STEP
    firsts = range(0, dim, max(step, _COLUMN_STEP))
    return tuple(
        Shard((least_loaded + i) % size, 0, spec.num_rows, first, min(max(step, _COLUMN_STEP), dim - first))
        for i, first in enumerate(firsts)
    )


def kinds_by_table(sharding: Sharding, specs: Sequence[TableSpec]) -> dict[str, ShardKind | Literal["auto"]]:
    """The kind of every table, as the settings say."""
    names = [spec.name for spec in specs]
    for name in sharding.by_table:
        if name not in names:
            raise ConfigError(
                f"sharding.by_table names {name!r}, and there is no such table ({', '.join(names[:5])}, …)"
            )
    return {name: sharding.by_table.get(name, sharding.kind) for name in names}


def refuse_unfit(sharding: Sharding, optimizer: TableOptimizer, dim: int, specs: Sequence[TableSpec]) -> None:
    """Complain about a plan that would compute something else than the settings say, or cannot be."""
    for name, kind in kinds_by_table(sharding, specs).items():
        if kind == "column_wise" and not may_cut_columns(optimizer):
            raise ConfigError(
                f"sharding of {name} is column_wise and tables.kind is {optimizer.kind}, which keeps one number for a "
                "whole row: in columns it would be another algorithm; set tables.kind=adagrad or another sharding"
            )
    if dim % _COLUMN_STEP:
        raise ConfigError(
            f"model.embedding_dim = {dim} is not a multiple of {_COLUMN_STEP}, which TorchRec's tables need; "
            "round it up, or use one process with sharding.engine=local"
        )


def refuse_rule(optimizer: TableOptimizer, device: str) -> None:
    """Complain about a rule that TorchRec's tables do not have on a device."""
    rules = [kind for kind, rule in TABLE_RULES.items() if rule.is_fused_on(device)]
    unused = [name for name in ("momentum", "weight_decay") if optimizer.numbers.get(name)]
    if optimizer.kind not in rules or unused:
        what = f"tables.kind = {optimizer.kind}" + (f" with tables.{unused[0]}" if unused else "")
        raise ConfigError(
            f"{what} is not among the rules TorchRec has on this device ({', '.join(rules)}, without momentum and "
            "weight_decay); choose one of them, or train in one process with sharding.engine=local"
        )


def may_cut_columns(optimizer: TableOptimizer) -> bool:
    """Whether the rule stays the same if a row lies in several places: one number for a row would become several."""
    return not TABLE_RULES[optimizer.kind].needs_whole_rows
