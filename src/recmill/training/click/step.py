"""One optimizer step, forward to update, and the search for what went wrong when its loss is not finite."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from recmill.data.batch import Batch, Columns
from recmill.embeddings.local import LocalTables
from recmill.errors import NonFiniteLoss
from recmill.models.click.front import rates_of
from recmill.models.parts.dropout import train_at
from recmill.settings.clicks import TrainConfig
from recmill.training.optimize.average import WeightMean
from recmill.training.optimize.precision import LossScale, autocast
from recmill.training.optimize.schedule import lr_at


@dataclass(frozen=True)
class Parts:
    """All that is trained: the layers, the tables, and what moves the layers."""

    config: TrainConfig
    model: nn.Module
    tables: LocalTables
    optimizer: torch.optim.Optimizer
    loss_scale: LossScale | None = None  # of fp16
    average: WeightMean | None = None  # of the weights, if one is asked for
    data_hash: str = ""

    @property
    def rows_hash(self) -> str:
        """Of the columns of the rows and the sizes of their tables."""
        return self.config.data.rows_hash


def forward(parts: Parts, batch: Batch) -> Tensor:
    """The logits (B) of a batch, in float32."""
    emb_BFD = parts.tables.look_up(batch.columns.ids)
    logits: Tensor = parts.model(inputs_of(parts.model, batch.columns), emb_BFD)
    return logits


def inputs_of(model: nn.Module, columns: Columns) -> Tensor:
    """The numbers that a model is given: dense features, and the rates of the values if it is to see them."""
    dense, rates = torch.from_numpy(columns.dense), rates_of(model)
    return dense if rates is None else torch.cat([dense, rates(columns)], dim=1)


def take_step(parts: Parts, batch: Batch, step: int) -> float:
    """Train on a batch, the one after `step` finished ones; its mean loss before the update."""
    move_rates(parts.config, parts.tables, parts.optimizer, step)
    train_at(parts.model, step)
    pieces = cut_rows(batch.columns, parts.config.update.micro_batches)
    is_in_parts = len(pieces) > 1 or parts.loss_scale is not None
    if is_in_parts:
        parts.tables.hold()
    value = 0.0
    for piece in pieces:
        loss = loss_of(parts, piece) * (piece.num_rows / batch.num_rows)
        value += loss.item()
        if not math.isfinite(value):
            forget_gradients(parts)
            raise NonFiniteLoss(explain_non_finite(parts, batch, step, value))
        scaled = loss * parts.loss_scale.scale if parts.loss_scale else loss
        scaled.backward()  # type: ignore[no-untyped-call]  # the tables, unless they hold, are updated in here
    if may_update(parts):
        if is_in_parts:
            parts.tables.apply_held()
        if parts.config.update.clip_norm:
            nn.utils.clip_grad_norm_(parts.model.parameters(), parts.config.update.clip_norm)
        parts.optimizer.step()
    forget_gradients(parts)
    if parts.average:
        parts.average.take_in(step + 1)
    return value


def cut_rows(columns: Columns, num_pieces: int) -> list[Columns]:
    """The rows in so many pieces of about the same size, fewer if there are fewer rows."""
    count, num_rows = min(num_pieces, columns.num_rows), columns.num_rows
    return [columns.rows(num_rows * i // count, num_rows * (i + 1) // count) for i in range(count)]


def loss_of(parts: Parts, columns: Columns) -> Tensor:
    """The mean loss of some rows, in the precision of the settings."""
    emb_BFD = parts.tables.look_up(columns.ids)
    with autocast(parts.config.precision, "cpu"):
        logits = parts.model(inputs_of(parts.model, columns), emb_BFD)
    labels = smoothed(torch.from_numpy(columns.labels), parts.config)
    return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)


def smoothed(labels: Tensor, config: TrainConfig) -> Tensor:
    """The labels the loss is of."""
    smoothing = config.loss.label_smoothing
    return labels * (1 - smoothing) + smoothing / 2 if smoothing else labels


def may_update(parts: Parts) -> bool:
    """Whether the gradients, divided by the loss scale if there is one, are worth a step."""
    if parts.loss_scale is None:
        return True
    is_finite = parts.loss_scale.unscale(parts.model, parts.tables)
    parts.loss_scale.note(is_finite=is_finite)
    return is_finite


def forget_gradients(parts: Parts) -> None:
    """Those of the layers, and those that the tables may hold."""
    parts.optimizer.zero_grad(set_to_none=True)
    parts.tables.drop_held()


class HasRate(Protocol):
    """Tables that are given their learning rate."""

    lr: float


def move_rates(config: TrainConfig, tables: HasRate, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Set the learning rates of the step behind `step` finished ones."""
    schedule = config.resolved_schedule
    tables.lr = lr_at(step, config.tables.lr, schedule)
    for group in optimizer.param_groups:
        group["lr"] = lr_at(step, config.dense.lr, schedule)


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
        return _first_non_finite_result(parts.model, inputs_of(parts.model, batch.columns), emb_BFD)


def _first_non_finite_result(model: nn.Module, inputs: Tensor, emb_BFD: Tensor) -> str:
    found: list[str] = []

    def watch(name: str) -> torch.utils.hooks.RemovableHandle:
        def note(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            if not output.isfinite().all():
                found.append(f"the output of {name}")

        return model.get_submodule(name).register_forward_hook(note)

    hooks = [watch(name) for name, module in model.named_modules() if not list(module.children())]
    try:
        model(inputs, emb_BFD)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else "the loss itself"
