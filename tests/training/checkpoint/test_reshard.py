from pathlib import Path

import numpy as np
import pytest

from recmill.errors import RunError
from recmill.training.checkpoint import saved_tables
from recmill.training.checkpoint.checkpoint import read_checkpoint, read_model
from recmill.training.checkpoint.reshard import export, reshard
from recmill.training.checkpoint.saved_state import open_state, verify
from recmill.training.checkpoint.state_diff import compare
from recmill.training.click.assemble import assemble
from recmill.training.click.evaluate import evaluate
from recmill.training.click.inputs import Inputs
from tests.training.checkpoint.saved import save, save_of_two, table_bytes
from tests.training.checkpoint.states import bytes_of, train_steps
from tests.training.conftest import Resolve


@pytest.fixture(autouse=True, params=[16 << 20, 64], ids=["large portions", "small portions"])
def _portions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may be larger than what is read at a time."""
    monkeypatch.setattr(saved_tables, "_COPY_BYTES", request.param)


@pytest.mark.parametrize("kind", ["rowwise_adagrad", "adam", "sgd"])
def test_pieces_come_and_go_and_the_bytes_stay(kind: str, resolve: Resolve, tmp_path: Path) -> None:
    config = resolve(f"tables.kind={kind}")
    parts = save(config, tmp_path / "1")
    before = table_bytes(open_state(tmp_path / "1"))
    assert len(before) == (26 if kind == "sgd" else 52)
    for source, pieces in (("1", 2), ("2", 3), ("3", 26), ("26", 1)):
        target = tmp_path / (str(pieces) if pieces > 1 else "back")
        reshard(open_state(tmp_path / source), target, pieces)
        assert verify(target) == {target: []}
        state = open_state(target)
        assert (state.num_pieces, state.step, state.kind) == (pieces, 2, "checkpoint")
        assert table_bytes(state) == before
        assert compare(open_state(tmp_path / "1"), state).is_empty
        restored = assemble(config)
        assert read_checkpoint(target, restored).step == 2
        assert bytes_of(restored) == bytes_of(parts)
    for path in (tmp_path / "1").iterdir():
        if path.name != "manifest.json":  # which lists the same files in another order
            assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes(), path.name


def test_rows_and_columns_of_two_processes_become_the_files_of_one(resolve: Resolve, tmp_path: Path) -> None:
    config = resolve("tables.kind=adagrad")
    parts = assemble(config)
    progress = train_steps(parts, 2)
    save_of_two(parts, progress, tmp_path / "two")
    two = open_state(tmp_path / "two")
    with two.tables("weights") as saved:
        assert [len(saved.pieces_of(name)) for name in ("cat_0", "cat_1", "cat_2")] == [1, 2, 2]
    assert verify(tmp_path / "two") == {tmp_path / "two": []}
    save(config, tmp_path / "one")
    reshard(two, tmp_path / "joined", 1)
    assert table_bytes(open_state(tmp_path / "joined")) == table_bytes(open_state(tmp_path / "one"))
    for other in ("two", "joined"):
        diff = compare(open_state(tmp_path / "one"), open_state(tmp_path / other))
        assert diff.is_empty, diff
    restored = assemble(config)
    read_checkpoint(tmp_path / "two", restored)
    assert bytes_of(restored) == bytes_of(parts)


def test_a_difference_is_told_by_tensor_and_size(resolve: Resolve, tmp_path: Path) -> None:
    config = resolve()
    parts = assemble(config)
    progress = train_steps(parts, 2)
    save_of_two(parts, progress, tmp_path / "two")
    parts.tables.weights("cat_2")[7, 3] += 0.5
    parts.tables.weights("cat_2")[9, 0] = np.nan
    parts.tables.num_updates += 1
    name = next(name for name, _ in parts.model.named_parameters())
    parts.model.get_parameter(name).data.flatten()[0] *= 2
    save_of_two(parts, progress, tmp_path / "other")
    diff = compare(open_state(tmp_path / "two"), open_state(tmp_path / "other"))
    layer, table = diff.tensors
    assert (layer.name, layer.num_differing, layer.max_relative) == (f"layers: {name}", 1, 0.5)
    assert (table.name, table.num_differing, table.num_values) == ("table: cat_2", 2, 200)
    assert table.max_absolute == np.inf
    assert diff.values == {"counters.table_updates": (2, 3)}
    assert not diff.only_in_a
    assert not diff.only_in_b
    assert compare(open_state(tmp_path / "two"), open_state(tmp_path / "other"), "state").is_empty
    assert diff.as_dict()["equal"] is False


def test_states_of_other_settings_are_compared_as_far_as_they_go(resolve: Resolve, tmp_path: Path) -> None:
    save(resolve(), tmp_path / "small", 0)
    save(resolve("data.table_rows=" + str([60] + [50] * 25), "model.top=[4,1]"), tmp_path / "large", 0)
    diff = compare(open_state(tmp_path / "small"), open_state(tmp_path / "large"), "weights")
    grown = next(each for each in diff.tensors if each.name == "table: cat_0")
    assert grown.shapes == ((50, 4), (60, 4))
    assert grown.num_values == 200
    assert any(each.name.startswith("layers: top") and each.shapes[0] != each.shapes[1] for each in diff.tensors)
    export(open_state(tmp_path / "small"), tmp_path / "model")
    halves = compare(open_state(tmp_path / "small"), open_state(tmp_path / "model"))
    assert not halves.tensors
    assert all(name.startswith("optimizer of ") for name in halves.only_in_a)
    assert len([name for name in halves.only_in_a if name.startswith("optimizer of table")]) == 26
    assert "settings.seed" in halves.values


def test_exported_weights_score_as_the_checkpoint(resolve: Resolve, tmp_path: Path) -> None:
    config = resolve()
    parts = assemble(config)
    save_of_two(parts, train_steps(parts, 5), tmp_path / "two")
    export(open_state(tmp_path / "two"), tmp_path / "model")
    assert verify(tmp_path / "model") == {tmp_path / "model": []}
    assert open_state(tmp_path / "model").kind == "model"
    exported = assemble(config)
    read_model(tmp_path / "model", exported)
    with Inputs(config) as inputs:
        assert evaluate(exported, inputs, "test") == evaluate(parts, inputs, "test")


def test_what_cannot_be_resharded_is_refused(resolve: Resolve, tmp_path: Path) -> None:
    save(resolve(), tmp_path / "saved", 0)
    state = open_state(tmp_path / "saved")
    for pieces in (0, 27):
        with pytest.raises(RunError, match=rf"--pieces {pieces} does not go with 26 tables.* choose from 1 to 26"):
            reshard(state, tmp_path / "out", pieces)
    with pytest.raises(RunError, match=r"saved is there already; choose another --out"):
        reshard(state, tmp_path / "saved", 2)
    with pytest.raises(RunError, match=r"saved is there already"):
        export(state, tmp_path / "saved")
    file = tmp_path / "saved" / "tables.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(RunError, match=r"tables\.safetensors is not the file"):
        reshard(state, tmp_path / "out", 2)
    assert not (tmp_path / "out").exists()
