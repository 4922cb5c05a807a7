"""The only place where settings become a model, its tables and its optimizers."""

import os
from typing import Any

import numba
import torch
from torch import nn

from recmill.embeddings.local import LocalTables
from recmill.embeddings.table import TableSpec
from recmill.errors import ConfigError
from recmill.memory import keep_freed_memory
from recmill.models.dcn import Dcn
from recmill.models.dlrm import Dlrm
from recmill.models.dnn import Dnn
from recmill.models.finalmlp import FinalMlp
from recmill.models.projection import Projection
from recmill.train.config import TrainConfig
from recmill.train.optimizers import build_dense_optimizer
from recmill.train.precision import LossScale
from recmill.train.step import Parts

MODELS: dict[str, type[Any]] = {
    "dlrm": Dlrm,
    "dcn": Dcn,
    "projection": Projection,
    "finalmlp": FinalMlp,
    "dnn": Dnn,
}


def assemble(config: TrainConfig) -> Parts:
    """A run's parts with their first values, which depend on the settings alone."""
    use_threads(config.threads)
    model = build_model(config)
    tables = LocalTables(table_specs(config), config.model.table_dim, config.tables, seed=config.seed)
    loss_scale = LossScale(config.precision) if config.precision.kind == "fp16" else None
    parts = Parts(config, model, tables, build_dense_optimizer(model, config.dense), loss_scale)
    _compile_kernels(parts, len(config.data.schema_of_rows.dense_names))
    keep_freed_memory()  # from here on: the tables, which stay, are better mapped
    return parts


def table_specs(config: TrainConfig) -> list[TableSpec]:
    """The tables that the settings ask for."""
    schema = config.data.schema_of_rows
    if not schema.dense_names or not schema.category_names:
        raise ConfigError(f"schema {schema.name} needs at least one dense and one category column for a model")
    return [
        TableSpec(name, rows, num_slots, config.model.pooling_by_column.get(name, config.model.pooling))
        for name, rows, num_slots in zip(
            schema.category_names, config.data.num_table_rows, config.data.slots_per_column, strict=True
        )
    ]


def build_model(config: TrainConfig) -> nn.Module:
    """The layers that the settings name, with their first values."""
    schema = config.data.schema_of_rows
    model: nn.Module = MODELS[config.model.kind](
        config.model, schema.dense_names, schema.category_names, seed=config.seed
    )
    return model


def _compile_kernels(parts: Parts, num_dense: int) -> None:
    """Have them compiled, or loaded from their cache, now rather than within the first step."""
    parts.tables.compile()
    no_vectors = torch.empty(0, len(parts.tables.specs), parts.tables.dim, requires_grad=True)
    parts.model(torch.empty(0, num_dense), no_vectors).sum().backward()
    parts.optimizer.zero_grad(set_to_none=True)


def use_threads(threads: int | None) -> int:
    """Give torch and our kernels the same number of threads, by default one for each core; returns it."""
    available = len(os.sched_getaffinity(0))
    chosen = min(threads or available, int(numba.config.NUMBA_NUM_THREADS))
    torch.set_num_threads(chosen)
    numba.set_num_threads(chosen)
    return chosen
