"""Stacks of linear layers with seeded first values."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recmill.seeds import stream_key


class Linear(nn.Linear):
    """A linear layer that takes inputs wider than itself: what is beyond its width has to be zeros."""

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, at least in_features) → (B, out_features)."""
        surplus = inputs.shape[1] - self.in_features
        weight = nn.functional.pad(self.weight, (0, surplus)) if surplus else self.weight
        return nn.functional.linear(inputs, weight, self.bias)


def build_mlp(in_width: int, widths: Sequence[int], *, seed: int, name: str, relu_last: bool) -> nn.Sequential:
    """(B, in_width) → (B, widths[-1]): linear layers with ReLU between them, and behind the last one if asked.

    Weights and biases start as torch's own layers do, U(±1/√fan_in), but from a stream named after the layer.
    """
    layers: list[nn.Module] = []
    for i, width in enumerate(widths):
        generator = torch.Generator().manual_seed(stream_key(seed, "dense", name, i) >> 1)
        linear = Linear(in_width, width)
        for parameter in linear.parameters():
            nn.init.uniform_(parameter, -(in_width**-0.5), in_width**-0.5, generator=generator)
        layers.append(linear)
        if relu_last or i < len(widths) - 1:
            layers.append(nn.ReLU())
        in_width = width
    return nn.Sequential(*layers)
