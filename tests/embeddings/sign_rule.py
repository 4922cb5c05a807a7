"""A table optimizer from outside the package: every weight takes a step of lr against the sign of its gradient."""

from typing import Any

import numpy as np

from recmill.embeddings.rules import Rule, UpdateNumbers
from recmill.jit import njit


def sign(_rule: Rule, dim: int) -> Any:
    @njit(inline="always")
    def update(weights: Any, state: Any, gradient: Any, numbers: UpdateNumbers) -> None:
        state[0] += np.float32(1)
        for d in range(dim):
            weights[d] -= numbers.lr * np.sign(gradient[d])

    return update
