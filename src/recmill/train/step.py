"""One optimizer step, forward to update, and the search for what went wrong when its loss is not finite."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from recmill.data.batch import Batch
from recmill.embeddings.local import LocalTables
from recmill.errors import NonFiniteLoss
from recmill.models.dropout import train_at
from recmill.train.config import TrainConfig
from recmill.train.schedule import lr_at


@dataclass(frozen=True)
class Parts:
    """All that is trained: the layers, the tables, and the optimizer of the layers."""

    config: TrainConfig
    model: nn.Module
    tables: LocalTables
    optimizer: torch.optim.Optimizer


def forward(parts: Parts, batch: Batch) -> Tensor:
    """The logits (B) of a batch."""
    emb_BFD = parts.tables.look_up(batch.columns.ids)
    logits: Tensor = parts.model(torch.from_numpy(batch.columns.dense), emb_BFD)
    return logits


def take_step(parts: Parts, batch: Batch, step: int) -> float:
    """Train on a batch, the one after `step` finished ones; its mean loss before the update."""
    set_learning_rates(parts, step)
    train_at(parts.model, step)
    logits = forward(parts, batch)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.columns.labels))
    value = loss.item()
    if not math.isfinite(value):
        raise NonFiniteLoss(explain_non_finite(parts, batch, step, value))
    loss.backward()  # type: ignore[no-untyped-call]  # the tables are updated in here
    parts.optimizer.step()
    parts.optimizer.zero_grad(set_to_none=True)
    return value


def set_learning_rates(parts: Parts, step: int) -> None:
    """Move both optimizers along the schedule."""
    config = parts.config
    parts.tables.lr = lr_at(step, config.tables.lr, config.schedule)
    for group in parts.optimizer.param_groups:
        group["lr"] = lr_at(step, config.dense.lr, config.schedule)


def explain_non_finite(parts: Parts, batch: Batch, step: int, loss: float) -> str:
    """The step, the learning rates and the first tensor on the way from input to loss that is not finite."""
    return (
        f"the loss of step {step + 1} is {loss} (learning rate {parts.optimizer.param_groups[0]['lr']:g} for the "
        f"layers, {parts.tables.lr:g} for the tables); first non-finite tensor: {first_non_finite(parts, batch)}"
    )


def first_non_finite(parts: Parts, batch: Batch) -> str:
    """The name of the first tensor, inputs before weights before results, that holds NaN or infinity."""
    for name, array in (("the dense input", batch.columns.dense), ("the labels", batch.columns.labels)):
        if not np.isfinite(array).all():
            return name
    with torch.no_grad():
        emb_BFD = parts.tables.look_up(batch.columns.ids)
        finite_F = emb_BFD.isfinite().all(dim=2).all(dim=0)
        if not finite_F.all():
            return f"the table of {parts.tables.specs[int(finite_F.int().argmin())].name}"
        for name, parameter in parts.model.named_parameters():
            if not parameter.isfinite().all():
                return f"parameter {name}"
        return _first_non_finite_result(parts.model, torch.from_numpy(batch.columns.dense), emb_BFD)


def _first_non_finite_result(model: nn.Module, dense: Tensor, emb_BFD: Tensor) -> str:
    found: list[str] = []

    def watch(name: str) -> torch.utils.hooks.RemovableHandle:
        def note(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            if not output.isfinite().all():
                found.append(f"the output of {name}")

        return model.get_submodule(name).register_forward_hook(note)

    hooks = [watch(name) for name, module in model.named_modules() if not list(module.children())]
    try:
        model(dense, emb_BFD)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else "the loss itself"
