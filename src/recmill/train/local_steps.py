"""The steps of a process that is alone, whatever it trains."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from recmill.data.batch import Batch
from recmill.train.limits import refuse_no_step
from recmill.train.signals import Signals
from recmill.train.task import Taken


class Batches(Protocol):
    """Batches from a position on."""

    @property
    def trailing_skipped(self) -> int:
        """How many bad rows were passed over behind the last one."""

    def __iter__(self) -> Iterator[Any]:
        """Itself."""

    def __next__(self) -> Any:
        """The next one."""


@dataclass
class LocalSteps:
    """A batch is read, then trained on."""

    batches: Batches
    take_step: Callable[[Any, int], float]  # a batch and the number of finished steps → its loss
    least_rows: int  # of a batch that is not dropped
    signals: Signals
    trailing_skipped: int = 0

    def take(self, step: int) -> Taken | None:
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
        columns = batch.columns if isinstance(batch, Batch) else None
        return Taken(batch, loss, time.perf_counter() - began, blocked_s, self.signals.caught, columns)
