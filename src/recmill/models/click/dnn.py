"""The baseline: one MLP over all embeddings and dense features, beside a linear model if asked ("wide and deep")."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recmill.models.parts.mlp import build_linear, build_mlp, plain_style_of, style_of
from recmill.settings.click_models import DnnConfig

# Legend: B rows, F categories, D dimension of the tables.


class Dnn(nn.Module):
    """The part of the model between the tables and the loss."""

    def __init__(
        self, config: DnnConfig, dense_names: Sequence[str], category_names: Sequence[str], *, seed: int
    ) -> None:
        super().__init__()
        self._dim = config.embedding_dim
        width = len(dense_names) + len(category_names) * config.embedding_dim
        style = style_of(config, seed, batch_norm=config.batch_norm)
        self.top = build_mlp(width, config.top, style, name="top", relu_last=False)
        self.wide = build_linear(len(dense_names), 1, plain_style_of(config, seed), "wide") if config.wide else None

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, dense) and rows of the tables (B, F, D) → logits (B)."""
        logits: Tensor = self.top(torch.cat([dense, emb_BFD[..., : self._dim].flatten(1)], dim=1))
        if self.wide is not None:
            logits = logits + self.wide(dense) + emb_BFD[..., self._dim].sum(dim=1, keepdim=True)
        return logits.squeeze(1)
