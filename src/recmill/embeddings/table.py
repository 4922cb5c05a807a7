"""What an embedding table is, and how its rows are updated."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from recmill.config import Settings

Pooling = Literal["sum", "mean"]
TableOptimizerKind = Literal["sgd", "adagrad", "rowwise_adagrad"]


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
    """The rule that moves the rows a batch has touched.

    With g the sum of a row's gradients over the batch:
    sgd               w ← w − lr·g
    adagrad           m ← m + g²,          w ← w − lr·g / (√m + eps)    m of the row's shape
    rowwise_adagrad   s ← s + mean(g²),    w ← w − lr·g / (√s + eps)    one s for the row
    """

    kind: TableOptimizerKind = "rowwise_adagrad"
    lr: float = Field(default=0.02, gt=0)
    eps: float = Field(default=1e-8, ge=0)

    def state_width(self, dim: int) -> int:
        """How many numbers the rule keeps for each row."""
        return {"sgd": 0, "adagrad": dim, "rowwise_adagrad": 1}[self.kind]
