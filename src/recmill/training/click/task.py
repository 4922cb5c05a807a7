"""Click models as a task: batches of rows, a step on each, and their metrics."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recmill.data.batch import Batch, Position
from recmill.embeddings.local import LocalTables
from recmill.embeddings.tiered import TieredTables
from recmill.models.click.front import target_statistics_of
from recmill.models.click.target_statistics import TargetStatistics
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import SplitName
from recmill.training.click.baselines import compare_rows, train_baselines
from recmill.training.click.evaluate import ClickEvaluation, evaluate, scored_with
from recmill.training.click.inputs import Inputs
from recmill.training.click.look_ahead import LookAhead
from recmill.training.click.step import ClickState, take_step
from recmill.training.loop.ledger import fingerprint
from recmill.training.loop.limits import least_rows
from recmill.training.loop.local_steps import LocalSteps
from recmill.training.loop.signals import Signals


def _fingerprint(batch: Batch) -> NDArray[np.uint64]:
    return fingerprint(batch.columns)


@dataclass
class ClickTask:
    """A click model in one process."""

    state: ClickState
    inputs: Inputs
    signals: Signals = field(default_factory=Signals)
    score_name = "auroc"

    @property
    def config(self) -> TrainConfig:
        """All settings."""
        return self.state.config

    settings = config

    @property
    def rows_per_epoch(self) -> int:
        """About how many rows there are to train on."""
        return self.inputs.estimate_rows("train")

    @contextmanager
    def open_steps(self, start: Position | None) -> Iterator[LocalSteps]:
        """Steps from a position on."""
        rates = target_statistics_of(self.state.model)
        if rates is not None and start is None:  # later they have come back with the layers
            self._count(rates)
        with self.inputs.open_training(start) as stream, ExitStack() as stack:
            least, tables = least_rows(self.config.data), self.state.tables
            batches = stream if isinstance(tables, LocalTables) else stack.enter_context(LookAhead(stream, tables))
            yield LocalSteps(batches, partial(take_step, self.state), _fingerprint, least, self.signals)

    def _count(self, rates: TargetStatistics) -> None:
        """The clicks of all rows to train on: a pass over them."""
        rates.forget()
        with self.inputs.open_evaluation("train") as stream:
            for batch in stream:
                rates.count(batch.columns)

    def evaluate(self, split: SplitName) -> ClickEvaluation:
        """Score the rows of a split."""
        return evaluate(self.state, self.inputs, split)

    def compare(self, split: SplitName, weights: str) -> dict[str, Any]:
        """The click rate and logistic regression, on the same rows; and what other caches would have done."""
        tables = self.state.tables
        store = {"store_hit_rate_at": tables.cache.curve.hit_rates()} if isinstance(tables, TieredTables) else {}
        if not self.config.baselines.enabled:
            return store
        baselines = train_baselines(self.config, self.inputs)
        rows = scored_with(self.state, self.inputs, split, baselines.score)
        return {**store, **compare_rows(self.config, baselines, rows), "compared_weights": weights}

    def log_values(self) -> dict[str, float]:
        """The learning rates, and what a run with a loss scale tells about it."""
        rates = {"dense_lr": self.state.optimizer.param_groups[0]["lr"], "table_lr": self.state.tables.lr}
        if isinstance(self.state.tables, TieredTables):
            rates |= self.state.tables.log_values()
        scale = self.state.loss_scale
        return {**rates, "loss_scale": scale.scale, "skipped_steps": scale.num_skipped} if scale else rates

    def is_finite(self) -> bool:
        """Whether every weight, and all that batch norm has measured, is a number."""
        layers = all(bool(torch.isfinite(tensor).all()) for tensor in self.state.model.state_dict().values())
        return layers and self.state.tables.are_finite()
