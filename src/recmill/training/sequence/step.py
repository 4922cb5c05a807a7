"""One optimizer step on a batch of windows, forward to update, in one process or in several.

Several processes take the step of one: every process's loss is its share of the mean over all that is to be predicted
in the global batch, gradients are averaged, and all then move their copies of the weights alike.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recmill.data.events.windows import SequenceBatch
from recmill.embeddings.copies import CopiedTables
from recmill.embeddings.local import LocalTables
from recmill.embeddings.piece import Piece, RowTable
from recmill.embeddings.plan import ShardPlan
from recmill.errors import NonFiniteLoss
from recmill.models.parts.dropout import train_at
from recmill.models.sequence.losses import LossBatch, LossPart, build_loss
from recmill.models.sequence.ranker import Ranker
from recmill.settings.sequences import SequenceConfig
from recmill.training.loop.limits import share_of_full
from recmill.training.optimize.average import WeightMean
from recmill.training.optimize.optimizers import build_dense_optimizer
from recmill.training.optimize.precision import LossScale
from recmill.training.optimize.schedule import lr_at
from recmill.training.sequence.sharding import item_spec
from recmill.world import Group


class DataIdentity(NamedTuple):
    """Checksums of what a run is made for."""

    items: str
    sequences: str


UNNAMED = DataIdentity("", "")


@dataclass(frozen=True)
class SequenceState:
    """All that is trained: the layers with their item vectors, or the engine that keeps those, and what moves them."""

    config: SequenceConfig
    model: Ranker
    tables: RowTable | None
    optimizer: torch.optim.Optimizer
    loss: LossPart
    identity: DataIdentity
    group: Group = field(default_factory=Group)
    loss_scale: LossScale | None = None  # sequences are trained in full precision
    average: WeightMean | None = None  # of the weights, if one is asked for

    @property
    def rows_hash(self) -> str:
        """Of the catalogue: which item has which id."""
        return self.identity.items

    @property
    def data_hash(self) -> str:
        """Of all sequences."""
        return self.identity.sequences


def build_sequence_state(
    config: SequenceConfig,
    item_counts: NDArray[np.int64],
    identity: DataIdentity = UNNAMED,
    group: Group | None = None,
    plan: ShardPlan | None = None,
) -> SequenceState:
    """A run's state with their first values, which depend on the settings and the catalogue alone.

    With a plan TorchRec spreads the item vectors; without, every process has a copy.
    """
    group, num_items = group or Group(), len(item_counts)
    tables = build_table(config, num_items, group, plan)
    model = Ranker(config.model, num_items, config.data.max_length, tables, seed=config.seed)
    loss = build_loss(config.loss, item_counts, config.seed)
    optimizer = build_dense_optimizer(model, config.dense)
    average = WeightMean(config.average, model, tables) if config.average.from_step else None
    return SequenceState(config, model, tables, optimizer, loss, identity, group, average=average)


def build_table(config: SequenceConfig, num_items: int, group: Group, plan: ShardPlan | None) -> RowTable | None:
    """What keeps the item vectors, if they are not weights like others."""
    if config.tables is None:
        return None
    if plan is not None:
        from recmill.embeddings.shard_rows import SpreadTable  # TorchRec costs seconds

        return SpreadTable(plan, config.tables, seed=config.seed, group=group)
    specs, dim = [item_spec(num_items)], config.model.embedding_dim
    if group.world.size == 1:
        tables = LocalTables(specs, dim, config.tables, seed=config.seed)
    else:
        tables = CopiedTables(specs, dim, config.tables, seed=config.seed, group=group)
    tables.compile()
    return tables


def take_sequence_step(state: SequenceState, batch: SequenceBatch, step: int) -> float:
    """Train on a batch, the one after `step` finished ones; its mean loss before the update, of all processes."""
    set_learning_rates(state, step)
    train_at(state.model, step)
    loss = loss_share(state, batch, step)
    # all processes know the loss before any of them has moved a weight
    value = float(state.group.stack(np.array([loss.item()])).mean())
    if not math.isfinite(value):
        state.optimizer.zero_grad(set_to_none=True)
        raise NonFiniteLoss(explain_non_finite(state, step, value))
    share = share_of_full(batch.num_rows, state.config.data.global_batch)
    (loss * share if share < 1 else loss).backward()  # type: ignore[no-untyped-call]  # the engine's rows, if there are any, are updated in here
    state.group.average([parameter.grad for parameter in state.model.parameters() if parameter.grad is not None])
    if state.config.update.clip_norm:
        nn.utils.clip_grad_norm_(state.model.parameters(), state.config.update.clip_norm)
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    if state.average:
        state.average.take_in(step + 1)
    return value


def loss_share(state: SequenceState, batch: SequenceBatch, step: int) -> Tensor:
    """Of several processes, that whose mean over them is the mean loss over all that is to be predicted in a batch."""
    mean_of = batch.num_targets / state.group.world.size
    return state.loss(state.model, LossBatch(batch.ids, batch.targets, batch.lengths, batch.rows, mean_of), step)


def set_learning_rates(state: SequenceState, step: int) -> None:
    """Move both optimizers along the schedule."""
    config, schedule = state.config, state.config.resolved_schedule
    if state.tables is not None and config.tables is not None:
        state.tables.lr = lr_at(step, config.tables.lr, schedule)
    for group in state.optimizer.param_groups:
        group["lr"] = lr_at(step, config.dense.lr, schedule)


def explain_non_finite(state: SequenceState, step: int, loss: float) -> str:
    """The step, the learning rate and the first weight that is not finite."""
    weights: list[tuple[str, Tensor]] = list(state.model.named_parameters())
    weights += [("item_vectors", piece.values) for piece in table_weights(state)]
    broken = next((name for name, weight in weights if not weight.isfinite().all()), "the loss itself")
    return (
        f"the loss of step {step + 1} is {loss} (learning rate {state.optimizer.param_groups[0]['lr']:g}); "
        f"first non-finite tensor: {broken}"
    )


def table_weights(state: SequenceState) -> list[Piece]:
    """The item vectors that this process holds, if they are not weights like others."""
    return [piece for piece in state.tables.pieces() if piece.what == "weights"] if state.tables else []
