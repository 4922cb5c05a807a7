import numpy as np
import pytest
import torch
from torch import nn

from recmill.models.parts.dropout import Dropout, train_at
from recmill.models.parts.mlp import LayerStyle, build_mlp
from recmill.models.parts.norm import BatchNorm


def test_layers_start_within_torchs_bound() -> None:
    mlp = build_mlp(100, (200, 50), LayerStyle(0), name="test", relu_last=True)
    assert [type(module).__name__ for module in mlp] == ["Linear", "ReLU", "Linear", "ReLU"]
    weight, _, second, _ = list(mlp.parameters())
    assert 0.09 < weight.abs().max() <= 0.1
    assert second.abs().max() <= 200**-0.5


def test_normal_first_values_have_the_published_spread() -> None:
    mlp = build_mlp(400, (1000, 600), LayerStyle(0, "normal"), name="test", relu_last=True)
    for linear in (mlp[0], mlp[2]):
        assert isinstance(linear, nn.Linear)
        weight_spread = (2 / (linear.in_features + linear.out_features)) ** 0.5
        assert float(linear.weight.detach().std()) == pytest.approx(weight_spread, rel=0.01)
        assert float(linear.bias.detach().std()) == pytest.approx(linear.out_features**-0.5, rel=0.1)
        assert linear.weight.abs().max() > 3 * weight_spread, "a tail, not a uniform distribution"


def test_what_stands_behind_hidden_layers() -> None:
    mlp = build_mlp(4, (5, 3, 1), LayerStyle(0, dropout_frac=0.5, batch_norm=True), name="test", relu_last=False)
    hidden = ["Linear", "BatchNorm", "ReLU", "Dropout"]
    assert [type(module).__name__ for module in mlp] == [*hidden, *hidden, "Linear"]


def test_a_mask_depends_on_seed_layer_and_step_alone() -> None:
    ones = torch.ones(50, 40)

    def mask(seed: int, name: str, step: int) -> torch.Tensor:
        layer = Dropout(0.25, seed, name, 0)
        train_at(layer, step)
        return layer(ones)  # type: ignore[no-any-return]

    first = mask(0, "top", 7)
    torch.manual_seed(5)
    assert torch.equal(first, mask(0, "top", 7))
    for other in (mask(1, "top", 7), mask(0, "bottom", 7), mask(0, "top", 8)):
        assert not torch.equal(first, other)


def test_a_row_keeps_its_mask_among_other_rows() -> None:
    layer = Dropout(0.25, 0, "top", 0)
    train_at(layer, 3)
    whole = layer(torch.ones(50, 3, 7))
    some = np.array([40, 3, 17], np.uint64)
    assert torch.equal(layer(torch.ones(3, 3, 7), some), whole[some.astype(np.int64)])


def test_dropout_keeps_the_mean_and_rests_while_judging() -> None:
    layer = Dropout(0.25, 0, "top", 0)
    ones = torch.ones(400, 500)
    train_at(layer, 0)
    dropped = layer(ones)
    assert dropped.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert float(dropped.mean()) == pytest.approx(1, abs=0.01)
    layer.eval()
    assert layer(ones) is ones


def test_batch_norm_is_torchs_for_batches_and_takes_a_row_alone() -> None:
    ours, theirs = BatchNorm(3), nn.BatchNorm1d(3)
    batch = torch.randn(20, 3) * 2 + 1
    assert torch.equal(ours(batch), theirs(batch))
    theirs.eval()
    assert torch.equal(ours(batch[:1]), theirs(batch[:1]))
    assert ours(batch[:0]).shape == (0, 3)
    assert ours.running_mean is not None
    assert theirs.running_mean is not None
    assert torch.equal(ours.running_mean, theirs.running_mean), "a row alone is not measured"
