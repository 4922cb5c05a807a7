"""What all engines of one process share: rows of a storage gathered, and moved by what a backward pass brings.

Why not `nn.EmbeddingBag` or FBGEMM: one kernel for all tables, no gradient tensor of the size of a table, duplicates
summed and the optimizer applied while the rows are in the cache. `recmill bench embeddings` measures the difference.
"""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recmill.embeddings.bounds import Bounds
from recmill.embeddings.kernels import TableScratch, empty_scratch, gather_kernel, pool_kernel, update_kernel
from recmill.embeddings.rules import Storage, rule_of, update_numbers
from recmill.embeddings.table import TableSpec
from recmill.settings.optimizers import TableOptimizer

MAX_DIM = 1 << 16  # the generator of first values gives a column sixteen bits

Gradient = tuple[NDArray[np.int64], NDArray[np.float32]]  # places (B, S) and what belongs to their vectors, (B, F, D)


class RowEngine:
    """Tables of one dimension and the optimizer that owns them, over a storage of rows.

    A place is where a row lies in the storage, counted from the first row of its table; who looks up ids makes places
    of them first.
    """

    def __init__(self, specs: Sequence[TableSpec], dim: int, optimizer: TableOptimizer, storage: Storage) -> None:
        assert 0 < dim <= MAX_DIM
        self.specs = tuple(specs)
        self.dim = dim
        self.optimizer = optimizer
        self._numbers = optimizer.numbers
        self.lr = optimizer.lr  # the loop moves it along the schedule
        self._bounds = Bounds(self.specs)
        self._storage = storage
        self.num_updates = 0  # finished ones: what Adam corrects its bias by
        self._max_slots = max((spec.num_slots for spec in specs), default=1)
        self._is_averaged = any(spec.pooling == "mean" and spec.num_slots > 1 for spec in specs)
        self._gather = pool_kernel(dim) if self._max_slots > 1 else gather_kernel(dim)
        self._update = update_kernel(dim, rule_of(optimizer, dim))
        self._scratch: TableScratch = empty_scratch(numba.get_num_threads(), 1, dim)
        self._held: list[Gradient] | None = None
        # autograd calls a function's backward only if one of its inputs wants a gradient
        self._anchor = torch.zeros(0, requires_grad=True)

    def compile(self) -> None:
        """Have the kernels compiled, or loaded from their cache, now rather than within the first step."""
        places = np.empty((0, self.num_slots), np.int64)
        self._apply_gradient(places, self._gather_places(places))
        self._bounds.refuse_outside(places)

    @property
    def num_slots(self) -> int:
        """How many ids a row of the batch has: one for each table, more for tables whose rows are summed."""
        return self._bounds.num_slots

    def _look_up_places(self, places: NDArray[np.int64]) -> Tensor:
        """The rows at places (B, S), those of a table's slots pooled, as (B, F, D); the backward pass updates them."""
        sums_BFD: Tensor = _LookUp.apply(self._anchor, self, places)  # type: ignore[no-untyped-call]
        # autograd divides the gradient likewise: a pass over (B, F, D) each way that sums alone do not pay
        return sums_BFD / self._count_for_means(places).unsqueeze(2) if self._is_averaged else sums_BFD

    def hold(self) -> None:
        """Until `apply_held` or `drop_held`, backward passes move no row; what they bring is kept."""
        self._held = []

    def held_gradients(self) -> list[NDArray[np.float32]]:
        """What has been kept, to look at or to change."""
        return [gradient_BFD for _, gradient_BFD in self._held or ()]

    def apply_held(self) -> None:
        """One update with all that was kept, as if it had come in one batch."""
        held = self._held or []
        self._held = None
        if held:
            places, gradients = zip(*held, strict=True)
            self._receive(np.concatenate(places), np.concatenate(gradients))

    def drop_held(self) -> None:
        """No update: what was kept is forgotten."""
        self._held = None

    def are_finite(self) -> bool:
        """Whether every weight is a number."""
        return bool(np.isfinite(self._storage.weights).all())

    def _count_for_means(self, places: NDArray[np.int64]) -> Tensor:
        """How many rows each mean is of, (B, F); 1 where rows are summed and where there are none."""
        counts_BF = np.ones((len(places), len(self.specs)), np.float32)
        for table, spec in enumerate(self.specs):
            if spec.pooling == "mean":
                first, end = self._storage.first_slot[table : table + 2]
                counts_BF[:, table] = np.maximum(1, np.count_nonzero(places[:, first:end] >= 0, axis=1))
        return torch.from_numpy(counts_BF)

    def _gather_places(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        out_BFD = np.empty((len(places), len(self.specs), self.dim), np.float32)
        self._gather(places, self._storage, out_BFD)
        return out_BFD

    def _receive(self, places: NDArray[np.int64], gradient_BFD: NDArray[np.float32]) -> None:
        """Update the rows at once, or keep what belongs to a greater update."""
        if self._held is None:
            self.num_updates += 1
            self._apply_gradient(places, gradient_BFD)
        else:
            self._held.append((places, gradient_BFD))

    def _apply_gradient(self, places: NDArray[np.int64], gradient_BFD: NDArray[np.float32]) -> None:
        threads = numba.get_num_threads()
        num_entries = len(places) * self._max_slots
        if self._scratch.distinct.shape[1] < num_entries or len(self._scratch.stamp) != threads:
            self._scratch = empty_scratch(threads, num_entries, self.dim)
        rates = update_numbers(self.lr, self._numbers, self.num_updates)
        self._update(places, gradient_BFD, self._storage, self._scratch, rates)


class _LookUp(torch.autograd.Function):
    """The bridge to autograd: rows out, gradient in, nothing to hand further down."""

    @staticmethod
    def forward(ctx: Any, _anchor: Tensor, engine: RowEngine, places: NDArray[np.int64]) -> Tensor:
        ctx.engine, ctx.places = engine, places
        return torch.from_numpy(engine._gather_places(places))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        (gradient_BFD,) = gradients
        ctx.engine._receive(ctx.places, gradient_BFD.contiguous().numpy())
        return None, None, None
