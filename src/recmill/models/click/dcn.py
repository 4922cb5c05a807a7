"""DLRM with low-rank cross layers in place of the dot products, as in MLPerf's DCN v2."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from recmill.models.click.settings import ModelSettings, refuse_bottom, refuse_top
from recmill.models.parts.cross import CrossNet
from recmill.models.parts.mlp import build_mlp

# Legend: B rows, F categories, D embedding dimension.


class DcnConfig(ModelSettings):
    """As DLRM's, and the number and rank of the cross layers; the published ones are the default."""

    kind: Literal["dcn"] = "dcn"
    bottom: tuple[int, ...] = (512, 256, 64, 16)
    top: tuple[int, ...] = (512, 256, 1)
    cross_layers: int = Field(default=3, ge=1, le=64)
    cross_rank: int = Field(default=512, ge=1)

    def model_post_init(self, _context: object) -> None:
        """Refuse layers that do not fit together."""
        refuse_bottom(self.bottom, self.embedding_dim)
        refuse_top(self.top)


class Dcn(nn.Module):
    """The part of the model between the tables and the loss."""

    def __init__(
        self, config: DcnConfig, dense_names: Sequence[str], category_names: Sequence[str], *, seed: int
    ) -> None:
        super().__init__()
        width = (len(category_names) + 1) * config.embedding_dim
        self.bottom = build_mlp(
            len(dense_names), config.bottom, config.plain_style(seed), name="bottom", relu_last=True
        )
        self.cross = CrossNet(width, config.cross_layers, config.cross_rank, seed=seed)
        self.top = build_mlp(width, config.top, config.style(seed), name="top", relu_last=False)

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, dense) and embeddings (B, F, D) → logits (B)."""
        logits: Tensor = self.top(self.cross(self.bottom(dense), emb_BFD.flatten(1)))
        return logits.squeeze(1)
