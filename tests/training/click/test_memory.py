"""Tables that no memory holds are rejected before a run directory is made; the advised setting is accepted."""

import re
from pathlib import Path

import pytest

from recmill.errors import ConfigError
from recmill.memory import limit_bytes
from recmill.settings.clicks import TrainConfig
from recmill.training.click.plan import plan_tables, refuse_large_tables
from recmill.training.job import run_job


def test_tables_beyond_all_memory_leave_no_directory(tiny_config: TrainConfig, tmp_path: Path) -> None:
    large = tiny_config.with_({"data.table_rows": [10**13] * 26})
    with pytest.raises(ConfigError, match=r"need [\d.]+ GiB, and this machine has [\d.]+ GiB; set data.max_rows_per"):
        run_job(large, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_advised_cap_is_accepted(tiny_config: TrainConfig) -> None:
    large = tiny_config.with_({"data.table_rows": [10**9] * 26})
    needed = sum(table.total_bytes for table in plan_tables(large))
    refuse_large_tables(large, needed)
    with pytest.raises(ConfigError) as error:
        refuse_large_tables(large, needed // 2)
    found = re.search(r"max_rows_per_table=(\d+)", str(error.value))
    assert found
    assert int(found[1]) > 0.49 * 10**9
    refuse_large_tables(large.with_({"data.max_rows_per_table": int(found[1])}), needed // 2)
    with pytest.raises(ConfigError, match=r"lower model.embedding_dim"):
        refuse_large_tables(large, 1000)


def test_there_is_a_limit() -> None:
    assert limit_bytes() > 0
