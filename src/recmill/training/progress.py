"""How far a run has come: what has been spent, and where the reader stands behind it."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from recmill.data.batch import Position
from recmill.own_files import ListOf, MisfitError, OrNull, Table, number, whole

_CURSOR = ListOf(of=whole(0, 1 << 48), length=3)
PROGRESS_SHAPE = Table(
    fields={
        "step": whole(0, 1 << 48),
        "num_rows": whole(0, 1 << 56),
        "num_skipped": whole(0, 1 << 56),
        "train_s": number(0),
        "blocked_s": number(0),
        "position": OrNull(of=ListOf(of=_CURSOR)),
        "best": OrNull(of=Table(fields={"score": number(), "step": whole(0, 1 << 48)})),
        "num_worse": whole(),
    },
    optional={  # older versions did not save them
        "interval": Table(
            fields={"num_rows": whole(), "loss_sum": number(), "train_s": number(0), "blocked_s": number(0)}
        ),
        "logged_loss": OrNull(of=number()),
    },
)


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
    logged_loss: float | None = None  # the mean of the interval before it

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

    def logged(self, loss: float | None = None) -> "Progress":
        """The interval has been told of, with this mean loss."""
        return replace(self, interval=Interval(), logged_loss=loss)

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
    def from_json(data: dict[str, Any], origin: str = "") -> "Progress":
        """What `to_json` wrote and a file, the origin, has kept; what contradicts itself is rejected by its field."""
        PROGRESS_SHAPE.check(data, "")
        _refuse_contradictions(data)
        position = Position.from_json(data["position"], origin) if data["position"] else None
        best = Best(**data["best"]) if data["best"] else None
        interval = Interval(**data.get("interval", {}))  # older versions did not save it
        return Progress(**{**data, "position": position, "best": best, "interval": interval})


def _refuse_contradictions(data: dict[str, Any]) -> None:
    step, num_rows = data["step"], data["num_rows"]
    if num_rows and not 0 < step <= num_rows:
        raise MisfitError(f"num_rows = {num_rows:,} does not go with step = {step:,}: a step has at least one row")
    if bool(data["position"]) != bool(num_rows):
        raise MisfitError(f"position = {str(data['position'])[:80]} does not go with num_rows = {num_rows:,}")
    if data["best"] and data["best"]["step"] > step:
        raise MisfitError(f"best.step = {data['best']['step']:,} is behind step = {step:,}")
    epochs = [cursor[0] for cursor in data["position"] or [[0]]]
    if min(epochs) > num_rows:
        raise MisfitError(f"position has epoch {min(epochs):,}, but only {num_rows:,} rows were trained on")
