"""Pairwise dot products between feature vectors."""

from typing import Any

import torch
from torch import Tensor, nn

# Legend: B rows, N vectors per row (the dense one and one per category), D dimension, P = N(N−1)/2 pairs.


class DotInteraction(nn.Module):
    """(B, N, D) → (B, P): the dot products of all pairs, the strict upper triangle of X·Xᵀ row by row."""

    def __init__(self, num_vectors: int) -> None:
        super().__init__()
        first, second = torch.triu_indices(num_vectors, num_vectors, offset=1)
        num_pairs = len(first)
        # where in the flattened N×N product each pair stands, and which pair each of its places belongs to:
        # the places of the diagonal belong to a pair that is always zero
        pair_of_place = torch.full((num_vectors, num_vectors), num_pairs)
        pair_of_place[first, second] = pair_of_place[second, first] = torch.arange(num_pairs)
        self.register_buffer("_places", first * num_vectors + second, persistent=False)
        self.register_buffer("_pair_of_place", pair_of_place.flatten(), persistent=False)

    def forward(self, vectors_BND: Tensor) -> Tensor:
        """The pairs of each row."""
        return _PairDots.apply(vectors_BND, self._places, self._pair_of_place)  # type: ignore[no-any-return, no-untyped-call]


class _PairDots(torch.autograd.Function):
    """Both directions gather whole columns; autograd's own backward of the gather would scatter with additions."""

    @staticmethod
    def forward(ctx: Any, vectors_BND: Tensor, places: Tensor, pair_of_place: Tensor) -> Tensor:
        ctx.save_for_backward(vectors_BND, pair_of_place)
        products = torch.bmm(vectors_BND, vectors_BND.transpose(1, 2))
        return products.flatten(1).index_select(1, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient_BP,) = gradients
        vectors_BND, pair_of_place = ctx.saved_tensors
        padded = nn.functional.pad(gradient_BP, (0, 1))
        symmetric = padded.index_select(1, pair_of_place).view(-1, vectors_BND.shape[1], vectors_BND.shape[1])
        return torch.bmm(symmetric, vectors_BND), None, None
