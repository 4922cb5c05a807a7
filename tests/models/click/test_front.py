import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from recmill.errors import ConfigError
from recmill.models.click.dnn import Dnn
from recmill.models.click.front import Front, spread, spread_names, with_front
from recmill.models.parts.dropout import train_at
from recmill.settings.click_models import DlrmConfig, DnnConfig

KNOTS = (0.0, 1.0, 3.0)


def test_a_number_is_shared_by_the_knots_around_it() -> None:
    numbers = torch.tensor([[-5.0], [0.0], [0.25], [1.0], [2.5], [3.0], [9.0]])
    expected = [[1, 0, 0], [1, 0, 0], [0.75, 0.25, 0], [0, 1, 0], [0, 0.25, 0.75], [0, 0, 1], [0, 0, 1]]
    assert spread(numbers, torch.tensor(KNOTS)).tolist() == expected


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=9, unique=True), st.lists(st.floats(-30, 30), min_size=3))
def test_a_linear_layer_over_knots_is_interpolation(knots: list[float], numbers: list[float]) -> None:
    knots = sorted(knots)
    if np.diff(knots).min() < 1e-3:
        return
    heights = np.sin(knots)
    near = spread(torch.tensor(numbers, dtype=torch.float64)[:, None], torch.tensor(knots, dtype=torch.float64))
    assert near.sum(dim=1).numpy() == pytest.approx(1)
    assert near.numpy() @ heights == pytest.approx(np.interp(numbers, knots, heights), abs=1e-9)


def test_features_stay_side_by_side() -> None:
    near = spread(torch.tensor([[0.0, 3.0], [1.0, 0.5]]), torch.tensor(KNOTS))
    assert near.tolist() == [[1, 0, 0, 0, 0, 1], [0, 1, 0, 0.5, 0.5, 0]]
    assert spread_names(["a", "b"], ["x"], DnnConfig(dense_knots=KNOTS)) == ("a", "b", "a", "a", "a", "b", "b", "b")
    assert spread_names(["a", "b"], ["x"], DnnConfig()) == ("a", "b")
    rated = DnnConfig(dense_knots=(0.0, 1.0), target_encoding_folds=2)
    assert spread_names(["a"], ["x", "y"], rated) == ("a", "x rate", "y rate", "x rows", "y rows", "a", "a")


def test_without_its_settings_there_is_no_front() -> None:
    model = nn.Identity()
    assert with_front(DlrmConfig(), model, 2, [], seed=0) is model


def test_vectors_are_dropped_in_training_alone_and_the_same_at_the_same_step() -> None:
    config = DnnConfig(embedding_dim=4, top=(1,), embedding_dropout=0.5)
    model = with_front(config, Dnn(config, ["a"], ["x", "y"], seed=3), 1, [], seed=3)
    assert isinstance(model, Front)
    dense, vectors = torch.ones(6, 1), torch.ones(6, 2, 4)
    model.eval()
    assert torch.equal(model(dense, vectors), model.model(dense, vectors))
    outputs = []
    for step in (5, 6, 5):
        train_at(model, step)
        outputs.append(model(dense, vectors))
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.equal(outputs[0], outputs[1])


def test_numbers_are_measured_before_the_layers_and_spread_as_they_are() -> None:
    class Tell(nn.Module):
        def forward(self, dense: torch.Tensor, _vectors: torch.Tensor) -> torch.Tensor:
            return dense

    model = with_front(DnnConfig(dense_norm=True, dense_knots=KNOTS), Tell(), 1, [], seed=0)
    model.train()
    seen = model(torch.tensor([[0.0], [1.0], [2.0]]), torch.zeros(3, 1, 16)).detach()
    assert seen[:, 0].tolist() == pytest.approx([-1.2247, 0.0, 1.2247], abs=1e-3)
    assert seen[:, 1:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5]]


@pytest.mark.parametrize("knots", [(1.0,), (1.0, 1.0), (0.0, 2.0, 1.0)])
def test_knots_that_do_not_rise_are_refused(knots: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match=r"model.dense_knots = .*: give at least two numbers, each larger"):
        DnnConfig(dense_knots=knots)
