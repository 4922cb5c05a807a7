"""Small tables, and the ids and gradients of steps on them: drawn, and the same again for the same step."""

import numpy as np
import torch
from numpy.typing import NDArray

from recmill.embeddings.local import LocalTables
from recmill.embeddings.table import TableSpec

SPECS = (TableSpec("cat_0", 50), TableSpec("cat_1", 3), TableSpec("cat_2", 1000))
DIM, NUM_PLACES, NUM_STEPS = 8, 64, 50


def draw_ids(step: int, *, all_same: bool = False) -> NDArray[np.int64]:
    """Ids (B, F) of a step; `all_same`: every row of the batch has the same."""
    rng = np.random.default_rng(step)
    if all_same:
        return np.repeat([[rng.integers(spec.num_rows) for spec in SPECS]], NUM_PLACES, axis=0)
    return np.stack([rng.integers(0, spec.num_rows, NUM_PLACES) for spec in SPECS], axis=1)


def draw_gradient(step: int) -> torch.Tensor:
    """A gradient (B, F, D) of a step."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(NUM_PLACES, len(SPECS), DIM, generator=generator)


def train(tables: LocalTables, *, all_same: bool) -> None:
    """Take all steps."""
    for step in range(NUM_STEPS):
        tables.look_up(draw_ids(step, all_same=all_same)).backward(draw_gradient(step))  # type: ignore[no-untyped-call]
