"""DLRM with low-rank cross layers in place of the dot products, as in MLPerf's DCN v2."""

from collections.abc import Sequence

from torch import Tensor, nn

from recmill.models.parts.cross import CrossNet
from recmill.models.parts.mlp import build_mlp, plain_style_of, style_of
from recmill.settings.click_models import DcnConfig

# Legend: B rows, F categories, D embedding dimension.


class Dcn(nn.Module):
    """The part of the model between the tables and the loss."""

    def __init__(
        self, config: DcnConfig, dense_names: Sequence[str], category_names: Sequence[str], *, seed: int
    ) -> None:
        super().__init__()
        width = (len(category_names) + 1) * config.embedding_dim
        self.bottom = build_mlp(
            len(dense_names), config.bottom, plain_style_of(config, seed), name="bottom", relu_last=True
        )
        self.cross = CrossNet(width, config.cross_layers, config.cross_rank, seed=seed)
        self.top = build_mlp(width, config.top, style_of(config, seed), name="top", relu_last=False)

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, dense) and embeddings (B, F, D) → logits (B)."""
        logits: Tensor = self.top(self.cross(self.bottom(dense), emb_BFD.flatten(1)))
        return logits.squeeze(1)
