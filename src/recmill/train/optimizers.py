"""The optimizer of the layers, and the check that every parameter has exactly one owner."""

import torch
from torch import nn

from recmill.errors import FailureError
from recmill.train.config import DenseOptimizer


def build_dense_optimizer(model: nn.Module, config: DenseOptimizer) -> torch.optim.Optimizer:
    """An optimizer that owns all parameters of the layers; the tables are their engine's."""
    if config.kind == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    else:
        optimizer = torch.optim.Adagrad(model.parameters(), lr=config.lr, eps=config.eps)
    refuse_orphans(model, optimizer)
    return optimizer


def refuse_orphans(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Complain if a parameter would never move, or move twice."""
    owned = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    for name, parameter in model.named_parameters():
        owners = owned.count(id(parameter))
        if owners != 1 or not parameter.requires_grad:
            raise FailureError(f"parameter {name} has {owners} optimizers and should have one")
