"""The optimizer of the layers, and the check that every parameter has exactly one owner."""

from typing import Any

import torch
from torch import nn

from recmill.errors import FailureError
from recmill.settings.optimizers import DenseOptimizer


def build_dense_optimizer(model: nn.Module, config: DenseOptimizer) -> torch.optim.Optimizer:
    """An optimizer that owns all parameters of the layers; the tables are their engine's.

    `fused` are torch's kernels that pass over the weights once: a third of the time, or less, of its default on a CPU.
    """
    parameters, lr = list(model.parameters()), config.lr
    is_on_cpu = all(parameter.device.type == "cpu" for parameter in parameters)
    numbers: dict[str, Any] = dict(config.numbers)
    if config.kind in ("adam", "adamw"):
        betas = (numbers.pop("beta1"), numbers.pop("beta2"))
        kind = torch.optim.Adam if config.kind == "adam" else torch.optim.AdamW
        optimizer: torch.optim.Optimizer = kind(parameters, lr=lr, betas=betas, fused=True, **numbers)
    elif config.kind == "adagrad":
        first = numbers.pop("initial_accumulator")
        # there is none of Adagrad for CUDA
        optimizer = torch.optim.Adagrad(
            parameters, lr=lr, initial_accumulator_value=first, fused=is_on_cpu or None, **numbers
        )
    else:
        optimizer = torch.optim.SGD(parameters, lr=lr, fused=True, **numbers)
    refuse_orphans(model, optimizer)
    return optimizer


def refuse_orphans(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Complain if a parameter would never move, or move twice."""
    owned = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    for name, parameter in model.named_parameters():
        owners = owned.count(id(parameter))
        if owners != 1 or not parameter.requires_grad:
            raise FailureError(f"parameter {name} has {owners} optimizers and should have one")
