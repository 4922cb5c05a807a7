"""Tables of which every process has a copy: gradients of all rows go round, and all make the same update."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.local import LocalTables
from recmill.embeddings.piece import Piece
from recmill.embeddings.table import TableSpec
from recmill.settings.optimizers import TableOptimizer
from recmill.world import Group


class CopiedTables(LocalTables):
    """The local engine in several processes, each of which looks up the rows of its own part of a batch.

    Not TorchRec's data-parallel tables: those take a dense gradient and the layers' optimizer. Here the rule is the one
    that was asked for, whichever it is, and duplicates are summed over all processes before it is applied.
    """

    def __init__(
        self, specs: Sequence[TableSpec], dim: int, optimizer: TableOptimizer, *, seed: int, group: Group
    ) -> None:
        super().__init__(specs, dim, optimizer, seed=seed)
        self._group = group

    def pieces_to_save(self) -> list[Piece]:
        """All of them in the main process, none in the others."""
        return self.pieces() if self._group.world.is_main else []

    def _receive(self, places: NDArray[np.int64], gradient_BFD: NDArray[np.float32]) -> None:
        """Update with what all processes bring; each brings its share of a mean over processes."""
        size = self._group.world.size
        all_places, all_gradients = self._group.join_rows(places), self._group.join_rows(gradient_BFD)
        all_gradients *= np.float32(1 / size)
        super()._receive(all_places, all_gradients)
