"""Stacks of linear layers with seeded first values."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recmill.models.parts.dropout import Dropout
from recmill.models.parts.norm import BatchNorm
from recmill.seeds import stream_key
from recmill.settings.click_models import Init, ModelSettings

# Of so few columns, the gradient of a matrix that lies column by column takes MKL half the time.
MAX_NARROW_WIDTH = 48


class Linear(nn.Linear):
    """A linear layer that takes inputs wider than itself: what is beyond its width has to be zeros."""

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, at least in_features) → (B, out_features)."""
        surplus = inputs.shape[1] - self.in_features
        weight = nn.functional.pad(self.weight, (0, surplus)) if surplus else self.weight
        if inputs.shape[1] <= MAX_NARROW_WIDTH:
            return torch.addmm(self.bias, inputs, weight.t().contiguous())
        return nn.functional.linear(inputs, weight, self.bias)


@dataclass(frozen=True)
class LayerStyle:
    """How layers start, and what stands behind the hidden ones.

    uniform   weights and biases U(±1/√fan_in), as torch's own layers
    normal    weights of variance 2/(fan_in + fan_out) and biases of 1/fan_out, as OneFlow and MLPerf's first DLRM
    """

    seed: int
    init: Init = "uniform"
    dropout_frac: float = 0.0
    batch_norm: bool = False


def style_of(config: ModelSettings, seed: int, *, batch_norm: bool = False) -> LayerStyle:
    """Of layers with the dropout of the settings."""
    return LayerStyle(seed, config.init, config.dropout, batch_norm=batch_norm)


def plain_style_of(config: ModelSettings, seed: int) -> LayerStyle:
    """Of layers without dropout."""
    return LayerStyle(seed, config.init)


def build_mlp(in_width: int, widths: Sequence[int], style: LayerStyle, *, name: str, relu_last: bool) -> nn.Sequential:
    """(B, in_width) → (B, widths[-1]): linear layers with ReLU between them, and behind the last one if asked.

    Layers with a ReLU are hidden ones: linear, batch norm, ReLU, dropout.
    """
    layers: list[nn.Module] = []
    for i, width in enumerate(widths):
        layers.append(build_linear(in_width, width, style, name, i))
        if relu_last or i < len(widths) - 1:
            layers += [BatchNorm(width)] if style.batch_norm else []
            layers.append(nn.ReLU(inplace=True))  # nobody asks for what was there before
            layers += [Dropout(style.dropout_frac, style.seed, name, i)] if style.dropout_frac else []
        in_width = width
    return nn.Sequential(*layers)


def build_linear(in_width: int, width: int, style: LayerStyle, *name: str | int) -> Linear:
    """(B, in_width) → (B, width), with first values from a stream named after the layer."""
    generator = layer_stream(style.seed, *name)
    linear = Linear(in_width, width)
    if style.init == "uniform":
        for parameter in linear.parameters():
            nn.init.uniform_(parameter, -(in_width**-0.5), in_width**-0.5, generator=generator)
    else:
        nn.init.normal_(linear.weight, 0.0, (2 / (in_width + width)) ** 0.5, generator=generator)
        nn.init.normal_(linear.bias, 0.0, width**-0.5, generator=generator)
    return linear


def layer_stream(seed: int, *name: str | int) -> torch.Generator:
    """Where a layer's first values come from."""
    return torch.Generator().manual_seed(stream_key(seed, "dense", *name) >> 1)
