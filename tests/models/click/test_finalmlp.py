import pytest
import torch
from torch import Tensor

from recmill.errors import ConfigError
from recmill.models.click.finalmlp import FinalMlp
from recmill.settings.click_models import FinalMlpConfig
from tests.models.twins import CATEGORIES, DENSE, NUM_DENSE, B, D, F

GATED = {"gate_hidden": (5,), "gate1_columns": ("cat_1", "int_2"), "gate2_columns": ()}


def by_hand(model: FinalMlp, weights: dict[str, Tensor], dense: Tensor, emb_BFD: Tensor, heads: int) -> Tensor:
    """The paper's formulas, row by row and head by head."""

    def layer(name: str, x: Tensor) -> Tensor:
        return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]

    logits = []
    for row in range(len(dense)):
        features = torch.cat([dense[row], *emb_BFD[row]])
        contexts = {"gate1": torch.cat([emb_BFD[row, 1], dense[row, 2:3]])}
        outputs = []
        for stream, gate in (("stream1", "gate1"), ("stream2", "gate2")):
            x = features
            if model.gate1 is not None:
                context = contexts[gate] if gate in contexts else weights[f"{gate}.context"][0]
                hidden = layer(f"{gate}.mlp.0", context).clamp(min=0)
                x = x * 2 / (1 + torch.exp(-layer(f"{gate}.mlp.2", hidden)))
            outputs.append(layer(f"{stream}.2", layer(f"{stream}.0", x).clamp(min=0)).clamp(min=0))
        first, second = outputs
        logit = weights["fusion.linear.bias"][0] + weights["fusion.linear.weight"][0] @ torch.cat(outputs)
        for head, (left, right) in enumerate(zip(first.chunk(heads), second.chunk(heads), strict=True)):
            for i, j in torch.cartesian_prod(torch.arange(len(left)), torch.arange(len(right))):
                logit = logit + left[i] * weights["fusion.heads"][head, i, j] * right[j]
        logits.append(logit)
    return torch.stack(logits)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("gates", [{}, GATED], ids=["plain", "gated"])
def test_the_model_equals_its_formulas(gates: dict[str, object], heads: int) -> None:
    config = FinalMlpConfig(embedding_dim=D, stream1=(8, 6), stream2=(9, 4), heads=heads, **gates)
    model = FinalMlp(config, DENSE, CATEGORIES, seed=0)
    torch.manual_seed(0)
    dense, emb_BFD = torch.randn(B, NUM_DENSE), torch.randn(B, F, D, requires_grad=True)
    weights = {name: parameter.detach().double().requires_grad_() for name, parameter in model.named_parameters()}
    copy = emb_BFD.detach().double().requires_grad_()
    ours = model(dense, emb_BFD)
    expected = by_hand(model, weights, dense.double(), copy, heads)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)
    ours.square().sum().backward()
    expected.square().sum().backward()  # type: ignore[no-untyped-call]
    named = {**dict(model.named_parameters()), "emb": emb_BFD}
    for name, tensor in {**weights, "emb": copy}.items():
        gradient = named[name].grad
        assert gradient is not None
        assert tensor.grad is not None
        assert tensor.grad.any(), name
        torch.testing.assert_close(gradient.double(), tensor.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 3}, r"model.stream1 ends in 256, which model.heads = 3 does not divide"),
        ({"stream2": (9, 5)}, r"model.stream2 ends in 5, which model.heads = 4"),
        ({"stream1": ()}, r"model.stream1 = \[\]: it needs at least one layer"),
        ({"gate_hidden": (0,)}, r"model.gate_hidden = \[0\]"),
        ({"gate1_columns": ("cat_1",)}, r"there are none; set model.gate_hidden"),
    ],
)
def test_layers_that_do_not_fit_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FinalMlpConfig(**changes)


def test_columns_that_the_data_have_not_are_refused() -> None:
    config = FinalMlpConfig(gate_hidden=(5,), gate2_columns=("cat_1", "user"), pooling_by_column={})
    (problem,) = config.problems_of_columns(DENSE, CATEGORIES)
    assert problem.startswith("model.gate2_columns names 'user', which is not one of the columns int_0")
    (problem,) = FinalMlpConfig(pooling_by_column={"int_0": "mean"}).problems_of_columns(DENSE, CATEGORIES)
    assert problem.startswith("model.pooling_by_column names 'int_0', which is not one of the columns cat_0, cat_1,")
