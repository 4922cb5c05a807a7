"""DLRM as published (Naumov et al., 2019): two MLPs around pairwise dot products of embeddings."""

from collections.abc import Sequence

from torch import Tensor, nn

from recmill.models.parts.interaction import WIDTH_MULTIPLE, DotInteraction
from recmill.models.parts.interaction_kernels import round_up
from recmill.models.parts.mlp import build_mlp, plain_style_of, style_of
from recmill.settings.click_models import DlrmConfig

# Legend: B rows, F categories, D embedding dimension.


class Dlrm(nn.Module):
    """The part of the model between the tables and the loss."""

    def __init__(
        self, config: DlrmConfig, dense_names: Sequence[str], category_names: Sequence[str], *, seed: int
    ) -> None:
        super().__init__()
        num_dense = len(dense_names)
        bottom_in = round_up(num_dense, WIDTH_MULTIPLE) if config.pad_dense else num_dense
        self._dense_padding = bottom_in - num_dense
        self.bottom = build_mlp(bottom_in, config.bottom, plain_style_of(config, seed), name="bottom", relu_last=True)
        num_vectors = len(category_names) + 1
        self.interaction = DotInteraction(num_vectors, triangle=config.triangle, with_self=config.self_interaction)
        top_in = config.embedding_dim + self.interaction.num_pairs
        top_in = round_up(top_in, WIDTH_MULTIPLE) if config.pad_interaction else top_in
        self.top = build_mlp(top_in, config.top, style_of(config, seed), name="top", relu_last=False)

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, dense) and embeddings (B, F, D) → logits (B)."""
        if self._dense_padding:
            dense = nn.functional.pad(dense, (0, self._dense_padding))
        dense_BD = self.bottom(dense)
        logits: Tensor = self.top(self.interaction(dense_BD, emb_BFD))
        return logits.squeeze(1)
