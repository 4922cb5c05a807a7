"""The rows that finished segments hold, read where they lie."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.store.kind import StoreKind
from recmill.embeddings.store.layout import Arena, empty_arena
from recmill.embeddings.store.log import SegmentLog
from recmill.embeddings.store.residency import NEVER, outside
from recmill.errors import RunError


class StoredRows:
    """All rows of a store; close it."""

    def __init__(self, kind: StoreKind, paths: Sequence[Path]) -> None:
        self.kind = kind
        self.log = SegmentLog(kind.layout, num_rows=kind.num_rows, store_key=kind.store_key)
        self.where = np.full(kind.num_rows, NEVER, np.int64)
        self.first_row = kind.bounds.first_row
        self._first_values = kind.first_values
        try:
            take_segments(self.log, self.where, paths, {})
        except BaseException:
            self.log.close()
            raise

    def close(self) -> None:
        """Let go of the files."""
        self.log.close()

    def table_rows(self, name: str) -> slice:
        """The rows of a table among those of all."""
        table = [spec.name for spec in self.kind.specs].index(name)
        return slice(int(self.first_row[table]), int(self.first_row[table + 1]))

    def read(self, rows: NDArray[np.int64]) -> Arena:
        """These rows, those that were never changed with their first values."""
        arena, slots = empty_arena(len(rows), self.kind.layout), np.arange(len(rows))
        found = self.where[rows]
        is_new = found == NEVER
        self._first_values.fill(arena, slots[is_new], rows[is_new])
        self.log.start_fetch(outside(found[~is_new]), arena, slots[~is_new])()
        return arena


def take_segments(log: SegmentLog, where: NDArray[np.int64], paths: Sequence[Path], digests: Mapping[str, str]) -> None:
    """Open finished segments, and note where the rows lie that they hold."""
    for path, rows, places in log.take_in(paths, digests):
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(where)):
            bad = int(rows.min()) if rows.min() < 0 else int(rows.max())
            raise RunError(f"{path} is damaged: it has row {bad:,}, and the tables have {len(where):,} rows")
        where[rows] = outside(places)
    log.note_living(outside(where[where != NEVER]))
