"""Low-rank cross layers of DCN v2 (Wang et al., 2021)."""

from typing import Any

import torch
from torch import Tensor, nn

from recmill.models.parts.cross_kernels import (
    BLOCK_ROWS,
    Kept,
    Moved,
    Ways,
    cross_rows,
    cross_rows_back,
    lay_in_panels,
)
from recmill.models.parts.mlp import layer_stream
from recmill.models.parts.tile import TILE_COLUMNS

# Legend: B rows, D and E widths of the two inputs, N = D + E, R rank, L layers.

# Wider rows than these do not stay in the cache from layer to layer, and most of their time is the products' anyway.
MAX_KERNEL_WIDTH = 1024


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
    """(B, D) and (B, E), side by side, → (B, N): cross layers one behind the other, all of which see the inputs."""

    def __init__(self, width: int, num_layers: int, rank: int, *, seed: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CrossLayer(width, rank, seed=seed, index=i) for i in range(num_layers))

    def forward(self, dense_BD: Tensor, emb_BE: Tensor) -> Tensor:
        """Interactions up to the order of the number of layers, plus 1.

        By our kernels, which keep what the way back needs, for float32 on a CPU; without a way back, by torch.
        """
        if torch.is_grad_enabled() and fits_kernels(dense_BD, emb_BE):
            weights = [weight for layer in self.layers for weight in (layer.v, layer.w, layer.bias)]
            return _Cross.apply(dense_BD, emb_BE, *weights)  # type: ignore[no-any-return, no-untyped-call]
        x0_BN = x_BN = torch.cat([dense_BD, emb_BE], dim=1)
        for layer in self.layers:
            x_BN = layer(x0_BN, x_BN)
        return x_BN


def fits_kernels(dense_BD: Tensor, emb_BE: Tensor) -> bool:
    """Whether the kernels take these inputs, and gain by it."""
    is_plain = all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in (dense_BD, emb_BE))
    is_narrow = dense_BD.shape[1] + emb_BE.shape[1] <= MAX_KERNEL_WIDTH
    return is_plain and is_narrow and not torch.is_autocast_enabled("cpu")


class _Cross(torch.autograd.Function):
    """The bridge from autograd to the kernels; `weights` are V, W and b of the first layer, of the second, …"""

    @staticmethod
    def forward(ctx: Any, dense_BD: Tensor, emb_BE: Tensor, *weights: Tensor) -> Tensor:
        v_LRN, w_LNR, bias_LN = (torch.stack(weights[i::3]) for i in range(3))
        num_layers, rank, width = v_LRN.shape
        shape = num_layers, len(dense_BD), width
        states, factors, lows = torch.empty(shape), torch.empty(shape), torch.empty(*shape[:2], rank)
        out_BN = torch.empty(shape[1:])
        ways = Ways(_panels(v_LRN.transpose(1, 2)), _panels(w_LNR.transpose(1, 2)), bias_LN.numpy())
        inputs = dense_BD.contiguous().detach().numpy(), emb_BE.contiguous().detach().numpy()
        kept = Kept(states.numpy(), lows.numpy(), factors.numpy())
        cross_rows(inputs, ways, torch.get_num_threads(), kept, out_BN.numpy())
        ctx.save_for_backward(v_LRN, w_LNR, bias_LN, states, lows, factors)
        ctx.dim = dense_BD.shape[1]
        return out_BN

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        v_LRN, w_LNR, bias_LN, states, lows, factors = ctx.saved_tensors
        num_layers, num_rows, width = states.shape
        factors_back, lows_back = torch.empty_like(factors), torch.empty_like(lows)
        bias_back = torch.empty(-(-num_rows // BLOCK_ROWS), num_layers, width)
        dense_back, emb_back = torch.empty(num_rows, ctx.dim), torch.empty(num_rows, width - ctx.dim)
        moved = (factors_back, lows_back, bias_back, dense_back, emb_back)
        cross_rows_back(
            gradients[0].contiguous().numpy(),
            Ways(_panels(w_LNR), _panels(v_LRN), bias_LN.numpy()),
            torch.get_num_threads(),
            Kept(states.numpy(), lows.numpy(), factors.numpy()),
            Moved(*(tensor.numpy() for tensor in moved)),
        )
        of_weights: list[Tensor] = []
        for i, bias in enumerate(bias_back.sum(dim=0)):
            # both products are high and narrow: as they are, the first would take a quarter longer
            of_weights += [(states[i].T @ lows_back[i]).T, factors_back[i].T @ lows[i], bias]
        return dense_back, emb_back, *of_weights


def _panels(matrices: Tensor) -> Any:
    """(L, K, columns) → (L, P, K, tile)."""
    num_layers, num_terms, num_columns = matrices.shape
    panels = torch.empty(num_layers, -(-num_columns // TILE_COLUMNS), num_terms, TILE_COLUMNS).numpy()
    lay_in_panels(matrices.numpy(), panels)
    return panels
