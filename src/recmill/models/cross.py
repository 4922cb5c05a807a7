"""Low-rank cross layers of DCN v2 (Wang et al., 2021)."""

import torch
from torch import Tensor, nn

from recmill.models.mlp import layer_stream

# Legend: B rows, N width, R rank.


class CrossLayer(nn.Module):
    """x0, x (B, N) → x0 ⊙ (W·V·x + b) + x, with V (R, N) and W (N, R): Xavier's normal first values, b = 0."""

    def __init__(self, width: int, rank: int, *, seed: int, index: int) -> None:
        super().__init__()
        generator = layer_stream(seed, "cross", index)
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(rank, width), generator=generator))
        self.w = nn.Parameter(nn.init.xavier_normal_(torch.empty(width, rank), generator=generator))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x0_BN: Tensor, x_BN: Tensor) -> Tensor:
        """One more order of interactions."""
        low_BR = nn.functional.linear(x_BN, self.v)
        return torch.addcmul(x_BN, x0_BN, nn.functional.linear(low_BR, self.w, self.bias))


class CrossNet(nn.Module):
    """(B, N) → (B, N): cross layers one behind the other, all of which see the input."""

    def __init__(self, width: int, num_layers: int, rank: int, *, seed: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CrossLayer(width, rank, seed=seed, index=i) for i in range(num_layers))

    def forward(self, x0_BN: Tensor) -> Tensor:
        """Interactions up to the order of the number of layers, plus 1."""
        x_BN = x0_BN
        for layer in self.layers:
            x_BN = layer(x0_BN, x_BN)
        return x_BN
