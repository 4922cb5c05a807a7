import pytest
import torch

from recmill.errors import ConfigError
from recmill.models.click.dlrm import Dlrm
from recmill.settings.click_models import DlrmConfig, Init, Triangle
from tests.models.twins import CATEGORIES, DENSE, NUM_DENSE, B, D, F, assert_twins, build_tables, linear_pairs


def build(seed: int = 0) -> Dlrm:
    return Dlrm(DlrmConfig(embedding_dim=D, bottom=(8, D), top=(7, 1)), DENSE, CATEGORIES, seed=seed)


def test_the_whole_model_equals_torchrecs_with_the_same_weights() -> None:
    from torchrec.models.dlrm import DLRM

    ours, theirs = build(), DLRM(build_tables(), NUM_DENSE, [8, D], [7, 1])
    pairs = linear_pairs(ours.bottom, theirs.dense_arch) + linear_pairs(ours.top, theirs.over_arch)
    assert_twins(ours, theirs, pairs)


@pytest.mark.parametrize("self_interaction", [False, True])
def test_oneflows_variant_equals_its_formula(self_interaction: bool) -> None:
    """Zeros beside the dense features, the lower triangle row by row, zeros beside it, layers of that width."""
    config = DlrmConfig(
        embedding_dim=D,
        bottom=(8, D),
        top=(7, 1),
        triangle="lower",
        self_interaction=self_interaction,
        pad_dense=True,
        pad_interaction=True,
        init="normal",
    )
    model = Dlrm(config, DENSE, CATEGORIES, seed=0)
    torch.manual_seed(0)
    dense, emb_BFD = torch.randn(B, NUM_DENSE), torch.randn(B, F, D, requires_grad=True)
    ours = model(dense, emb_BFD)
    (ours_gradient,) = torch.autograd.grad(ours.square().sum(), emb_BFD, retain_graph=True)
    ours.square().sum().backward()

    weights = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    assert weights["bottom.0.weight"].shape == (8, 8)
    assert weights["top.0.weight"].shape == (7, 16), "4 + 6 products, or 4 + 10, up to a multiple of 8"
    for name in ("bottom.0.weight", "top.0.weight"):
        weights[name].requires_grad_()
    copy = emb_BFD.detach().double().requires_grad_()

    def layer(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    x = torch.cat([dense.double(), torch.zeros(B, 8 - NUM_DENSE)], dim=1)
    x = layer("bottom.2", layer("bottom.0", x).relu()).relu()
    rows = [x, *copy.unbind(1)]
    products = [(rows[i] * rows[j]).sum(dim=1) for i in range(F + 1) for j in range(i + 1) if j < i or self_interaction]
    x = torch.cat([x, torch.stack(products, dim=1)], dim=1)
    x = torch.cat([x, torch.zeros(B, 16 - x.shape[1])], dim=1)
    expected = layer("top.2", layer("top.0", x).relu()).squeeze(1)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)
    expected.square().sum().backward()  # type: ignore[no-untyped-call]
    assert copy.grad is not None
    torch.testing.assert_close(ours_gradient.double(), copy.grad, rtol=1e-4, atol=1e-5)
    for name in ("bottom.0.weight", "top.0.weight"):
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        assert weights[name].grad is not None
        torch.testing.assert_close(gradient.double(), weights[name].grad, rtol=1e-4, atol=1e-5)
    unused = slice(D + len(products), None)
    assert not weights["top.0.weight"].grad[:, unused].any(), "the weights of zeros never move"  # type: ignore[index]


@pytest.mark.parametrize(
    ("triangle", "pads", "init"), [("upper", True, "uniform"), ("lower", False, "normal"), ("upper", True, "normal")]
)
def test_variants_can_be_mixed(triangle: Triangle, pads: bool, init: Init) -> None:
    config = DlrmConfig(
        embedding_dim=D, bottom=(D,), top=(1,), triangle=triangle, pad_dense=pads, pad_interaction=pads, init=init
    )
    model = Dlrm(config, DENSE, CATEGORIES, seed=0)
    assert model(torch.randn(B, NUM_DENSE), torch.randn(B, F, D)).shape == (B,)
    assert model.get_parameter("top.0.weight").shape == (1, 16 if pads else 10)


def test_layers_start_from_their_own_named_streams() -> None:
    same, other = build(seed=0), build(seed=1)
    for first, second, third in zip(build(seed=0).parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(first, second)
        assert not torch.equal(first, third)
    torch.manual_seed(99)  # the global generator plays no part
    assert torch.equal(next(build(seed=0).parameters()), next(same.parameters()))


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
        DlrmConfig(**changes)
