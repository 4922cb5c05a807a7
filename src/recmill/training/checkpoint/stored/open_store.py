"""The rows of a saved state that lie in files, opened, and the records that count."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.store.kind import StoreKind
from recmill.embeddings.store.layout import Arena
from recmill.embeddings.store.log import Records
from recmill.embeddings.store.residency import outside
from recmill.embeddings.store.segment import SegmentFile
from recmill.embeddings.store.stored import StoredRows
from recmill.errors import RunError
from recmill.files import read_manifest
from recmill.training.checkpoint.saved_rows import has_stored_rows, open_stored
from recmill.training.checkpoint.saved_state import SavedState, open_state


@dataclass(frozen=True)
class OpenStore:
    """A saved state and its rows."""

    state: SavedState
    rows: StoredRows

    @property
    def kind(self) -> StoreKind:
        """Of which tables the rows are."""
        return self.rows.kind

    @property
    def segments(self) -> list[SegmentFile]:
        """The files, oldest first."""
        return self.rows.log.files

    def num_living(self, number: int) -> int:
        """How many records of a segment count."""
        return int(self.rows.log.live[number])

    @property
    def updates_before(self) -> int:
        """How many updates of the tables came before the run's first step, or how many fewer (below 0) than steps.

        A run that began with what another's optimizer had kept has more updates than steps; one with a loss scale has
        fewer, of which the first steps may have had all.
        """
        return int(self.state.counters().get("table_updates", self.state.step)) - self.state.step

    def records(self, numbers: list[int] | None = None) -> Iterator[Records]:
        """The records that count, of all or some segments, some at a time; every block is checked."""
        log = self.rows.log
        for number in [file.number for file in log.files] if numbers is None else numbers:
            for records, places in log.records_of(number):
                counts = np.flatnonzero(self.rows.where[records.rows] == outside(places))
                if len(counts):
                    yield some_of(records, counts)


def some_of(records: Records, which: NDArray[np.int64]) -> Records:
    """Those records, in that order."""
    values = Arena(records.arena.weights[which], records.arena.state[which])
    return Records(records.rows[which], records.steps[which], values)


@contextmanager
def open_store(path: Path, *, verify: bool = True) -> Iterator[OpenStore]:
    """The rows of a checkpoint, of weights, or of a run's newest checkpoint."""
    state = stored_state(path)
    read_manifest(state.directory, verify=verify)
    rows = open_stored(state.directory)
    try:
        yield OpenStore(state, rows)
    finally:
        rows.close()


def stored_state(path: Path) -> SavedState:
    """A saved state whose rows lie in files; any other is rejected."""
    state = open_state(path)
    if not has_stored_rows(state.directory):
        raise RunError(
            f"{state.directory} has no rows in files of a store: its tables lie in safetensors; "
            f"`recmill checkpoint show {state.directory}` tells of them"
        )
    return state
