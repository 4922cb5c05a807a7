"""The layers' optimizers are torch's, with the numbers of the settings."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recmill.errors import ConfigError
from recmill.settings.optimizers import DenseOptimizer
from recmill.training.optimize.optimizers import build_dense_optimizer
from tests.training.conftest import Resolve

CASES: list[tuple[dict[str, Any], type[torch.optim.Optimizer], dict[str, Any]]] = [
    ({"kind": "sgd"}, torch.optim.SGD, {}),
    ({"kind": "sgd", "momentum": 0.9, "weight_decay": 0.1}, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    ({"kind": "adagrad"}, torch.optim.Adagrad, {"eps": 1e-8}),
    (
        {"kind": "adagrad", "eps": 1e-3, "initial_accumulator": 0.5, "weight_decay": 0.1},
        torch.optim.Adagrad,
        {"eps": 1e-3, "initial_accumulator_value": 0.5, "weight_decay": 0.1},
    ),
    ({"kind": "adam"}, torch.optim.Adam, {}),
    (
        {"kind": "adam", "beta1": 0.8, "beta2": 0.9, "eps": 1e-3, "weight_decay": 0.1},
        torch.optim.Adam,
        {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1},
    ),
    ({"kind": "adamw"}, torch.optim.AdamW, {}),
    ({"kind": "adamw", "weight_decay": 0.3}, torch.optim.AdamW, {"weight_decay": 0.3}),
]


def trained(build: Any) -> Tensor:
    """The weights of a layer after ten steps on fixed data."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    optimizer = build(layer)
    for _ in range(10):
        layer(torch.randn(8, 4, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return layer.weight.detach()


@pytest.mark.parametrize(("settings", "kind", "arguments"), CASES)
def test_every_setting_reaches_torch(
    settings: dict[str, Any], kind: type[torch.optim.Optimizer], arguments: dict[str, Any]
) -> None:
    ours = trained(lambda layer: build_dense_optimizer(layer, DenseOptimizer(lr=0.1, **settings)))
    theirs = trained(lambda layer: kind(layer.parameters(), lr=0.1, **arguments))  # type: ignore[call-arg]
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)  # by other kernels: the last bit may differ


@pytest.mark.parametrize(
    ("assignments", "complaint"),
    [
        (("dense.momentum=0.9",), "dense.momentum = 0.9 does nothing for dense.kind = adagrad; leave it out"),
        (("dense.kind=sgd", "dense.eps=1e-8"), "dense.eps = 1e-08 does nothing for dense.kind = sgd"),
        (("dense.kind=adamw", "dense.beta1=1.0"), "dense.beta1 = 1.0 is rejected: input should be less than 1"),
        (("dense.kind=rmsprop",), 'dense.kind = "rmsprop" is rejected'),
        (("dense.weight_decay=-1.0",), "dense.weight_decay = -1.0 is rejected"),
        (("tables.kind=adam", "tables.l1=0.1"), "tables.l1 = 0.1 does nothing for tables.kind = adam"),
        (("tables.kind=ftrl", "tables.lr_power=0.5"), "tables.lr_power = 0.5 is rejected"),
        (("update.micro_batches=101",), "update.micro_batches = 101 is more than data.global_batch = 100"),
        (("update.clip_norm=-1.0",), "update.clip_norm = -1.0 is rejected"),
        (("loss.label_smoothing=1.0",), "loss.label_smoothing = 1.0 is rejected"),
        (("stop.target_auroc=0.8",), "stop.target_auroc = 0.8 needs evaluations on the way; set cadence.evaluate_ev"),
        (("stop.patience=2",), "stop.patience = 2 needs evaluations on the way"),
        (("stop.target_auroc=1.5", "cadence.evaluate_every_steps=5"), "stop.target_auroc = 1.5 is rejected"),
        (("precision.scale=8.0",), "precision.scale = 8.0 does nothing for precision.kind = fp32"),
        (
            ("precision.kind=fp16", "precision.scaling=static", "precision.growth_interval=5"),
            "precision.growth_interval = 5 does nothing for precision.scaling = static",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    assignments: tuple[str, ...], complaint: str, resolve: Resolve
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(*assignments)
    assert complaint in str(caught.value)
