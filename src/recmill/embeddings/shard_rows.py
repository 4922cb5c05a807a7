"""One table of which single rows are looked up, spread over processes by TorchRec's `EmbeddingCollection`.

Ids travel to the processes that hold their rows and vectors come back, as many as each process asks for. What needs all
rows at once, which an evaluation does, is given a copy of the whole table for that time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torchrec
from numpy.typing import NDArray
from torch import Tensor, nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder

from recmill.embeddings.bounds import Bounds
from recmill.embeddings.piece import Piece, set_first_values
from recmill.embeddings.plan import ShardPlan
from recmill.embeddings.shard_fused import FusedTables
from recmill.embeddings.table import TableSpec
from recmill.settings.optimizers import TableOptimizer
from recmill.world import Group


class _Collection(nn.Module):
    """The table as TorchRec knows it, with no memory of its own yet."""

    def __init__(self, spec: TableSpec, dim: int) -> None:
        super().__init__()
        config = torchrec.EmbeddingConfig(
            name=spec.name, embedding_dim=dim, num_embeddings=spec.num_rows, feature_names=[spec.name]
        )
        self.tables = torchrec.EmbeddingCollection(tables=[config], device=torch.device("meta"))


class SpreadTable:
    """A table over all processes, and the optimizer that owns it."""

    def __init__(self, plan: ShardPlan, optimizer: TableOptimizer, *, seed: int, group: Group) -> None:
        (place,) = plan.placements
        self.optimizer = optimizer
        self._spec, self._dim, self._group = place.spec, plan.dim, group
        collection = _Collection(place.spec, plan.dim)
        self._fused = FusedTables(collection, EmbeddingCollectionSharder(), plan, optimizer, group.world)
        self._bounds = Bounds([place.spec])
        self._lr, self._num_updates = optimizer.lr, 0
        self._whole: Tensor | None = None
        for piece in self.pieces():
            set_first_values(piece, optimizer, plan.dim, seed)

    @property
    def lr(self) -> float:
        """The learning rate of the next update; the loop moves it along the schedule."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr = value
        self._fused.set_lr(value)

    @property
    def num_updates(self) -> int:
        """Finished ones."""
        return self._num_updates

    @num_updates.setter
    def num_updates(self, value: int) -> None:
        self._num_updates = value
        self._fused.set_num_updates(value)

    def look_up(self, ids: NDArray[np.int64]) -> Tensor:
        """The rows of ids (N, 1) as (N, 1, D), which the backward pass updates; all processes look up at once.

        While the whole table is at hand they need not, and nothing is updated.
        """
        self._bounds.refuse_outside(ids)
        if self._whole is not None:
            return self._whole[torch.from_numpy(ids)]
        device = torch.device(self._group.world.device)
        jagged = torchrec.KeyedJaggedTensor(
            keys=[self._spec.name],
            values=torch.from_numpy(ids.ravel()),
            lengths=torch.tensor([len(ids)], dtype=torch.int32),
            stride=1,
        ).to(device)
        module: Any = self._fused.module
        vectors_ND: Tensor = module(jagged)[self._spec.name].values()
        if vectors_ND.requires_grad:
            vectors_ND.register_hook(self._count)  # type: ignore[no-untyped-call]
        return vectors_ND.unsqueeze(1)

    def _count(self, _gradient: Tensor) -> None:
        self._num_updates += 1

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """A body in which every process has a copy of all rows; all enter it at once."""
        self._whole = torch.full((self._spec.num_rows, self._dim), torch.nan)
        mine = [piece for piece in self.pieces() if piece.what == "weights"]
        extents = [(piece.first_row, piece.first_column, *piece.values.shape) for piece in mine]
        for rank, parts in enumerate(self._group.gather(extents)):
            for number, (row, column, num_rows, num_columns) in enumerate(parts):
                part = self._whole[row : row + num_rows, column : column + num_columns]
                held = mine[number].values if rank == self._group.world.rank else torch.empty(num_rows, num_columns)
                part.copy_(self._group.from_rank(held.contiguous(), rank))
        try:
            yield
        finally:
            self._whole = None

    def all_rows(self) -> Tensor:
        """(rows, D), within `gathered`."""
        assert self._whole is not None
        return self._whole

    def pieces(self) -> list[Piece]:
        """What this process holds."""
        return self._fused.pieces()

    def pieces_to_save(self) -> list[Piece]:
        """The same: nobody else has them."""
        return self.pieces()
