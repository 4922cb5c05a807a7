"""Dropout whose masks depend on the seed, the layer and the step alone, so that a resumed run draws the same ones."""

import torch
from torch import Tensor, nn

from recmill.seeds import stream_key


class Dropout(nn.Module):
    """Zeros in a share of the places and 1/(1 − share) times the others while training; nothing otherwise."""

    def __init__(self, frac: float, seed: int, *name: str | int) -> None:
        super().__init__()
        self.frac = frac
        self.step = 0  # of the batch to come
        self._seed, self._name = seed, name

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, W) → (B, W)."""
        if not self.training:
            return inputs
        generator = torch.Generator().manual_seed(stream_key(self._seed, "dropout", *self._name, self.step) >> 1)
        kept = torch.rand(inputs.shape, generator=generator) >= self.frac
        return inputs * kept.to(inputs.device, inputs.dtype).div_(1 - self.frac)


def train_at(model: nn.Module, step: int) -> None:
    """Make a model ready for the batch behind `step` finished ones."""
    model.train()
    for module in model.modules():
        if isinstance(module, Dropout):
            module.step = step
