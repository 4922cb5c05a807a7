"""Rows that were written as Parquet come back bit for bit, and those that do not fit are rejected by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recmill.errors import DataError, RunError
from recmill.training.checkpoint.saved_state import open_state
from recmill.training.checkpoint.state_diff import compare
from recmill.training.checkpoint.stored.damage import verify_store
from recmill.training.checkpoint.stored.row_export import export_delta, export_rows
from recmill.training.checkpoint.stored.row_import import import_rows
from tests.laws.tiered_runs import TIERED, checkpoint_of, resume, train


def assert_same_tables(a: Path, b: Path) -> None:
    diff = compare(open_state(a), open_state(b))
    assert not [each.name for each in diff.tensors if "table" in each.name]


def sorted_rows(path: Path) -> list[dict[str, Any]]:
    return sorted(pq.read_table(path).to_pylist(), key=lambda each: (each["table"], each["row"]))


def test_an_exported_file_gives_the_same_state(tiered_run: Path, tmp_path: Path) -> None:
    export_rows(tiered_run, tmp_path / "rows.parquet")
    done = import_rows(tiered_run, tmp_path / "rows.parquet", tmp_path / "state")
    assert (done.num_rows, done.step, done.to_step) == (pq.read_metadata(tmp_path / "rows.parquet").num_rows, 6, 6)
    assert compare(open_state(tiered_run), open_state(tmp_path / "state")).is_empty
    assert verify_store(tmp_path / "state")["intact"]
    export_rows(tmp_path / "state", tmp_path / "again.parquet")
    first, again = (sorted_rows(tmp_path / f"{name}.parquet") for name in ("rows", "again"))
    assert first == again, "steps and values too"


def test_a_delta_brings_the_older_state_to_the_newer_ones_rows(tiered_run: Path, tmp_path: Path) -> None:
    older, newer = checkpoint_of(tiered_run, 3), checkpoint_of(tiered_run, 6)
    assert [each for each in compare(open_state(older), open_state(newer)).tensors if "table" in each.name]
    export_delta(newer, 3, tmp_path / "delta.parquet")
    done = import_rows(older, tmp_path / "delta.parquet", tmp_path / "state")
    assert (done.step, done.from_step, done.to_step) == (3, 3, 6)
    assert_same_tables(newer, tmp_path / "state")
    layers = compare(open_state(older), open_state(tmp_path / "state"))
    assert all("table" in each.name for each in layers.tensors), "all else is the older one's"
    assert not layers.values


def test_a_delta_holds_for_a_run_that_came_from_memory(tiny_world_dir: Path, tmp_path: Path) -> None:
    run = train(tiny_world_dir, tmp_path / "run", "stop.max_steps=3")
    resume(run, *TIERED, "stop.max_steps=9", "cadence.keep_checkpoints=5")
    older, newer = checkpoint_of(run, 6), checkpoint_of(run, 9)
    delta = export_delta(newer, 6, tmp_path / "delta.parquet")
    everything = export_delta(newer, 0, tmp_path / "all.parquet")
    assert 0 < delta.num_rows < everything.num_rows
    import_rows(older, tmp_path / "delta.parquet", tmp_path / "state")
    assert_same_tables(newer, tmp_path / "state")


def test_steps_are_the_runs_own_after_a_warm_start_with_state(
    tiered_run: Path, tiny_world_dir: Path, tmp_path: Path
) -> None:
    warm = ("warm_start.from_dir=" + str(tiered_run), "warm_start.state=true")
    run = train(tiny_world_dir, tmp_path / "run", *TIERED, *warm)
    assert export_delta(run, 6, tmp_path / "none.parquet").num_rows == 0
    export_delta(run, 3, tmp_path / "delta.parquet")
    assert set(pq.read_table(tmp_path / "delta.parquet")["step"].to_pylist()) == {4, 5, 6}
    import_rows(checkpoint_of(run, 3), tmp_path / "delta.parquet", tmp_path / "state")
    assert_same_tables(run, tmp_path / "state")


def test_deltas_of_other_states_are_rejected(tiered_run: Path, tiny_world_dir: Path, tmp_path: Path) -> None:
    newer, older = checkpoint_of(tiered_run, 6), checkpoint_of(tiered_run, 3)
    export_delta(newer, 5, tmp_path / "five.parquet")
    with pytest.raises(
        DataError, match=r"five.parquet has the rows that changed after step 5 and up to step 6.* step 3"
    ):
        import_rows(older, tmp_path / "five.parquet", tmp_path / "state")
    export_delta(older, 1, tmp_path / "one.parquet")
    with pytest.raises(DataError, match=r"up to step 3, and .* is the state after step 6"):
        import_rows(newer, tmp_path / "one.parquet", tmp_path / "state")
    other = train(tiny_world_dir, tmp_path / "other", *TIERED, "seed=1")
    export_delta(other, 3, tmp_path / "other.parquet")
    with pytest.raises(DataError, match=r"other\.parquet is a delta of other tables, or of another seed"):
        import_rows(older, tmp_path / "other.parquet", tmp_path / "state")
    slower = train(tiny_world_dir, tmp_path / "slower", *TIERED, "dense.lr=0.001")
    export_delta(slower, 3, tmp_path / "slower.parquet")
    with pytest.raises(DataError, match=r"slower\.parquet is a delta of run [0-9a-f]{32}, and .* is of run"):
        import_rows(older, tmp_path / "slower.parquet", tmp_path / "state")
    assert not (tmp_path / "state").exists()


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, Change] = {
    "has no table 'cat_99'; did you mean cat_9": lambda c: c["table"].__setitem__(0, "cat_99"),
    r"row 50 of table cat_\d+ does not exist: the table has 50 rows": lambda c: c["row"].__setitem__(0, 50),
    r"row -1 of table cat_\d+ does not exist": lambda c: c["row"].__setitem__(2, -1),
    "has weights that are no finite numbers": lambda c: c["weights"][1].__setitem__(2, float("nan")),
    "has state that are no finite numbers": lambda c: c["state"][1].__setitem__(0, float("inf")),
    "column 'weights' has 3 numbers a row, and the tables have a dimension of 4": lambda c: c["weights"][1].pop(),
    "column 'state' has 0 numbers a row, and the tables have an optimizer": lambda c: c["state"][1].pop(),
    "column 'row' has rows without a value": lambda c: c["row"].__setitem__(0, None),
    r"row \d+ of table cat_\d+ is there more than once": lambda c: [
        column.__setitem__(1, column[0]) for column in (c["table"], c["row"])
    ],
    "has no column 'weights'": lambda c: c.pop("weights"),
}


@pytest.mark.parametrize("told", CHANGES)
def test_rows_that_do_not_fit_are_rejected_by_name(told: str, tiered_run: Path, tmp_path: Path) -> None:
    export_rows(tiered_run, tmp_path / "rows.parquet")
    table = pq.read_table(tmp_path / "rows.parquet")
    content = table.to_pydict()
    CHANGES[told](content)
    schema = pa.schema([field for field in table.schema if field.name in content])
    path = tmp_path / "changed.parquet"
    pq.write_table(pa.table(content, schema=schema), path)
    with pytest.raises((DataError, RunError), match=told) as caught:
        import_rows(tiered_run, path, tmp_path / "state")
    assert "changed.parquet" in str(caught.value) or "cat_99" in str(caught.value)
    assert not (tmp_path / "state").exists()


def test_rows_of_another_dimension_or_optimizer_are_rejected(
    tiered_run: Path, tiny_world_dir: Path, tmp_path: Path
) -> None:
    for name, setting in (("dimension", "model.embedding_dim=8"), ("optimizer", "tables.kind=adagrad")):
        layers = ("model.bottom=[8, 8]",) if name == "dimension" else ()
        other = train(tiny_world_dir, tmp_path / name, *TIERED, setting, *layers)
        export_rows(other, tmp_path / f"{name}.parquet")
        with pytest.raises(DataError, match=rf"{name}.parquet holds rows of {name} (8|adagrad), and those of"):
            import_rows(tiered_run, tmp_path / f"{name}.parquet", tmp_path / "state")


def test_a_file_that_others_wrote_is_taken(tiered_run: Path, tmp_path: Path) -> None:
    weights = np.arange(8, dtype=np.float32).reshape(2, 4)
    pq.write_table(
        pa.table(
            {
                "table": ["cat_3", "cat_0"],
                "row": pa.array([7, 0], pa.int32()),
                "weights": pa.FixedSizeListArray.from_arrays(weights.reshape(-1), 4),
                "state": pa.array([[1.0], [2.0]], pa.large_list(pa.float32())),
            }
        ),
        tmp_path / "own.parquet",
    )
    import_rows(tiered_run, tmp_path / "own.parquet", tmp_path / "state")
    with open_state(tmp_path / "state").tables("weights") as saved:
        (rows,) = saved.read_rows("cat_3")
    assert rows[7].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("harm", ["cut", "text", "directory", "missing"])
def test_what_is_no_parquet_file_is_rejected_by_name(harm: str, tiered_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    export_rows(tiered_run, path)
    content = path.read_bytes()
    path.unlink()
    if harm == "directory":
        path.mkdir()
    elif harm != "missing":
        path.write_bytes(content[: len(content) // 2] if harm == "cut" else b"table,row\n")
    with pytest.raises((DataError, RunError), match=r"rows\.parquet"):
        import_rows(tiered_run, path, tmp_path / "state")
