"""The engine of one CPU process: all tables in one array, gathered and updated by our own kernels.

Why not `nn.EmbeddingBag` or FBGEMM: one kernel for all tables, no gradient tensor of the size of a table, duplicates
summed and the optimizer applied while the rows are in the cache. `recmill bench embeddings` measures the difference.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recmill.embeddings.bounds import Bounds
from recmill.embeddings.kernels import (
    TableScratch,
    empty_scratch,
    gather_kernel,
    pool_kernel,
    update_kernel,
)
from recmill.embeddings.piece import Piece, What, set_first_values
from recmill.embeddings.rules import Storage, rule_of, update_numbers
from recmill.embeddings.table import TableSpec
from recmill.settings.optimizers import TableOptimizer

MAX_DIM = 1 << 16  # the generator of first values gives a column sixteen bits

Gradient = tuple[NDArray[np.int64], NDArray[np.float32]]  # ids (B, S) and what belongs to their vectors, (B, F, D)


class LocalTables:
    """Embedding tables of one dimension, and the optimizer that owns them."""

    def __init__(self, specs: Sequence[TableSpec], dim: int, optimizer: TableOptimizer, *, seed: int) -> None:
        assert 0 < dim <= MAX_DIM
        self.specs = tuple(specs)
        self.dim = dim
        self.optimizer = optimizer
        self._numbers = optimizer.numbers
        self.lr = optimizer.lr  # the loop moves it along the schedule
        self._bounds = Bounds(self.specs)
        num_rows = int(self._bounds.first_row[-1])
        self._storage = Storage(
            np.empty((num_rows, dim), np.float32),
            np.zeros((num_rows, optimizer.state_width(dim)), np.float32),
            self._bounds.first_row,
            self._bounds.first_slot,
        )
        self.num_updates = 0  # finished ones: what Adam corrects its bias by
        for piece in self.pieces():
            set_first_values(piece, optimizer, dim, seed)
        self._max_slots = max((spec.num_slots for spec in specs), default=1)
        self._is_pooled = self._max_slots > 1
        self._is_averaged = any(spec.pooling == "mean" and spec.num_slots > 1 for spec in specs)
        self._gather = pool_kernel(dim) if self._is_pooled else gather_kernel(dim)
        self._update = update_kernel(dim, rule_of(optimizer, dim))
        self._scratch: TableScratch = empty_scratch(numba.get_num_threads(), 1, dim)
        self._held: list[Gradient] | None = None
        # autograd calls a function's backward only if one of its inputs wants a gradient
        self._anchor = torch.zeros(0, requires_grad=True)

    def compile(self) -> None:
        """Have the kernels compiled, or loaded from their cache, now rather than within the first step."""
        ids = np.empty((0, self.num_slots), np.int64)
        self._apply_gradient(ids, self._gather_rows(ids))
        self._bounds.refuse_outside(ids)

    @property
    def num_slots(self) -> int:
        """How many ids a row of the batch has: one for each table, more for tables whose rows are summed."""
        return self._bounds.num_slots

    def look_up(self, ids: NDArray[np.int64]) -> Tensor:
        """The rows of ids (B, S), those of a table's slots pooled, as (B, F, D); the backward pass updates them."""
        self._bounds.refuse_outside(ids)
        sums_BFD: Tensor = _LookUp.apply(self._anchor, self, ids)  # type: ignore[no-untyped-call]
        # autograd divides the gradient likewise: a pass over (B, F, D) each way that sums alone do not pay
        return sums_BFD / self._count_for_means(ids).unsqueeze(2) if self._is_averaged else sums_BFD

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
            ids, gradients = zip(*held, strict=True)
            self._receive(np.concatenate(ids), np.concatenate(gradients))

    def drop_held(self) -> None:
        """No update: what was kept is forgotten."""
        self._held = None

    def weights(self, name: str) -> NDArray[np.float32]:
        """A table's rows, (rows, D), not a copy."""
        return self._storage.weights[self._rows_of(name)]

    def all_rows(self) -> Tensor:
        """The rows of all tables, one behind the other, not a copy."""
        return torch.from_numpy(self._storage.weights)

    def gathered(self) -> AbstractContextManager[None]:
        """A body in which all rows are at hand, which they always are."""
        return nullcontext()

    def state(self, name: str) -> NDArray[np.float32]:
        """What the optimizer keeps for a table's rows, (rows, state width), not a copy."""
        return self._storage.state[self._rows_of(name)]

    def pieces_to_save(self) -> list[Piece]:
        """The same as `pieces`: nobody else has them."""
        return self.pieces()

    def pieces(self) -> list[Piece]:
        """All tables, each whole, and what the optimizer keeps for them."""
        pieces = list[Piece]()
        for name in (spec.name for spec in self.specs):
            views: tuple[tuple[What, NDArray[np.float32]], ...]
            views = ("weights", self.weights(name)), ("state", self.state(name))
            for what, array in views:
                if array.size:
                    pieces.append(Piece(name, what, (len(array), array.shape[1]), 0, 0, torch.from_numpy(array)))
        return pieces

    def _rows_of(self, name: str) -> slice:
        table = [spec.name for spec in self.specs].index(name)
        return slice(int(self._storage.first_row[table]), int(self._storage.first_row[table + 1]))

    def _count_for_means(self, ids: NDArray[np.int64]) -> Tensor:
        """How many rows each mean is of, (B, F); 1 where rows are summed and where there are none."""
        counts_BF = np.ones((len(ids), len(self.specs)), np.float32)
        for table, spec in enumerate(self.specs):
            if spec.pooling == "mean":
                first, end = self._storage.first_slot[table : table + 2]
                counts_BF[:, table] = np.maximum(1, np.count_nonzero(ids[:, first:end] >= 0, axis=1))
        return torch.from_numpy(counts_BF)

    def _gather_rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        out_BFD = np.empty((len(ids), len(self.specs), self.dim), np.float32)
        self._gather(ids, self._storage, out_BFD)
        return out_BFD

    def _receive(self, ids: NDArray[np.int64], gradient_BFD: NDArray[np.float32]) -> None:
        """Update the rows at once, or keep what belongs to a greater update."""
        if self._held is None:
            self.num_updates += 1
            self._apply_gradient(ids, gradient_BFD)
        else:
            self._held.append((ids, gradient_BFD))

    def _apply_gradient(self, ids: NDArray[np.int64], gradient_BFD: NDArray[np.float32]) -> None:
        threads = numba.get_num_threads()
        num_entries = len(ids) * self._max_slots
        if self._scratch.distinct.shape[1] < num_entries or len(self._scratch.stamp) != threads:
            self._scratch = empty_scratch(threads, num_entries, self.dim)
        rates = update_numbers(self.lr, self._numbers, self.num_updates)
        self._update(ids, gradient_BFD, self._storage, self._scratch, rates)


class _LookUp(torch.autograd.Function):
    """The bridge to autograd: rows out, gradient in, nothing to hand further down."""

    @staticmethod
    def forward(ctx: Any, _anchor: Tensor, tables: LocalTables, ids: NDArray[np.int64]) -> Tensor:
        ctx.tables, ctx.ids = tables, ids
        return torch.from_numpy(tables._gather_rows(ids))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        (gradient_BFD,) = gradients
        ctx.tables._receive(ctx.ids, gradient_BFD.contiguous().numpy())
        return None, None, None
