"""Steps in which a batch is read and then trained on, whatever is trained."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from recmill.training.loop.limits import refuse_no_step
from recmill.training.loop.signals import Signals
from recmill.training.loop.task import StepResult
from recmill.world import Group


class Batches(Protocol):
    """Batches from a position on."""

    @property
    def trailing_skipped(self) -> int:
        """How many bad rows were ignored behind the last one."""

    def __iter__(self) -> Iterator[Any]:
        """Itself."""

    def __next__(self) -> Any:
        """The next one."""


@dataclass
class LocalSteps:
    """A batch is read, then trained on; of several processes, all have the same number of batches."""

    batches: Batches
    take_step: Callable[[Any, int], float]  # a batch and the number of finished steps → its loss
    fingerprint: Callable[[Any], NDArray[np.uint64]]  # of each of a batch's rows in this process
    least_rows: int  # of a batch that is not dropped
    signals: Signals
    group: Group = field(default_factory=Group)
    trailing_skipped: int = 0

    def take(self, step: int) -> StepResult | None:
        """Read a batch, train on it."""
        began = time.perf_counter()
        batch = next(self.batches, None)
        blocked_s = time.perf_counter() - began
        if batch is None:
            self.trailing_skipped = self.batches.trailing_skipped
            return None
        if batch.num_rows < self.least_rows:
            refuse_no_step(step, self.least_rows)
            return None  # its rows are not spent: who goes on with more epochs trains on them
        loss = self.take_step(batch, step)
        mine = [time.perf_counter() - began, blocked_s, float(self.signals.caught)]
        known = self.group.stack(np.array(mine))
        # the clock of the main process is everybody's, and who was asked to end asks all
        step_s, blocked_s, _ = known[0].tolist()
        return StepResult(batch, loss, step_s, blocked_s, int(known[:, 2].max()), partial(self.fingerprint, batch))
