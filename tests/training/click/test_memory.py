"""What no memory holds is rejected before a run directory is made; the advised setting is accepted."""

import re
from pathlib import Path

import pytest

from recmill.errors import ConfigError
from recmill.memory import limit_bytes
from recmill.settings.clicks import TrainConfig
from recmill.training.click.plan import make_plan, refuse_large_run
from recmill.training.footprint import BASE_BYTES
from recmill.training.job import run_job


def test_tables_beyond_all_memory_leave_no_directory(tiny_config: TrainConfig, tmp_path: Path) -> None:
    large = tiny_config.with_({"data.table_rows": [10**13] * 26})
    with pytest.raises(ConfigError, match=r"needs [\d.]+ GiB, and there are [\d.]+ GiB .*; set data.max_rows_per"):
        run_job(large, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_advised_cap_is_accepted(tiny_config: TrainConfig) -> None:
    large = tiny_config.with_({"data.table_rows": [10**9] * 26})
    needed = make_plan(large).total_bytes
    refuse_large_run(large, needed)
    with pytest.raises(ConfigError) as error:
        refuse_large_run(large, needed // 2)
    found = re.search(r"max_rows_per_table=(\d+)", str(error.value))
    assert found
    assert int(found[1]) > 0.49 * 10**9
    refuse_large_run(large.with_({"data.max_rows_per_table": int(found[1])}), needed // 2)
    with pytest.raises(ConfigError, match=r"lower model.embedding_dim"):
        refuse_large_run(large, 1000)


@pytest.mark.parametrize("setting", ["data.global_batch", "data.eval_batch"])
def test_the_advised_batch_is_accepted(tiny_config: TrainConfig, setting: str) -> None:
    large = tiny_config.with_({setting: 10**9})
    memory = make_plan(large).total_bytes // 3
    with pytest.raises(ConfigError) as error:
        refuse_large_run(large, memory)
    found = re.search(rf"set {setting}=(\d+) or less", str(error.value))
    assert found
    assert int(found[1]) > 10**8
    refuse_large_run(large.with_({setting: int(found[1])}), memory)


def test_layers_are_counted_without_being_made(tiny_config: TrainConfig) -> None:
    large = tiny_config.with_({"model.bottom": [2**20, 2**20, tiny_config.model.embedding_dim]})
    with pytest.raises(ConfigError, match=r"make the layers of .model. smaller and lower data.global_batch"):
        refuse_large_run(large, 1 << 30)


def test_processes_share_a_batch_and_not_the_layers(tiny_config: TrainConfig) -> None:
    large = tiny_config.with_({"data.global_batch": 10**8})
    plan = make_plan(large)
    alone = BASE_BYTES + plan.dense_bytes + (plan.step_bytes + plan.evaluation_bytes) // 4
    refuse_large_run(large, alone, num_procs=4)
    with pytest.raises(ConfigError, match=r"set data.global_batch=\d+ or less"):
        refuse_large_run(large, alone // 2, num_procs=4)


def test_micro_batches_take_less_memory(tiny_config: TrainConfig) -> None:
    whole, parts = (make_plan(tiny_config.with_({"update.micro_batches": n})).step_bytes for n in (1, 4))
    assert parts < whole


def test_there_is_a_limit() -> None:
    assert limit_bytes() > 0
