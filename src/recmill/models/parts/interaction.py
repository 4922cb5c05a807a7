"""Dot products between all pairs of a row's vectors, beside the dense vector itself."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from recmill.models.parts.interaction_kernels import Pairs, choose_pairs, gradient_kernel, product_kernel, round_up

# Legend: B rows, N vectors per row (the dense one and F of the categories), D dimension, P pairs.

Triangle = Literal["upper", "lower"]
# The matrix products of the layer behind run up to 1.7 times as fast if their width is a multiple of this.
WIDTH_MULTIPLE = 8


class DotInteraction(nn.Module):
    """Dense vectors (B, D) and embeddings (B, F, D) → (B, W): the dense vector, the pairs' products, and zeros.

    The products are a triangle of X·Xᵀ row by row: the upper one as in TorchRec or the lower one as in OneFlow, with
    the diagonal if asked. W is D + P rounded up to a multiple of 8.
    """

    _first: Tensor
    _second: Tensor

    def __init__(self, num_vectors: int, *, triangle: Triangle = "upper", with_self: bool = False) -> None:
        super().__init__()
        if triangle == "upper":
            first, second = np.triu_indices(num_vectors, k=0 if with_self else 1)
        else:
            first, second = np.tril_indices(num_vectors, k=0 if with_self else -1)
        self.num_pairs = len(first)
        self._pairs = choose_pairs(first, second, num_vectors)
        self.register_buffer("_first", torch.from_numpy(first), persistent=False)
        self.register_buffer("_second", torch.from_numpy(second), persistent=False)

    def forward(self, dense_BD: Tensor, emb_BFD: Tensor) -> Tensor:
        """By our kernels for float32 on a CPU, otherwise by torch."""
        if dense_BD.is_cuda or dense_BD.dtype != torch.float32 or emb_BFD.dtype != torch.float32:
            return self._by_torch(dense_BD, emb_BFD)
        return _PairDots.apply(dense_BD, emb_BFD, self._pairs)  # type: ignore[no-any-return, no-untyped-call]

    def _by_torch(self, dense_BD: Tensor, emb_BFD: Tensor) -> Tensor:
        vectors_BND = torch.cat([dense_BD.unsqueeze(1), emb_BFD.to(dense_BD.dtype)], dim=1)
        products_BP = torch.bmm(vectors_BND, vectors_BND.transpose(1, 2))[:, self._first, self._second]
        width = dense_BD.shape[1] + self.num_pairs
        out = torch.cat([dense_BD, products_BP], dim=1)
        return nn.functional.pad(out, (0, round_up(width, WIDTH_MULTIPLE) - width))


class _PairDots(torch.autograd.Function):
    """The bridge from autograd to the kernels."""

    @staticmethod
    def forward(ctx: Any, dense_BD: Tensor, emb_BFD: Tensor, pairs: Pairs) -> Tensor:
        dense_BD, emb_BFD = dense_BD.contiguous(), emb_BFD.contiguous()
        ctx.save_for_backward(dense_BD, emb_BFD)
        ctx.pairs = pairs
        num_rows, dim = dense_BD.shape
        out = torch.empty(num_rows, round_up(dim + len(pairs.places), WIDTH_MULTIPLE))
        multiply = product_kernel(dim, emb_BFD.shape[1] + 1)
        multiply(dense_BD.detach().numpy(), emb_BFD.detach().numpy(), pairs, torch.get_num_threads(), out.numpy())
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = gradients
        vectors = ctx.saved_tensors
        moved = [torch.empty_like(tensor) for tensor in vectors]
        dense_BD, emb_BFD = vectors
        multiply_back = gradient_kernel(dense_BD.shape[1], emb_BFD.shape[1] + 1)
        multiply_back(
            gradient.contiguous().numpy(),
            tuple(tensor.detach().numpy() for tensor in vectors),
            ctx.pairs,
            torch.get_num_threads(),
            tuple(tensor.numpy() for tensor in moved),
        )
        return moved[0], moved[1], None
