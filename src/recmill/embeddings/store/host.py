"""All rows in an array of the host's memory, behind the cache: what tables on a device would have below them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.store.layout import Arena, RecordLayout, empty_arena
from recmill.embeddings.store.log import Records, Traffic, no_wait
from recmill.jit import njit


class HostRows:
    """A row's place is the row."""

    place_shift = 63  # all places are of one segment, if anybody asks

    def __init__(self, layout: RecordLayout, num_rows: int) -> None:
        self._layout = layout
        self.all_rows = empty_arena(num_rows, layout)
        self.traffic = Traffic()
        self.live = np.zeros(1, np.int64)

    @property
    def can_write(self) -> bool:
        """Always."""
        return True

    def append(
        self, rows: NDArray[np.int64], steps: NDArray[np.int64], arena: Arena, slots: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Keep rows that lie in these slots; their places."""
        del steps  # are of use to files
        _copy_rows(arena, slots, self.all_rows, rows)
        self.traffic.bytes_written += len(rows) * self._layout.record_bytes
        return rows

    def start_fetch(self, places: NDArray[np.int64], arena: Arena, slots: NDArray[np.int64]) -> Callable[[], None]:
        """Copy rows into these slots."""
        _copy_rows(self.all_rows, places, arena, slots)
        self.traffic.records_read += len(places)
        self.traffic.bytes_read += len(places) * self._layout.record_bytes
        return no_wait

    def next_to_move(self, *, all_of_them: bool = False) -> tuple[Records, NDArray[np.int64]] | None:
        """Nothing ever has to be."""
        del all_of_them
        return None

    def forget(self) -> None:
        """Nothing that is here counts any more."""

    def close(self) -> None:
        """There is nothing to let go of."""


@njit(nogil=True, cache=True)
def _copy_rows(source: Arena, places: NDArray[np.int64], target: Arena, slots: NDArray[np.int64]) -> None:
    for i in range(len(places)):
        place, slot = places[i], slots[i]
        for d in range(source.weights.shape[1]):
            target.weights[slot, d] = source.weights[place, d]
        for s in range(source.state.shape[1]):
            target.state[slot, s] = source.state[place, s]
