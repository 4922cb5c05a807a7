from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from recmill.errors import ConfigError, RunError
from recmill.settings.clicks import TrainConfig
from recmill.training.checkpoint.checkpoint import write_model
from recmill.training.checkpoint.saved_state import open_state
from recmill.training.checkpoint.state_diff import compare
from recmill.training.checkpoint.take_over import take_over
from recmill.training.checkpoint.warm_start import match_tables
from recmill.training.click.assemble import assemble
from recmill.training.click.step import ClickState
from recmill.training.job import run_job
from recmill.training.progress import Progress
from recmill.world import Group
from tests.training.checkpoint.saved import OneOfTwo, dealt, save, save_of_two
from tests.training.conftest import Resolve

SHRUNK = "data.table_rows=" + str([50, 40] + [50] * 24)
GROWN = "data.table_rows=" + str([60, 50, 70] + [50] * 23)
Warm = Callable[..., tuple[ClickState, list[str]]]


@pytest.fixture
def warm(resolve: Resolve, tmp_path: Path) -> Warm:
    """The parts of a new run that begins with what lies in a directory, and what it told."""

    def warmed(name: str, *assignments: str) -> tuple[ClickState, list[str]]:
        told = list[str]()
        parts = assemble(resolve(f"warm_start.from_dir={tmp_path / name}", *assignments))
        take_over(parts, parts.config.warm_start, Group(), told.append)
        return parts, told

    return warmed


@pytest.mark.parametrize("source", ["one", "two", "model"])
def test_saved_rows_stay_and_grown_rows_are_new(source: str, resolve: Resolve, warm: Warm, tmp_path: Path) -> None:
    saved = save(resolve("seed=1"), tmp_path / "one")
    save_of_two(saved, Progress(step=2), tmp_path / "two")
    write_model(tmp_path / "model", saved, Progress(step=2))
    parts, told = warm(source, GROWN)
    fresh = assemble(resolve(GROWN))
    for spec in parts.tables.specs:
        weights = parts.tables.weights(spec.name)
        np.testing.assert_array_equal(weights[:50], saved.tables.weights(spec.name))
        np.testing.assert_array_equal(weights[50:], fresh.tables.weights(spec.name)[50:])
        np.testing.assert_array_equal(parts.tables.state(spec.name), fresh.tables.state(spec.name))
    for ours, first in zip(parts.model.parameters(), fresh.model.parameters(), strict=True):
        assert torch.equal(ours, first)
    assert told[0] == f"warm start: 1,300 rows of 26 tables from {tmp_path / source} (step 2)"
    assert "cat_0 (50 to 60 rows), cat_2 (50 to 70 rows)" in told[1]
    assert told[2].startswith("warning: rows are taken over by their numbers")


def test_every_process_fills_the_pieces_it_holds(resolve: Resolve, warm: Warm, tmp_path: Path) -> None:
    settings = (GROWN, "tables.kind=adagrad", "warm_start.state=true", "warm_start.layers=true")
    save(resolve("tables.kind=adagrad", "seed=1"), tmp_path / "one")
    whole, _ = warm("one", *settings)
    parts = assemble(resolve(*settings, f"warm_start.from_dir={tmp_path / 'one'}"))
    for rank in range(2):
        state = OneOfTwo(parts, dealt(parts, rank))
        take_over(state, parts.config.warm_start, Group(), lambda _: None)
        assert state.tables.num_updates == 2
    for spec in parts.tables.specs:
        np.testing.assert_array_equal(parts.tables.weights(spec.name), whole.tables.weights(spec.name))
        np.testing.assert_array_equal(parts.tables.state(spec.name), whole.tables.state(spec.name))


def test_layers_and_optimizers_come_along_if_asked(resolve: Resolve, warm: Warm, tmp_path: Path) -> None:
    adam = ("tables.kind=adam", "dense.kind=adam")
    saved = save(resolve("seed=1", *adam), tmp_path / "one")
    parts, told = warm("one", *adam, "warm_start.layers=true", "warm_start.state=true", "model.top=[6,1]")
    left = {name for name, _ in parts.model.named_parameters() if name.startswith("top")}
    for name, parameter in parts.model.named_parameters():
        theirs = saved.model.get_parameter(name)
        if parameter.shape == theirs.shape:
            left.discard(name)
            assert torch.equal(parameter, theirs)
            assert torch.equal(parts.optimizer.state[parameter]["exp_avg"], saved.optimizer.state[theirs]["exp_avg"])
        else:
            assert not parts.optimizer.state[parameter]
    assert left, "the top's first layer has another shape"
    assert all(any(name in line for line in told) for name in left)
    for spec in parts.tables.specs:
        np.testing.assert_array_equal(parts.tables.state(spec.name), saved.tables.state(spec.name))
    assert parts.tables.num_updates == 2


