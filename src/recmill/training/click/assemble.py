"""The only place where settings become a model, its tables and its optimizers."""

from typing import Any

import torch
from torch import nn

from recmill.embeddings.local import LocalTables
from recmill.embeddings.table import TableSpec
from recmill.embeddings.tiered import TieredTables
from recmill.errors import ConfigError
from recmill.memory import keep_freed_memory
from recmill.models.click.dcn import Dcn
from recmill.models.click.dlrm import Dlrm
from recmill.models.click.dnn import Dnn
from recmill.models.click.filled import NOTHING, Filled
from recmill.models.click.finalmlp import FinalMlp
from recmill.models.click.front import input_names, spread_names, with_front
from recmill.models.click.own import BuildLayers, build_own_layers
from recmill.models.click.projection import Projection
from recmill.settings.clicks import TrainConfig
from recmill.training.click.step import ClickState
from recmill.training.optimize.average import WeightMean
from recmill.training.optimize.optimizers import build_dense_optimizer
from recmill.training.optimize.precision import LossScale
from recmill.training.threads import use_threads

MODELS: dict[str, type[Any]] = {
    "dlrm": Dlrm,
    "dcn": Dcn,
    "projection": Projection,
    "finalmlp": FinalMlp,
    "dnn": Dnn,
}


def assemble(config: TrainConfig, build_layers: BuildLayers | None = None) -> ClickState:
    """A run's state with their first values, which depend on the settings alone."""
    use_threads(config.threads)
    model = build_model(config, build_layers)
    tables = build_tables(config)
    loss_scale = LossScale(config.precision) if config.precision.kind == "fp16" else None
    average = WeightMean(config.average, model, tables) if config.average.from_step else None
    state = ClickState(config, model, tables, build_dense_optimizer(model, config.dense), loss_scale, average)
    _compile_kernels(state)
    keep_freed_memory()  # from here on: the tables, which stay, are better mapped
    return state


def build_tables(config: TrainConfig) -> LocalTables | TieredTables:
    """The tables of one process, in memory or in tiers, with their first values."""
    specs, dim = table_specs(config), config.model.table_dim
    if config.store.is_tiered:
        return TieredTables(specs, dim, config.tables, config.store, seed=config.seed)
    return LocalTables(specs, dim, config.tables, seed=config.seed)


def table_specs(config: TrainConfig) -> list[TableSpec]:
    """The tables that the settings ask for."""
    schema = config.data.schema_of_rows
    if not schema.dense_names and not schema.category_names:
        raise ConfigError(f"schema {schema.name} has neither a dense nor a category column; a model needs at least one")
    return [
        TableSpec(name, rows, num_slots, config.model.pooling_by_column.get(name, config.model.pooling))
        for name, rows, num_slots in zip(
            schema.category_names, config.data.num_table_rows, config.data.slots_per_column, strict=True
        )
    ]


def build_model(config: TrainConfig, build_layers: BuildLayers | None = None) -> nn.Module:
    """The layers that the settings name, or a user's function builds, with their first values."""
    schema = config.data.schema_of_rows
    names = spread_names(schema.dense_names, schema.category_names, config.model)
    model: nn.Module
    if build_layers is not None and config.model.kind != "custom":
        raise ConfigError(
            f"model.kind = {config.model.kind}, and a function that builds layers was given, which would not be used; "
            "leave out one of the two"
        )
    if config.model.kind == "custom":
        model = build_own_layers(build_layers, config, len(names))
    else:
        categories = schema.category_names
        model = MODELS[config.model.kind](config.model, names or NOTHING, categories or NOTHING, seed=config.seed)
        if not names or not categories:
            model = Filled(model)
    return with_front(config.model, model, len(schema.dense_names), table_specs(config), seed=config.seed)


def count_inputs(config: TrainConfig) -> int:
    """How many numbers the model is given of each row."""
    schema = config.data.schema_of_rows
    return len(input_names(schema.dense_names, schema.category_names, config.model))


def _compile_kernels(state: ClickState) -> None:
    """Have them compiled, or loaded from their cache, now rather than within the first step."""
    state.tables.compile()
    if state.config.model.kind == "custom":
        return  # layers of a user's own have none of our kernels, and may not take a batch without rows
    num_inputs = count_inputs(state.config)
    no_vectors = torch.empty(0, len(state.tables.specs), state.tables.dim, requires_grad=True)
    state.model(torch.empty(0, num_inputs), no_vectors).sum().backward()
    state.optimizer.zero_grad(set_to_none=True)
