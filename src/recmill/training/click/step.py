"""One optimizer step, forward to update, and the search for what went wrong when its loss is not finite."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from recmill.data.batch import Batch, Columns
from recmill.embeddings.local import LocalTables
from recmill.embeddings.tiered import TieredTables
from recmill.errors import NonFiniteLoss
from recmill.models.click.front import target_statistics_of
from recmill.models.parts.dropout import train_at
from recmill.settings.clicks import TrainConfig
from recmill.training.loop.limits import share_of_full
from recmill.training.optimize.average import WeightMean
from recmill.training.optimize.precision import LossScale, autocast
from recmill.training.optimize.schedule import lr_at


@dataclass(frozen=True)
class ClickState:
    """All that is trained: the layers, the tables, and what moves the layers."""

    config: TrainConfig
    model: nn.Module
    tables: LocalTables | TieredTables
    optimizer: torch.optim.Optimizer
    loss_scale: LossScale | None = None  # of fp16
    average: WeightMean | None = None  # of the weights, if one is asked for
    data_hash: str = ""

    @property
    def rows_hash(self) -> str:
        """Of the columns of the rows and the sizes of their tables."""
        return self.config.data.rows_hash


def score_columns(state: ClickState, columns: Columns) -> Tensor:
    """The logits (B) of some rows, in float32."""
    emb_BFD = state.tables.look_up(columns.ids)
    logits: Tensor = state.model(inputs_of(state.model, columns), emb_BFD)
    return logits


def inputs_of(model: nn.Module, columns: Columns) -> Tensor:
    """The numbers that a model is given: dense features, and the rates of the values if it is to see them."""
    dense, rates = torch.from_numpy(columns.dense), target_statistics_of(model)
    return dense if rates is None else torch.cat([dense, rates(columns)], dim=1)


def take_step(state: ClickState, batch: Batch, step: int) -> float:
    """Train on a batch, the one after `step` finished ones; its mean loss before the update."""
    set_learning_rates_at(state.config, state.tables, state.optimizer, step)
    train_at(state.model, step)
    pieces = cut_rows(batch.columns, state.config.update.micro_batches)
    is_in_parts = len(pieces) > 1 or state.loss_scale is not None
    if is_in_parts:
        state.tables.hold()
    value, share = 0.0, share_of_full(batch.num_rows, state.config.data.global_batch)
    total = amount_of(batch.columns) or 1.0
    for piece in pieces:
        loss = loss_of(state, piece) * (amount_of(piece) / total)
        value += loss.item()
        if not math.isfinite(value):
            forget_gradients(state)
            raise NonFiniteLoss(explain_non_finite(state, batch, step, value))
        weight = share * (state.loss_scale.scale if state.loss_scale else 1.0)
        (loss * weight if weight != 1 else loss).backward()  # type: ignore[no-untyped-call]  # the tables, unless they hold, are updated in here
    if may_update(state):
        if is_in_parts:
            state.tables.apply_held()
        if state.config.update.clip_norm:
            nn.utils.clip_grad_norm_(state.model.parameters(), state.config.update.clip_norm)
        state.optimizer.step()
    forget_gradients(state)
    if state.average:
        state.average.take_in(step + 1)
    return value


def cut_rows(columns: Columns, num_pieces: int) -> list[Columns]:
    """The rows in so many pieces of about the same size, fewer if there are fewer rows."""
    count, num_rows = min(num_pieces, columns.num_rows), columns.num_rows
    return [columns.rows(num_rows * i // count, num_rows * (i + 1) // count) for i in range(count)]


def amount_of(columns: Columns) -> float:
    """How much some rows count: their number, or the sum of their weights."""
    return float(columns.weights.sum(dtype=np.float64)) if len(columns.weights) else columns.num_rows


def loss_of(state: ClickState, columns: Columns) -> Tensor:
    """The mean loss of some rows, a row of weight 2 counting twice, in the precision of the settings."""
    emb_BFD = state.tables.look_up(columns.ids)
    with autocast(state.config.precision, "cpu"):
        logits = state.model(inputs_of(state.model, columns), emb_BFD)
    labels = smoothed(torch.from_numpy(columns.labels), state.config)
    if not len(columns.weights):
        return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)
    weights = torch.from_numpy(columns.weights)
    total = nn.functional.binary_cross_entropy_with_logits(logits.float(), labels, weights, reduction="sum")
    return total / (amount_of(columns) or 1.0)


def smoothed(labels: Tensor, config: TrainConfig) -> Tensor:
    """The labels the loss is of."""
    smoothing = config.loss.label_smoothing
    return labels * (1 - smoothing) + smoothing / 2 if smoothing else labels


def may_update(state: ClickState) -> bool:
    """Whether the gradients, divided by the loss scale if there is one, are worth a step."""
    if state.loss_scale is None:
        return True
    is_finite = state.loss_scale.unscale(state.model, state.tables)
    state.loss_scale.note(is_finite=is_finite)
    return is_finite


def forget_gradients(state: ClickState) -> None:
    """Those of the layers, and those that the tables may hold."""
    state.optimizer.zero_grad(set_to_none=True)
    state.tables.drop_held()


class HasLearningRate(Protocol):
    """Tables that are given their learning rate."""

    lr: float


def set_learning_rates_at(
    config: TrainConfig, tables: HasLearningRate, optimizer: torch.optim.Optimizer, step: int
) -> None:
    """Set the learning rates of the step behind `step` finished ones."""
    schedule = config.resolved_schedule
    tables.lr = lr_at(step, config.tables.lr, schedule)
    for group in optimizer.param_groups:
        group["lr"] = lr_at(step, config.dense.lr, schedule)


def explain_non_finite(state: ClickState, batch: Batch, step: int, loss: float) -> str:
    """The step, the learning rates and the first tensor on the way from input to loss that is not finite."""
    return (
        f"the loss of step {step + 1} is {loss} (learning rate {state.optimizer.param_groups[0]['lr']:g} for the "
        f"layers, {state.tables.lr:g} for the tables); first non-finite tensor: {first_non_finite(state, batch)}"
    )


def first_non_finite(state: ClickState, batch: Batch) -> str:
    """The name of the first tensor, inputs before weights before results, that holds NaN or infinity."""
    for name, array in (("the dense input", batch.columns.dense), ("the labels", batch.columns.labels)):
        if not np.isfinite(array).all():
            return name
    with torch.no_grad():
        emb_BFD = state.tables.look_up(batch.columns.ids)
        finite_F = emb_BFD.isfinite().all(dim=2).all(dim=0)
        if not finite_F.all():
            return f"the table of {state.tables.specs[int(finite_F.int().argmin())].name}"
        for name, parameter in state.model.named_parameters():
            if not parameter.isfinite().all():
                return f"parameter {name}"
        return _first_non_finite_result(state.model, inputs_of(state.model, batch.columns), emb_BFD)


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
