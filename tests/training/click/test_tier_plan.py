"""What tables in tiers are said to need, against what they take."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from recmill.embeddings.store.cache import bytes_per_slot
from recmill.errors import ConfigError, DataError
from recmill.recipes import resolve
from recmill.settings.clicks import TrainConfig
from recmill.training.click.assemble import build_tables
from recmill.training.click.plan import make_plan, refuse_large_run
from recmill.training.click.tier_plan import TierPlan, plan_tiers, suggest_budget
from recmill.training.footprint import GIB
from tests.laws.tiered_runs import TIERED, train


def recipe(name: str) -> TrainConfig:
    found = resolve.config(name)
    assert isinstance(found, TrainConfig)
    return found


def tiers_of(settings: TrainConfig) -> TierPlan:
    tiers = plan_tiers(settings)
    assert tiers is not None
    return tiers


def test_the_cache_has_as_many_slots_as_planned(tiny_config: TrainConfig) -> None:
    for budget in (8192, 50_000, 10**9):
        settings = tiny_config.with_({"store": {"kind": "cached_ssd", "cache_memory": budget}})
        tables = build_tables(settings)
        tiers = tiers_of(settings)
        assert tables.cache.num_slots == tiers.num_slots  # type: ignore[union-attr]
        assert tiers.cache_bytes <= max(budget, bytes_per_slot(tiers.layout) * 1300)
        tables.close()  # type: ignore[union-attr]


def test_files_stay_within_the_plan(tiny_world_dir: Path, tmp_path: Path, tiny_config: TrainConfig) -> None:
    run = train(tiny_world_dir, tmp_path / "run", *TIERED, "stop.max_steps=24", "cadence.save_every_steps=2")
    newest = sorted((run / "checkpoints").iterdir())[-1]
    found = sum(path.stat().st_size for path in newest.glob("*.rows"))
    settings = tiny_config.with_({"store": {"kind": "cached_ssd", "cache_memory": 81920}})
    assert tiers_of(settings).live_bytes(500) < found <= tiers_of(settings).disk_bytes()


def test_a_run_that_does_not_fit_is_told_the_budget_with_which_it_does() -> None:
    settings = recipe("mlperf-v1")
    with pytest.raises(
        ConfigError, match=r"keep rows in files with --set store.kind=cached_ssd --set store.cache_m"
    ) as told:
        refuse_large_run(settings, 24 * GIB)
    budget = str(told.value).split("store.cache_memory=")[1].split(",")[0]
    tiered = settings.with_({"store": {"kind": "cached_ssd", "cache_memory": budget}})
    refuse_large_run(tiered, 24 * GIB)
    assert make_plan(tiered).total_bytes <= 24 * GIB
    with pytest.raises(ConfigError, match=r"cached rows .*set store.cache_memory=\d+MiB or less"):
        refuse_large_run(settings.with_({"store": {"kind": "cached_ssd", "cache_memory": "60GiB"}}), 24 * GIB)
    with pytest.raises(ConfigError, match="to know where 204,184,588 rows are takes"):
        refuse_large_run(tiered, 4 * GIB)


def test_no_budget_is_suggested_where_none_helps() -> None:
    settings = recipe("mlperf-v1")
    assert suggest_budget(settings, 2 * GIB) == "", "to know where rows are takes more"
    assert suggest_budget(settings.with_({"average": {"from_step": 5}}), 20 * GIB) == "", "means go with memory only"


def test_tables_in_the_hosts_memory_need_all_of_it() -> None:
    settings = recipe("small").with_({"store": {"kind": "cached_host_mem", "cache_memory": "64MiB"}})
    plan = make_plan(settings)
    assert plan.held_bytes > plan.table_bytes
    assert tiers_of(settings).disk_bytes() == 0


def test_a_disk_without_room_is_named_before_the_first_step(
    tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    from recmill.api.train import train as train_run

    with pytest.raises(DataError, match=r"the store of rows \(store.dir = .*\) needs about .* GiB in"):
        train_run("demo", data=tiny_world_dir, run=tmp_path / "run", overrides=[*TIERED, "data.max_rows_per_table=50"])
