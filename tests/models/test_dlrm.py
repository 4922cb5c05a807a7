import pytest
import torch

from recmill.errors import ConfigError
from recmill.models.dlrm import Dlrm, DlrmConfig
from recmill.models.mlp import LayerStyle, build_mlp

B, F, D, NUM_DENSE = 5, 3, 4, 6
DENSE, CATEGORIES = [f"int_{i}" for i in range(NUM_DENSE)], [f"cat_{i}" for i in range(F)]


def build(seed: int = 0) -> Dlrm:
    return Dlrm(DlrmConfig(embedding_dim=D, bottom=(8, D), top=(7, 1)), DENSE, CATEGORIES, seed=seed)


def test_the_whole_model_equals_torchrecs_with_the_same_weights() -> None:
    """Outputs and gradients; TorchRec's own interaction and over arch around our layers' weights."""
    from torchrec.models.dlrm import InteractionArch

    model = build()
    dense = torch.randn(B, NUM_DENSE)
    ours_in = torch.randn(B, F, D, requires_grad=True)
    theirs_in = ours_in.detach().clone().requires_grad_()
    ours = model(dense, ours_in)
    interaction = InteractionArch(num_sparse_features=F)
    theirs = model.top(interaction(model.bottom(dense), theirs_in)).squeeze(1)
    torch.testing.assert_close(ours, theirs)
    ours.square().sum().backward()
    ours_gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    theirs.square().sum().backward()
    torch.testing.assert_close(ours_in.grad, theirs_in.grad)
    for ours_gradient, parameter in zip(ours_gradients, model.parameters(), strict=True):
        torch.testing.assert_close(ours_gradient, parameter.grad)


def test_layers_start_from_their_own_named_streams() -> None:
    same, other = build(seed=0), build(seed=1)
    for first, second, third in zip(build(seed=0).parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(first, second)
        assert not torch.equal(first, third)
    torch.manual_seed(99)  # the global generator plays no part
    assert torch.equal(next(build(seed=0).parameters()), next(same.parameters()))


def test_layers_start_within_torchs_bound() -> None:
    mlp = build_mlp(100, (200, 50), LayerStyle(0), name="test", relu_last=True)
    assert [type(module).__name__ for module in mlp] == ["Linear", "ReLU", "Linear", "ReLU"]
    weight, _, second, _ = list(mlp.parameters())
    assert 0.09 < weight.abs().max() <= 0.1
    assert second.abs().max() <= 200**-0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bottom": (8, 5)}, r"model.bottom ends in 5 and model.embedding_dim is 16"),
        ({"top": (8, 2)}, r"model.top ends in 2; a click model ends in 1"),
        ({"bottom": ()}, r"model.bottom = \[\]: it needs at least one layer"),
        ({"top": (0, 1)}, r"model.top = \[0, 1\]"),
    ],
)
def test_layers_that_do_not_fit_are_refused(changes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DlrmConfig(**changes)  # type: ignore[arg-type]
