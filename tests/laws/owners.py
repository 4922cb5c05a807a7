"""Law *owners*: every parameter belongs to exactly one optimizer, and it is the one the settings name."""

import torch

from recmill.training.click.step import ClickState

OPTIMIZERS: dict[str, type[object]] = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def assert_one_owner_each(parts: ClickState) -> None:
    owned = [id(parameter) for group in parts.optimizer.param_groups for parameter in group["params"]]
    assert sorted(owned) == sorted(id(parameter) for parameter in parts.model.parameters())
    assert type(parts.optimizer) is OPTIMIZERS[parts.config.dense.kind]
    assert parts.tables.optimizer == parts.config.tables
    weights = {parts.tables.weights(spec.name).ctypes.data for spec in parts.tables.specs}
    assert weights.isdisjoint(parameter.data_ptr() for parameter in parts.model.parameters())
