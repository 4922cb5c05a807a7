"""A logit from two vectors: linear in each, and bilinear in their shares of every head."""

import torch
from torch import Tensor, nn

from recmill.models.parts.mlp import LayerStyle, build_linear, layer_stream

# Legend: B rows, H heads, M and N the widths of a head's shares.


class BilinearFusion(nn.Module):
    """x (B, H·M), y (B, H·N) → b + u·x + v·y + Σ over heads x_h·W_h·y_h, (B), with Xavier's normal first W_h."""

    def __init__(self, width1: int, width2: int, num_heads: int, style: LayerStyle) -> None:
        super().__init__()
        share1, share2 = width1 // num_heads, width2 // num_heads
        spread = (2 / (share1 + share2)) ** 0.5
        generator = layer_stream(style.seed, "fusion", "heads")
        weight_HMN = torch.empty(num_heads, share1, share2)
        self.heads = nn.Parameter(nn.init.normal_(weight_HMN, 0.0, spread, generator=generator))
        self.linear = build_linear(width1 + width2, 1, style, "fusion", "linear")

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """As (B, H·M)·(B, H·N), after every head has turned its share of x into one like y's."""
        shares_HBM = x.view(len(x), *self.heads.shape[:2]).transpose(0, 1)
        turned = torch.bmm(shares_HBM, self.heads).transpose(0, 1).flatten(1)
        logits: Tensor = self.linear(torch.cat([x, y], dim=1)).squeeze(1)
        return logits + (turned * y).sum(dim=1)
