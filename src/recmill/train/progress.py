"""How far a run has come: what has been spent, and where the reader stands behind it."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from recmill.data.batch import Batch, Position


@dataclass(frozen=True)
class Progress:
    """Steps finished, rows trained on and passed over, seconds of training, and the position behind them."""

    step: int = 0
    num_rows: int = 0
    num_skipped: int = 0
    train_s: float = 0.0
    blocked_s: float = 0.0
    position: Position | None = None

    @property
    def epoch(self) -> int:
        """Passes over the data that are finished."""
        return self.position.epoch if self.position else 0

    def after(self, batch: Batch, *, step_s: float, blocked_s: float) -> "Progress":
        """One more step; `step_s` is its whole time, waiting for the batch included."""
        return Progress(
            self.step + 1,
            self.num_rows + batch.num_rows,
            self.num_skipped + batch.num_skipped,
            self.train_s + step_s,
            self.blocked_s + blocked_s,
            batch.position,
        )

    def with_skipped(self, num_skipped: int) -> "Progress":
        """More lines passed over, behind the last batch."""
        return replace(self, num_skipped=self.num_skipped + num_skipped)

    def to_json(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {**asdict(self), "position": self.position.to_json() if self.position else None}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Progress":
        """What `to_json` wrote."""
        position = Position.from_json(data["position"]) if data["position"] else None
        return Progress(**{**data, "position": position})
