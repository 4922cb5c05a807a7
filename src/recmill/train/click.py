"""Click models as a task: batches of rows, a step on each, and their metrics."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from recmill.data.batch import Position
from recmill.data.split import SplitName
from recmill.data.stream import Stream
from recmill.train.config import TrainConfig
from recmill.train.evaluate import ClickEvaluation, evaluate
from recmill.train.inputs import Inputs
from recmill.train.limits import refuse_no_step
from recmill.train.signals import Signals
from recmill.train.step import Parts, take_step
from recmill.train.task import Taken


@dataclass
class LocalSteps:
    """The steps of a process that is alone."""

    parts: Parts
    stream: Stream
    signals: Signals
    trailing_skipped: int = 0

    def take(self, step: int) -> Taken | None:
        """Read a batch, train on it."""
        data = self.parts.config.data
        least_rows = data.global_batch if data.drop_last else 1
        began = time.perf_counter()
        batch = next(self.stream, None)
        if batch is None:
            self.trailing_skipped = self.stream.trailing_skipped
            return None
        if batch.num_rows < least_rows:
            refuse_no_step(step, least_rows)
            return None  # its rows are not spent: who goes on with more epochs trains on them
        loss = take_step(self.parts, batch, step)
        step_s = time.perf_counter() - began
        return Taken(batch, loss, step_s, self.stream.blocked_s, self.signals.caught, batch.columns)


@dataclass
class ClickTask:
    """A click model in one process."""

    state: Parts
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
        with self.inputs.open_training(start) as stream:
            yield LocalSteps(self.state, stream, self.signals)

    def evaluate(self, split: SplitName) -> ClickEvaluation:
        """Score the rows of a split."""
        return evaluate(self.state, self.inputs, split)

    def rates(self) -> dict[str, float]:
        """The learning rates, and what a run with a loss scale tells about it."""
        rates = {"dense_lr": self.state.optimizer.param_groups[0]["lr"], "table_lr": self.state.tables.lr}
        scale = self.state.loss_scale
        return {**rates, "loss_scale": scale.scale, "skipped_steps": scale.num_skipped} if scale else rates

    def is_finite(self) -> bool:
        """Whether every weight, and all that batch norm has measured, is a number."""
        layers = all(bool(torch.isfinite(tensor).all()) for tensor in self.state.model.state_dict().values())
        tables = self.state.tables
        return layers and all(bool(np.isfinite(tables.weights(spec.name)).all()) for spec in tables.specs)
