"""Target statistics in a run: counted once over the rows to train on, before the first step."""

import numpy as np
import pytest
import torch

from recmill.data.batch import Columns, join_columns
from recmill.errors import ConfigError
from recmill.models.click.front import target_statistics_of
from recmill.training.click.assemble import assemble
from recmill.training.click.inputs import Inputs
from recmill.training.click.plan import make_plan
from recmill.training.click.sharded import refuse_sharded
from recmill.training.click.task import ClickTask
from recmill.world import ALONE
from tests.training.conftest import ResolveModel

SETTINGS = ("top=[8, 1]", "target_encoding_folds=3")


def copied(columns: Columns) -> Columns:
    return Columns(columns.dense.copy(), columns.ids.copy(), columns.labels.copy())


def all_rows(inputs: Inputs) -> Columns:
    with inputs.open_evaluation("train") as stream:
        return join_columns([copied(batch.columns) for batch in stream])


def test_the_rows_to_train_on_are_counted_once_before_the_first_step(resolve_model: ResolveModel) -> None:
    parts = assemble(resolve_model("dnn", *SETTINGS))
    rates = target_statistics_of(parts.model)
    assert rates is not None
    with Inputs(parts.config) as inputs:
        rows = all_rows(inputs)
        task = ClickTask(parts, inputs)
        with task.open_steps(None) as steps:
            taken = steps.take(0)
        with task.open_steps(None) as steps:  # who begins again does not count twice
            taken = steps.take(0)
        assert taken is not None
        before = rates.counts.clone()
        with task.open_steps(taken.spent.position) as steps:  # nor does who goes on count at all
            steps.take(1)
        assert torch.equal(before, rates.counts)
    assert rates.totals.tolist() == [rows.num_rows, int(rows.labels.sum())]
    first = parts.config.data.num_table_rows[0]
    expected = np.bincount(rows.ids[:, 0], minlength=first)
    assert rates.counts[:first, :, 0].sum(dim=1).tolist() == expected.tolist()
    clicks = np.bincount(rows.ids[:, 0], rows.labels, minlength=first)
    assert rates.counts[:first, :, 1].sum(dim=1).tolist() == clicks.tolist()


def test_a_plan_counts_what_rates_keep(resolve_model: ResolveModel) -> None:
    without, having = (make_plan(resolve_model("dnn", "top=[8, 1]", f"target_encoding_folds={k}")) for k in (0, 3))
    added = [b.total_bytes - a.total_bytes for a, b in zip(without.tables, having.tables, strict=True)]
    assert added == [8 * 3 * table.num_rows for table in without.tables]
    assert having.dense_parameters == without.dense_parameters + 2 * 26 * 8


def test_torchrec_s_tables_refuse_rates(resolve_model: ResolveModel) -> None:
    pytest.importorskip("torchrec")
    with pytest.raises(ConfigError, match=r"model.target_encoding_folds = 3 needs the local engine"):
        refuse_sharded(resolve_model("dnn", *SETTINGS), ALONE)
