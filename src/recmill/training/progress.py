"""How far a run has come: what has been spent, and where the reader stands behind it."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from recmill.data.batch import Position


class Spent(Protocol):
    """A global batch that has been trained on."""

    @property
    def num_rows(self) -> int:
        """How many rows it had, all processes together."""

    @property
    def num_skipped(self) -> int:
        """How many bad rows were ignored on the way to it."""

    @property
    def position(self) -> Position:
        """Where all readers stand behind it."""


@dataclass(frozen=True)
class Best:
    """The best validation score so far, and the step that had it."""

    score: float
    step: int


@dataclass(frozen=True)
class Interval:
    """What has come since the last log record: a run that goes on writes the next one as if it had never stopped."""

    num_rows: int = 0
    loss_sum: float = 0.0
    train_s: float = 0.0
    blocked_s: float = 0.0


@dataclass(frozen=True)
class Progress:
    """Steps finished, rows trained on and ignored, seconds of training, and the position behind them.

    And what evaluations on the way have found: the best, and how many have come since that were not better.
    """

    step: int = 0
    num_rows: int = 0
    num_skipped: int = 0
    train_s: float = 0.0
    blocked_s: float = 0.0
    position: Position | None = None
    best: Best | None = None
    num_worse: int = 0
    interval: Interval = Interval()

    @property
    def epoch(self) -> int:
        """Passes over the data that are finished."""
        return self.position.epoch if self.position else 0

    def after(self, batch: Spent, *, loss: float, step_s: float, blocked_s: float) -> "Progress":
        """One more step; `step_s` is its whole time, waiting for the batch included."""
        interval = Interval(
            self.interval.num_rows + batch.num_rows,
            self.interval.loss_sum + loss * batch.num_rows,
            self.interval.train_s + step_s,
            self.interval.blocked_s + blocked_s,
        )
        return replace(
            self,
            step=self.step + 1,
            num_rows=self.num_rows + batch.num_rows,
            num_skipped=self.num_skipped + batch.num_skipped,
            train_s=self.train_s + step_s,
            blocked_s=self.blocked_s + blocked_s,
            position=batch.position,
            interval=interval,
        )

    def logged(self) -> "Progress":
        """The interval has been told of."""
        return replace(self, interval=Interval())

    def after_evaluation(self, score: float | None) -> "Progress":
        """One more evaluation; where labels are all the same there is no AUROC, and nothing to compare."""
        if score is None:
            return self
        if self.best is None or score > self.best.score:
            return replace(self, best=Best(score, self.step), num_worse=0)
        return replace(self, num_worse=self.num_worse + 1)

    def with_skipped(self, num_skipped: int) -> "Progress":
        """More lines ignored, behind the last batch."""
        return replace(self, num_skipped=self.num_skipped + num_skipped)

    def to_json(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {**asdict(self), "position": self.position.to_json() if self.position else None}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Progress":
        """What `to_json` wrote."""
        position = Position.from_json(data["position"]) if data["position"] else None
        best = Best(**data["best"]) if data["best"] else None
        interval = Interval(**data.get("interval", {}))  # older versions did not save it
        return Progress(**{**data, "position": position, "best": best, "interval": interval})
