"""Law *moves*: after one step on a batch, exactly the rows that batch touched have moved, in every table."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.local import LocalTables
from recmill.embeddings.tiered import TieredTables


def assert_moves_what_it_touches(
    tables: LocalTables | TieredTables, ids: NDArray[np.int64], take_step: Callable[[], object]
) -> None:
    before = {spec.name: tables.weights(spec.name).copy() for spec in tables.specs}
    take_step()
    slot = 0
    for spec in tables.specs:
        moved = np.flatnonzero((tables.weights(spec.name) != before[spec.name]).any(axis=1))
        touched = np.unique(ids[:, slot : slot + spec.num_slots])
        assert moved.tolist() == touched[touched >= 0].tolist(), spec.name
        slot += spec.num_slots
