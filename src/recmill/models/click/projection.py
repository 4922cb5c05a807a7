"""DLRM whose dot products are between vectors that two MLPs make of all the others, as in TorchRec's projection."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recmill.models.parts.mlp import build_mlp, plain_style_of, style_of
from recmill.settings.click_models import ProjectionConfig

# Legend: B rows, F categories, D embedding dimension, M and N vectors of the branches.


class Projection(nn.Module):
    """The part of the model between the tables and the loss."""

    def __init__(
        self, config: ProjectionConfig, dense_names: Sequence[str], category_names: Sequence[str], *, seed: int
    ) -> None:
        super().__init__()
        dim, style = config.embedding_dim, plain_style_of(config, seed)
        width = (len(category_names) + 1) * dim
        self._num_left, self._num_right = config.branch1[-1] // dim, config.branch2[-1] // dim
        self.bottom = build_mlp(len(dense_names), config.bottom, style, name="bottom", relu_last=True)
        self.branch1 = build_mlp(width, config.branch1, style, name="branch1", relu_last=True)
        self.branch2 = build_mlp(width, config.branch2, style, name="branch2", relu_last=True)
        top_in = dim + self._num_left * self._num_right
        self.top = build_mlp(top_in, config.top, style_of(config, seed), name="top", relu_last=False)

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, dense) and embeddings (B, F, D) → logits (B)."""
        dense_BD: Tensor = self.bottom(dense)
        num_rows, dim = dense_BD.shape
        vectors = torch.cat([dense_BD, emb_BFD.flatten(1)], dim=1)
        left_BMD = self.branch1(vectors).view(num_rows, self._num_left, dim)
        right_BDN = self.branch2(vectors).view(num_rows, dim, self._num_right)
        products = torch.bmm(left_BMD, right_BDN).flatten(1)
        logits: Tensor = self.top(torch.cat([dense_BD, products], dim=1))
        return logits.squeeze(1)
