"""What the loop and the run directory know of a job, be it clicks or sequences, on one process or on many."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Position
from recmill.settings.data import SplitName
from recmill.settings.families import AnyConfig
from recmill.settings.run import Cadence, Stop
from recmill.training.checkpoint.snapshot import State
from recmill.training.progress import Spent


@dataclass(frozen=True)
class StepResult:
    """One step: the global batch it spent, its mean loss, its seconds, and the signal that asks the run to end."""

    spent: Spent
    loss: float
    step_s: float
    blocked_s: float = 0.0  # of these, waiting for the batch
    signal_number: int = 0  # 0: none was caught
    fingerprint: Callable[[], NDArray[np.uint64]] | None = None  # of each of this process's rows


class Steps(Protocol):
    """Steps from a position on; every process of a run takes the same ones."""

    @property
    def trailing_skipped(self) -> int:
        """How many bad rows were ignored behind the last batch."""

    def take(self, step: int) -> StepResult | None:
        """The step behind `step` finished ones, forward to update; None at the end of the data."""


class Evaluation(Protocol):
    """How good a model is on a split."""

    @property
    def split(self) -> SplitName:
        """On which rows."""

    @property
    def score(self) -> float | None:
        """The number by which models are compared, the larger the better; None if the split has none."""

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""

    def describe(self) -> str:
        """The metrics in a line."""


class TaskSettings(Protocol):
    """The settings that every job has."""

    @property
    def cadence(self) -> Cadence:
        """How often things happen."""

    @property
    def stop(self) -> Stop:
        """When it ends."""


class Task(Protocol):
    """A job: what it trains, on what, and how it is evaluated."""

    score_name: str  # of `Evaluation.score`, as it appears in results

    @property
    def settings(self) -> TaskSettings:
        """When things happen, and when all is over."""

    @property
    def config(self) -> AnyConfig:
        """All settings."""

    @property
    def state(self) -> State:
        """What is saved and restored."""

    @property
    def rows_per_epoch(self) -> int:
        """About how many rows a pass over the data has."""

    def open_steps(self, start: Position | None) -> AbstractContextManager[Steps]:
        """Steps from a position on."""

    def evaluate(self, split: SplitName) -> Evaluation:
        """Evaluate the model as it is now; every process of a run has to ask."""

    def compare(self, split: SplitName, weights: str) -> dict[str, Any]:
        """What a result is compared with, as plain data; `weights` says which ones the task holds, last or best."""

    def log_values(self) -> dict[str, float]:
        """What a log record tells of the optimizers: learning rates, and the loss scale if there is one."""

    def is_finite(self) -> bool:
        """Whether every weight of this process is a number."""