def test_chosen_tables_alone_are_taken(resolve: Resolve, warm: Warm, tmp_path: Path) -> None:
    saved = save(resolve("seed=1"), tmp_path / "one")
    parts, _ = warm("one", SHRUNK, "warm_start.tables=['cat_0','cat_5']")
    fresh = assemble(resolve(SHRUNK))
    for spec in parts.tables.specs:
        source = saved if spec.name in ("cat_0", "cat_5") else fresh
        np.testing.assert_array_equal(parts.tables.weights(spec.name), source.tables.weights(spec.name))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            ["data.table_rows=" + str([50, 40] + [50] * 24)],
            r"table cat_1 has 50 rows in .*one and 40 here.*at least 50",
        ),
        (
            ["model.embedding_dim=8", "model.bottom=[8,8]"],
            r"table cat_0 has dimension 4 in .*one and 8 here; set model\.embedding_dim=4, or leave it out",
        ),
        (["warm_start.tables=['cat_55']"], r"names 'cat_55', and this run has no such table; did you mean cat_5\?"),
        (["warm_start.state=true", "tables.kind=adam"], r"tables\.kind is rowwise_adagrad in .*one and adam here"),
        (
            ["warm_start.state=true", "warm_start.layers=true", "dense.kind=adam"],
            r"dense\.kind is adagrad in .*one and adam here",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(
    settings: list[str], complaint: str, resolve: Resolve, warm: Warm, tmp_path: Path
) -> None:
    save(resolve(), tmp_path / "one", 0)
    with pytest.raises(ConfigError, match=complaint):
        warm("one", *settings)


def test_other_things_that_are_refused(resolve: Resolve, warm: Warm, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"warm_start\.layers = True does nothing without warm_start\.from_dir"):
        resolve("warm_start.layers=true")
    with pytest.raises(RunError, match="nowhere does not exist"):
        warm("nowhere")
    write_model(tmp_path / "model", assemble(resolve()), Progress())
    with pytest.raises(ConfigError, match=r"needs a checkpoint, and .*model is weights alone"):
        warm("model", "warm_start.state=true")
    file = tmp_path / "model" / "tables.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(RunError, match=r"tables\.safetensors is not the file"):
        warm("model")


def test_tables_of_one_side_are_listed() -> None:
    match = match_tables({"a": (5, 4), "b": (9, 4)}, {"b": (7, 4), "c": (3, 8)}, (), "there")
    assert (match.num_rows, match.grown) == ({"b": 7}, {"b": (7, 9)})
    assert (match.only_here, match.only_there) == (("a",), ("c",))
    with pytest.raises(ConfigError, match=r"warm_start\.tables names 'c', and this run has no such table"):
        match_tables({"a": (5, 4)}, {"c": (3, 8)}, ("c",), "there")


def test_a_run_that_goes_on_does_not_start_warm_again(
    resolve: Resolve, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    saved = save(resolve("seed=1"), tmp_path / "one")
    assignments = (f"warm_start.from_dir={tmp_path / 'one'}", "stop.max_steps=0", "cadence.save_at_start=true")
    config: TrainConfig = resolve(*assignments, "data.global_batch=500")
    run_job(config, tmp_path / "warm")
    assert capfd.readouterr().err.count("warm start: ") == 1
    assert f'from_dir = "{tmp_path / "one"}"' in (tmp_path / "warm" / "config.toml").read_text()
    first = open_state(sorted((tmp_path / "warm" / "checkpoints").iterdir())[0])
    assert first.step == 0
    diff = compare(open_state(tmp_path / "one"), first, "weights")
    assert not [each.name for each in diff.tensors if each.name.startswith("table")]
    assert saved.tables.num_updates == 2
    before = (tmp_path / "warm" / "model" / "tables.safetensors").read_bytes()
    run_job(config, tmp_path / "warm", resume=True)
    assert "warm start: " not in capfd.readouterr().err
    assert (tmp_path / "warm" / "model" / "tables.safetensors").read_bytes() == before
