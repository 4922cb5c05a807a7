"""A table optimizer is one record and one kernel: here is one that the package does not have."""

from pathlib import Path

import numpy as np
import pytest

from recmill.embeddings.local import LocalTables
from recmill.embeddings.table import TableSpec
from recmill.settings.clicks import TrainConfig
from recmill.settings.optimizers import TableOptimizer
from recmill.settings.table_rules import TABLE_RULES, TableRule
from recmill.training.job import run_job

SIGN = TableRule("sign", {}, {"count": "row"}, "tests.embeddings.sign_rule:sign")


def test_a_rule_from_outside_moves_rows_and_trains(
    tiny_config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLE_RULES, "sign", SIGN)
    tables = LocalTables([TableSpec("a", 5)], 4, TableOptimizer(kind="sign", lr=0.5), seed=0)
    before = np.array(tables.weights("a"))
    gradient = np.array([[[1.0, -2.0, 0.0, 3.0]]], np.float32)
    looked_up = tables.look_up(np.array([[2]]))
    looked_up.backward(looked_up.new_tensor(gradient))  # type: ignore[no-untyped-call]
    moved = np.array(tables.weights("a")) - before
    np.testing.assert_allclose(moved[2], [-0.5, 0.5, 0.0, -0.5], atol=1e-6)
    assert not moved[[0, 1, 3, 4]].any()
    config = tiny_config.with_({"tables": {"kind": "sign", "lr": 0.001}, "stop.max_steps": 4})
    results = run_job(config, tmp_path / "run")
    assert results["step"] == 4
