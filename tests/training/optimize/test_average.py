"""The mean of weights: equal to a mean by hand, judged and left behind, and the same after a stop."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from recmill.errors import ConfigError
from recmill.settings.optimizers import Average
from recmill.training.checkpoint.checkpoint import read_checkpoint, read_model, write_checkpoint, write_model
from recmill.training.checkpoint.snapshot import TRAINING
from recmill.training.click.assemble import assemble
from recmill.training.click.evaluate import evaluate
from recmill.training.click.inputs import Inputs
from recmill.training.click.plan import make_plan
from recmill.training.click.sharded import refuse_sharded
from recmill.training.click.step import ClickState, take_step
from recmill.world import ALONE
from tests.training.checkpoint.states import bytes_of, train_steps
from tests.training.conftest import Resolve

SETTINGS = ("average.from_step=4", "average.every_steps=3", "stop.max_epochs=2")


def weights_of(parts: ClickState) -> dict[str, NDArray[np.float64]]:
    layers = {name: tensor.detach().double().numpy() for name, tensor in parts.model.named_parameters()}
    return layers | {spec.name: parts.tables.weights(spec.name).astype(np.float64) for spec in parts.tables.specs}


def test_steps_that_belong_to_the_mean() -> None:
    assert [step for step in range(14) if Average(from_step=4, every_steps=3).due(step)] == [4, 7, 10, 13]
    assert not any(Average().due(step) for step in range(9))
    with pytest.raises(ConfigError, match=r"average.every_steps = 3 does nothing without average.from_step"):
        Average(every_steps=3)
    with pytest.raises(ConfigError, match=r"average.recent_frac = 0.5 does nothing without average.from_step"):
        Average(recent_frac=0.5)


@pytest.mark.parametrize(("recent_frac", "least", "most"), [(1.0, 0.1, 0.1), (0.25, 0.3, 0.45), (0.1, 0.6, 0.75)])
@pytest.mark.parametrize("number", [100, 1000])
def test_the_newest_tenth_counts_as_it_should_however_long_a_run_is(
    recent_frac: float, least: float, most: float, number: int
) -> None:
    average, shares = Average(from_step=1, recent_frac=recent_frac), np.zeros(0)
    for n in range(1, number + 1):
        weight = average.weight_of(n)
        shares = np.append(shares * (1 - weight), weight)
    assert shares.sum() == pytest.approx(1)
    assert (np.diff(shares) >= -1e-12).all(), "no older weights count more"
    assert least - 1e-9 <= shares[-number // 10 :].sum() <= most + 1e-9


def test_what_is_left_behind_is_the_mean_and_training_goes_on_from_the_weights(
    resolve: Resolve, tmp_path: Path
) -> None:
    parts, plain = assemble(resolve(*SETTINGS)), assemble(resolve(*SETTINGS[2:]))
    seen = []
    with Inputs(parts.config) as inputs, inputs.open_training(None) as stream:
        for step in range(11):
            batch = next(stream)
            assert take_step(parts, batch, step) == take_step(plain, batch, step)
            if step + 1 in (4, 7, 10):
                seen.append(weights_of(parts))
    assert bytes_of(parts) == bytes_of(plain)
    write_model(tmp_path / "model", parts, train_steps(assemble(plain.config), 1))
    left = assemble(resolve(*SETTINGS))
    read_model(tmp_path / "model", left)
    for name, values in weights_of(left).items():
        np.testing.assert_allclose(values, np.mean([each[name] for each in seen], axis=0), atol=1e-6, err_msg=name)
    with Inputs(parts.config) as inputs:
        assert evaluate(parts, inputs, "test").result == evaluate(left, inputs, "test").result
        assert evaluate(parts, inputs, "test").result != evaluate(plain, inputs, "test").result
    assert bytes_of(parts) == bytes_of(plain), "judging puts the weights back"


@pytest.mark.parametrize("stop", [2, 4, 12])
def test_a_run_that_stopped_goes_on_to_the_same_mean(stop: int, resolve: Resolve, tmp_path: Path) -> None:
    config = resolve(*SETTINGS)
    uninterrupted, first, second = assemble(config), assemble(config), assemble(config)
    train_steps(uninterrupted, 20)
    write_checkpoint(tmp_path / "saved", first, train_steps(first, stop))
    assert (tmp_path / "saved" / TRAINING).is_file() == (stop >= 4)
    progress = read_checkpoint(tmp_path / "saved", second)
    train_steps(second, 20 - stop, progress)
    assert bytes_of(second) == bytes_of(uninterrupted)
    assert second.average is not None
    assert uninterrupted.average is not None
    assert second.average.count == uninterrupted.average.count == 6
    with second.average.in_place(), uninterrupted.average.in_place():
        assert bytes_of(second) == bytes_of(uninterrupted)


def test_a_plan_counts_the_mean(resolve: Resolve) -> None:
    without, having = make_plan(resolve()), make_plan(resolve(*SETTINGS))
    assert having.total_bytes - without.total_bytes == without.weight_bytes + 4 * without.dense_parameters


def test_torchrec_s_tables_refuse_a_mean(resolve: Resolve) -> None:
    pytest.importorskip("torchrec")
    with pytest.raises(ConfigError, match=r"average.from_step = 4 needs the local engine"):
        refuse_sharded(resolve(*SETTINGS), ALONE)
