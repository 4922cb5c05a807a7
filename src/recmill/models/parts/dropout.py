"""Dropout whose masks depend on the seed, the layer, the step and what a row is called, and on nothing else.

A resumed run draws the same ones, and so does a process that has some of a batch's rows, if it is told their names.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recmill.jit import njit, prange, uint64
from recmill.seeds import mix64, stream_key

_BITS = 16  # of a random word for each place; four places share one


@njit(nogil=True, parallel=True, cache=True)
def _fill_factors(
    key: np.uint64, names: NDArray[np.uint64], threshold: np.uint64, kept: np.float32, out: NDArray[np.float32]
) -> None:
    """`kept`, or 0 where sixteen random bits are below the threshold; places of a row are counted from its end."""
    width = out.shape[1]
    for row in prange(len(names)):
        own = mix64(uint64(key) ^ uint64(names[row]))
        for word in range((width + 3) // 4):
            bits = mix64(own ^ uint64(word))
            for i in range(4 * word, min(4 * word + 4, width)):
                out[row, width - 1 - i] = kept if (bits & uint64(0xFFFF)) >= threshold else np.float32(0)
                bits >>= uint64(16)


class Stepped(nn.Module):
    """A module whose random numbers depend on the step."""

    step = 0  # of the batch to come


class Dropout(Stepped):
    """Zeros in a share of the places and 1/(1 − share) times the others while training; nothing otherwise.

    The share is rounded to a multiple of 2⁻¹⁶.
    """

    def __init__(self, frac: float, seed: int, *name: str | int) -> None:
        super().__init__()
        self.frac = frac
        self._seed, self._name = seed, name

    def forward(self, inputs: Tensor, names: NDArray[np.uint64] | None = None) -> Tensor:
        """Any shape → the same; `names` are those of its rows, of which there may be several axes, or their numbers."""
        if not self.training or not self.frac:
            return inputs
        if names is None:
            names = np.arange(len(inputs), dtype=np.uint64)
        key = stream_key(self._seed, "dropout", *self._name, self.step)
        factors = np.empty((len(names), inputs.numel() // max(1, len(names))), np.float32)
        threshold = np.uint64(round(self.frac * (1 << _BITS)))
        _fill_factors(np.uint64(key), names, threshold, np.float32(1 / (1 - self.frac)), factors)
        return inputs * torch.from_numpy(factors).view(inputs.shape).to(inputs.device, inputs.dtype)


def train_at(model: nn.Module, step: int) -> None:
    """Make a model ready for the batch behind `step` finished ones."""
    model.train()
    for module in model.modules():
        if isinstance(module, Stepped):
            module.step = step
