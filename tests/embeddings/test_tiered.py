from pathlib import Path

import pytest

from recmill.embeddings.store import log, segment
from recmill.embeddings.store.kind import StoreKind, kind_from_json
from recmill.embeddings.table import TableSpec
from recmill.settings.optimizers import TableOptimizer
from recmill.settings.run import StoreName
from recmill.settings.table_rules import TABLE_RULES
from tests.laws.tier import assert_tiers_are_as_memory, build_tiered

SINGLE = (TableSpec("a", 300), TableSpec("b", 1500), TableSpec("c", 5))
SEVERAL = (TableSpec("a", 300, 3), TableSpec("b", 1500, 2, "mean"), TableSpec("c", 5))


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows leave memory for the disk at once, and segments are emptied often."""
    monkeypatch.setattr(segment, "_CHUNK_BLOCKS", 1)
    monkeypatch.setattr(log, "_LEAST_SEGMENT_BYTES", 4096)
    monkeypatch.setattr(log, "_MOST_SEGMENTS", 64)


@pytest.mark.parametrize("rule", TABLE_RULES)
@pytest.mark.parametrize("store", ["cached_ssd", "cached_host_mem"])
def test_tiers_are_as_memory_with_every_optimizer(rule: str, store: StoreName, tmp_path: Path) -> None:
    kind = StoreKind(SINGLE, 4, TableOptimizer(kind=rule, lr=0.05), seed=3)
    for seed in range(3):
        tiered = assert_tiers_are_as_memory(kind, store, tmp_path / str(seed), seed)
        assert tiered.cache.uses.read.sum() > 0, "rows came back that had left"
        tiered.close()


@pytest.mark.parametrize("specs", [SINGLE, SEVERAL])
@pytest.mark.parametrize("dim", [1, 7, 16])
def test_tiers_are_as_memory_whatever_the_cache_and_the_batches(
    specs: tuple[TableSpec, ...], dim: int, tmp_path: Path
) -> None:
    moved = 0
    for seed in range(6):
        optimizer = TableOptimizer(kind="adagrad", lr=0.05, initial_accumulator=0.1)
        kind = StoreKind(specs, dim, optimizer, seed)
        tiered = assert_tiers_are_as_memory(kind, "cached_ssd", tmp_path / str(seed), seed)
        moved += tiered.cache.backing.traffic.records_moved
        tiered.close()
    assert moved > 0 or dim == 1, "segments were emptied"


def test_rows_that_were_never_trained_take_no_room(tmp_path: Path) -> None:
    kind = StoreKind(SINGLE, 4, TableOptimizer(), seed=1)
    tiered = build_tiered(kind, "cached_ssd", 100, tmp_path)
    assert tiered.finished_files() == []
    for _ in tiered.portions():
        pass  # nobody has filled them with anything else
    assert tiered.finished_files() == []
    tiered.close()


def test_a_kind_is_read_back() -> None:
    optimizer = TableOptimizer(kind="adam", lr=0.3, beta1=0.8, eps=1e-7)
    found = kind_from_json(StoreKind(SINGLE, 4, optimizer, seed=1).to_json())
    assert (found.specs, found.dim, found.seed, found.optimizer.numbers) == (SINGLE, 4, 1, optimizer.numbers)
    assert found.store_key == StoreKind(SINGLE, 4, optimizer, seed=1).store_key
