"""What an embedding table is, and how its rows are updated."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from recmill.settings.tree import Settings, numbers_of_kind

Pooling = Literal["sum", "mean"]
TableOptimizerKind = Literal["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl"]

# The numbers each rule takes, with their defaults.
_ADAGRAD = {"eps": 1e-8, "initial_accumulator": 0.0, "weight_decay": 0.0}
_ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
NUMBERS: dict[str, dict[str, float]] = {
    "sgd": {"momentum": 0.0, "weight_decay": 0.0},
    "adagrad": _ADAGRAD,
    "rowwise_adagrad": _ADAGRAD,
    "adam": _ADAM,
    "rowwise_adam": _ADAM,
    "ftrl": {"l1": 0.0, "l2": 0.0, "lr_power": -0.5, "initial_accumulator": 0.0},
}


@dataclass(frozen=True)
class TableSpec:
    """A table of `num_rows` vectors, looked up by the category column of the same name.

    A column of several values has as many slots; the rows of those it holds are summed, or averaged.
    """

    name: str
    num_rows: int
    num_slots: int = 1
    pooling: Pooling = "sum"


class TableOptimizer(Settings):
    """The rule that moves the rows a batch has touched; all others, and their state, stay as they are.

    With g the sum of a row's gradients over the batch, plus weight_decay·w, and t the updates of the tables so far,
    counted for all rows together as `torch.optim.SparseAdam` and FBGEMM do:
    sgd               m ← momentum·m + g,  w ← w − lr·m                 no m without momentum
    adagrad           m ← m + g²,          w ← w − lr·g / (√m + eps)    m of the row's shape
    rowwise_adagrad   s ← s + mean(g²),    w ← w − lr·g / (√s + eps)    one s for the row
    adam              m ← β₁m + (1−β₁)g,   v ← β₂v + (1−β₂)g²,          w ← w − lr·m̂ / (√v̂ + eps)
                      with m̂ = m / (1−β₁ᵗ), v̂ = v / (1−β₂ᵗ)
    rowwise_adam      the same with v ← β₂v + (1−β₂)mean(g²), one for the row
    ftrl              n′ = n + g²,         z ← z + g − (n′^−p − n^−p)·w / lr,     n ← n′
                      w ← 0 if |z| ≤ l1, otherwise (sign(z)·l1 − z) / (n^−p / lr + l2), p = lr_power
    FTRL knows a weight's first value only by its first step: with initial_accumulator = 0 that is one of Adagrad's,
    with more (OneFlow's default is 0.1) most of the first value is forgotten.
    """

    kind: TableOptimizerKind = "rowwise_adagrad"
    lr: float = Field(default=0.02, gt=0)
    # Without a value: the default of the kind. A value for a kind that has no use for it is refused.
    eps: float | None = Field(default=None, ge=0)
    momentum: float | None = Field(default=None, ge=0, lt=1)
    weight_decay: float | None = Field(default=None, ge=0)
    initial_accumulator: float | None = Field(default=None, ge=0)
    beta1: float | None = Field(default=None, ge=0, lt=1)
    beta2: float | None = Field(default=None, ge=0, lt=1)
    l1: float | None = Field(default=None, ge=0)
    l2: float | None = Field(default=None, ge=0)
    lr_power: float | None = Field(default=None, ge=-1, le=0)

    def model_post_init(self, _context: object) -> None:
        """Refuse numbers the rule does not take."""
        assert self.numbers

    @property
    def numbers(self) -> dict[str, float]:
        """What the rule is given beside the learning rate."""
        return numbers_of_kind(self, "tables", self.kind, NUMBERS)

    def state_width(self, dim: int) -> int:
        """How many numbers the rule keeps for each row."""
        if self.kind == "sgd":
            return dim if self.numbers["momentum"] else 0
        return {"adagrad": dim, "rowwise_adagrad": 1, "adam": 2 * dim, "rowwise_adam": dim + 1, "ftrl": 2 * dim}[
            self.kind
        ]

    def accumulator_width(self, dim: int) -> int:
        """How many of those, the first ones, start at `initial_accumulator`."""
        return {"adagrad": dim, "rowwise_adagrad": 1, "ftrl": dim}.get(self.kind, 0)
