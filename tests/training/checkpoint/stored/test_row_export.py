"""Exported rows are those of the tables, with their steps and, where they are known, their values."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recmill.cli.main import main
from recmill.embeddings.store.kind import StoreKind
from recmill.errors import RunError
from recmill.settings.optimizers import TableOptimizer
from recmill.training.checkpoint.extract import extract
from recmill.training.checkpoint.saved_state import WHATS, open_state
from recmill.training.checkpoint.stored.row_export import export_delta, export_rows
from recmill.training.checkpoint.stored.value_lookup import find_values
from tests.laws.tiered_runs import TIERED, TINY, checkpoint_of


def test_rows_are_those_of_the_tables(tiered_run: Path, tmp_path: Path) -> None:
    done = export_rows(tiered_run, tmp_path / "rows.parquet")
    table = pq.read_table(tmp_path / "rows.parquet")
    assert (table.num_rows, done.to_step, done.from_step) == (done.num_rows, 6, None)
    assert table.schema.names == ["table", "row", "value", "step", "weights", "state"]
    state = open_state(tiered_run)
    for what in WHATS:
        with state.tables(what) as saved:
            for name in ("cat_0", "cat_9", "cat_25"):
                (whole,) = saved.read_rows(name)
                own = table.filter([name == each for each in table["table"].to_pylist()])
                found = np.array(own[what].to_pylist(), np.float32)
                assert found.tobytes() == whole.numpy()[own["row"].to_numpy()].tobytes()
    steps = table["step"].to_numpy()
    assert steps.min() >= 1
    assert set(np.unique(steps)) >= {4, 5, 6}
    assert "modulo" in done.note
    assert table["value"].null_count == table.num_rows


def test_one_table_is_written_alone(tiered_run: Path, tmp_path: Path) -> None:
    export_rows(tiered_run, tmp_path / "rows.parquet", "cat_3")
    assert set(pq.read_table(tmp_path / "rows.parquet")["table"].to_pylist()) == {"cat_3"}
    with pytest.raises(RunError, match="has no table 'cat_33'; did you mean cat_3"):
        export_rows(tiered_run, tmp_path / "other.parquet", "cat_33")
    with pytest.raises(RunError, match="is there already"):
        export_rows(tiered_run, tmp_path / "rows.parquet")
    with pytest.raises(RunError, match=r"is to be a \.parquet file"):
        export_rows(tiered_run, tmp_path / "rows.csv")


def test_a_delta_has_the_rows_whose_last_change_came_later(tiered_run: Path, tmp_path: Path) -> None:
    export_rows(tiered_run, tmp_path / "rows.parquet")
    steps = pq.read_table(tmp_path / "rows.parquet")["step"].to_numpy()
    for since in (0, 2, 3, 5):
        done = export_delta(tiered_run, since, tmp_path / f"{since}.parquet")
        assert done.num_rows == (steps > since).sum() > 0
    facts = json.loads(pq.read_schema(tmp_path / "3.parquet").metadata[b"recmill.rows"])
    assert (facts["what"], facts["from_step"], facts["to_step"]) == ("delta", 3, 6)
    assert len(facts["store_key"]) == 16
    assert export_delta(tiered_run, 6, tmp_path / "last.parquet").num_rows == 0, "a flush changes no row's step"


def test_a_delta_of_what_has_no_steps_is_rejected(tiered_run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="model is weights alone"):
        export_delta(tiered_run / "model", 0, tmp_path / "rows.parquet")
    with pytest.raises(RunError, match=r"--since 7: .* give a step from 0 to 6"):
        export_delta(tiered_run, 7, tmp_path / "rows.parquet")


def test_rows_that_were_changed_early_keep_their_step_through_checkpoints(tiered_run: Path, tmp_path: Path) -> None:
    """A row that no batch after the third step has used is in the last checkpoint with the same step."""
    tables = []
    for step in (3, 6):
        export_rows(checkpoint_of(tiered_run, step), tmp_path / f"{step}.parquet")
        content = pq.read_table(tmp_path / f"{step}.parquet").to_pydict()
        keys = zip(content["table"], content["row"], strict=True)
        tables.append(dict(zip(keys, content["step"], strict=True)))
    older, newer = tables
    assert older.keys() <= newer.keys()
    unchanged = {key for key, step in newer.items() if step <= 3}
    assert len(unchanged) > 5
    assert all(older[key] == newer[key] for key in unchanged)


def test_values_are_as_extract_knows_them(tiny_world_dir: Path, tmp_path: Path) -> None:
    data, run = tmp_path / "rows", tmp_path / "run"
    assert main(["prepare", "--data", str(tiny_world_dir), "--out", str(data)]) == 0
    settings = [each for each in TINY if not each.startswith("data.table_rows")]
    words = [word for each in (*settings, *TIERED, "stop.max_steps=3") for word in ("--set", each)]
    assert main(["train", "demo", "--data", str(data), "--run", str(run), *words]) == 0
    state = open_state(run)
    export_rows(run, tmp_path / "rows.parquet", "cat_2")
    extract(state, "cat_2", tmp_path / "cat_2.npy")
    told = pq.read_table(tmp_path / "cat_2.ids.parquet").to_pydict()
    by_row = {row: value for row, value in zip(told["id"], told["value"], strict=True) if value is not None}
    found = pq.read_table(tmp_path / "rows.parquet").to_pydict()
    assert len(found["row"]) > 3
    assert all(value == by_row.get(row) for row, value in zip(found["row"], found["value"], strict=True))
    assert any(value is not None for value in found["value"])


def test_why_values_are_not_known_is_told(tiered_run: Path) -> None:
    kind = StoreKind((), 4, TableOptimizer(), 0)
    assert "modulo" in find_values(open_state(tiered_run), kind).note
