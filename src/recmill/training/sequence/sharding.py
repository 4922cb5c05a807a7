"""Where the item vectors of a run on sequences are: a copy in every process, or spread over them by TorchRec."""

from recmill.embeddings.plan import ShardPlan, kinds_by_table, plan_by_hand, refuse_rule, refuse_unfit
from recmill.embeddings.table import TableSpec
from recmill.errors import ConfigError
from recmill.settings.optimizers import NO_AVERAGE
from recmill.settings.run import Sharding, ShardKind
from recmill.settings.sequences import SequenceConfig


def item_spec(num_items: int) -> TableSpec:
    """Items are 1 … V; row 0 is no item, row V + 1 what hides one."""
    return TableSpec("item", num_items + 2)


def spread_kind(config: SequenceConfig, num_procs: int) -> ShardKind | None:
    """How TorchRec spreads the item vectors; None: every process has a copy, in our own engine or among its weights."""
    engine, spec = config.sharding.engine, item_spec(0)
    kind = kinds_by_table(config.sharding, [spec])[spec.name]
    is_spread = kind not in ("auto", "data_parallel")
    if config.tables is None and (is_spread or engine == "torchrec"):
        asked = f"sharding.engine = {engine}" if engine == "torchrec" else f"sharding of item = {kind}"
        raise ConfigError(
            f"{asked} is for rows of an embedding engine, and without [tables] item vectors are weights like others, "
            "of which every process has a copy; set loss.kind=sampled and tables.kind, or leave it out"
        )
    if engine == "local" and is_spread and num_procs > 1:
        raise ConfigError(
            f"sharding.engine = local has copies only, and sharding of item is {kind} over {num_procs} processes; "
            "leave out one of the two"
        )
    if engine == "torchrec" and kind == "data_parallel":
        raise ConfigError(
            "sharding.engine = torchrec spreads the rows, and sharding of item = data_parallel has a copy in every "
            "process; leave out one of the two"
        )
    if engine != "torchrec" and (num_procs == 1 or not is_spread):
        return None
    chosen: ShardKind = "row_wise" if kind == "auto" else kind
    refuse_spread(config, chosen, num_procs)
    return chosen


def refuse_spread(config: SequenceConfig, kind: ShardKind, num_procs: int) -> None:
    """Complain about what TorchRec's tables would do otherwise than the settings say, or not at all."""
    assert config.tables is not None
    dim = config.model.embedding_dim
    if config.average.from_step:
        raise ConfigError(
            f"average.from_step = {config.average.from_step} is of item vectors that every process has a copy of, and "
            f"sharding of item is {kind}; set {NO_AVERAGE}, or leave out the sharding"
        )
    refuse_unfit(Sharding(kind=kind), config.tables, dim, [item_spec(0)])
    refuse_rule(config.tables, "cpu")
    widths = {shard.num_columns for shard in plan_items(config, 0, kind, num_procs).placements[0].shards}
    if len(widths) > 1:
        raise ConfigError(
            f"sharding of item = column_wise cuts model.embedding_dim = {dim} into parts of {sorted(widths)} columns, "
            "and TorchRec needs equal ones; change one of the two, or the number of processes"
        )


def plan_items(config: SequenceConfig, num_items: int, kind: ShardKind, num_procs: int) -> ShardPlan:
    """Which process holds which rows and columns."""
    assert config.tables is not None
    spec = item_spec(num_items)
    return plan_by_hand([spec], config.model.embedding_dim, config.tables, {spec.name: kind}, num_procs)
