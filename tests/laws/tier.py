"""Law *tier*: tables in a cache over a store have the bytes of tables in memory, whatever the cache holds and when."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from recmill.embeddings.engine import RowEngine
from recmill.embeddings.local import LocalTables
from recmill.embeddings.store.cache import Settling
from recmill.embeddings.store.kind import StoreKind
from recmill.embeddings.tiered import TieredTables
from recmill.settings.run import StoreName, TableStore

Ids = NDArray[np.int64]


def build_tiered(kind: StoreKind, store: StoreName, num_slots: int, directory: Path) -> TieredTables:
    """Tables whose cache has so many slots."""
    settings = TableStore(kind=store, cache_memory=max(1 << 12, num_slots * kind.layout.record_bytes))
    tables = TieredTables(kind.specs, kind.dim, kind.optimizer, settings, seed=kind.seed)
    tables.write_into(directory)
    return tables


def draw_ids(kind: StoreKind, num_rows: int, rng: np.random.Generator) -> Ids:
    """Rows of a batch: a few are much used; where a column has several slots, some hold nothing."""
    columns = []
    for spec in kind.specs:
        ids = np.minimum(rng.zipf(1.2, (num_rows, spec.num_slots)) - 1, 10**9) % spec.num_rows
        if spec.num_slots > 1:
            ids[rng.random(ids.shape) < 0.3] = -1
        columns.append(ids)
    return np.concatenate(columns, axis=1).astype(np.int64)


@dataclass
class Ahead:
    """Batches that are announced and settled some steps before their turn, as training does it."""

    tables: TieredTables
    batches: Sequence[Ids]
    num_announced: int
    num_settled: int
    _waiting: list[Settling] = field(default_factory=list)
    _settled: int = 0

    def begin(self, turn: int) -> Ids:
        """The ids of the batch whose turn it is."""
        cache = self.tables.cache
        for ids in self.batches[len(self._waiting) : turn + self.num_announced + 1]:
            self._waiting.append(Settling(cache.announce(ids), ids))
        if turn:
            cache.finished(self._waiting[turn - 1].number)
        while self._settled < min(turn + self.num_settled + 1, len(self._waiting)):
            if not cache.settle(self._waiting[self._settled]):
                assert self._settled > turn, "there is room for the batch whose turn it is"
                break
            self._settled += 1
        self.tables.begin(self._waiting[turn])
        return self.batches[turn]


def take_step(tables: RowEngine, ids: Ids, gradient_of: int) -> torch.Tensor:
    """Move the rows by drawn gradients; the vectors before that."""
    vectors_BFD: torch.Tensor = tables.look_up(ids)  # type: ignore[attr-defined]
    rng = np.random.default_rng(gradient_of)
    vectors_BFD.backward(torch.from_numpy(rng.standard_normal(vectors_BFD.shape, np.float32)))  # type: ignore[no-untyped-call]
    return vectors_BFD.detach()


def assert_same_bytes(tables: LocalTables, tiered: TieredTables) -> None:
    """Of weights and of what the optimizer keeps."""
    for name in (spec.name for spec in tables.specs):
        assert tiered.weights(name).tobytes() == tables.weights(name).tobytes(), name
        assert tiered.state(name).tobytes() == tables.state(name).tobytes(), name


def assert_tiers_are_as_memory(kind: StoreKind, store: StoreName, directory: Path, seed: int) -> TieredTables:
    """Train both on the same batches, with a cache, a look-ahead and interruptions that the seed decides."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    batches = [draw_ids(kind, 24, rng) for _ in range(60)]
    most = max(len(np.unique(ids)) for ids in batches) * len(kind.specs)
    tables = LocalTables(kind.specs, kind.dim, kind.optimizer, seed=kind.seed)
    tiered = build_tiered(kind, store, draw.choice([most, 2 * most, 20 * most]), directory)
    ahead = Ahead(tiered, batches, draw.choice([0, 1, 9]), draw.choice([0, 1, 3]))
    for turn, ids in enumerate(batches):
        assert torch.equal(take_step(tables, ids, turn), take_step(tiered, ahead.begin(turn), turn)), f"step {turn}"
        if draw.random() < 0.15:
            others = draw_ids(kind, 30, rng)
            assert torch.equal(tables.look_up(others), tiered.look_up(others)), "rows that are only scored"
        if draw.random() < 0.1:
            tiered.finished_files()
    assert_same_bytes(tables, tiered)
    return tiered
