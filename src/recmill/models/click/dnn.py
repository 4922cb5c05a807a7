"""The baseline: one MLP over all embeddings and dense features, beside a linear model if asked ("wide and deep")."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from recmill.models.click.settings import ModelSettings, refuse_top
from recmill.models.parts.mlp import build_linear, build_mlp

# Legend: B rows, F categories, D dimension of the tables.


class DnnConfig(ModelSettings):
    """Widths of the layers, which end in a single logit.

    `wide` adds a weight for every category value and every dense feature (Cheng et al., 2016). A value's weight stands
    in its row of the table behind the embedding, and is moved by the tables' optimizer.
    """

    kind: Literal["dnn"] = "dnn"
    top: tuple[int, ...] = (512, 256, 1)
    wide: bool = False
    batch_norm: bool = False

    def model_post_init(self, _context: object) -> None:
        """Refuse layers that do not fit together."""
        refuse_top(self.top)

    @property
    def table_dim(self) -> int:
        """The embedding, and the weight if there is a linear model."""
        return self.embedding_dim + int(self.wide)


class Dnn(nn.Module):
    """The part of the model between the tables and the loss."""

    def __init__(
        self, config: DnnConfig, dense_names: Sequence[str], category_names: Sequence[str], *, seed: int
    ) -> None:
        super().__init__()
        self._dim = config.embedding_dim
        width = len(dense_names) + len(category_names) * config.embedding_dim
        style = config.style(seed, batch_norm=config.batch_norm)
        self.top = build_mlp(width, config.top, style, name="top", relu_last=False)
        self.wide = build_linear(len(dense_names), 1, config.plain_style(seed), "wide") if config.wide else None

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, dense) and rows of the tables (B, F, D) → logits (B)."""
        logits: Tensor = self.top(torch.cat([dense, emb_BFD[..., : self._dim].flatten(1)], dim=1))
        if self.wide is not None:
            logits = logits + self.wide(dense) + emb_BFD[..., self._dim].sum(dim=1, keepdim=True)
        return logits.squeeze(1)
