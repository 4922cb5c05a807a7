"""DLRM as published (Naumov et al., 2019): two MLPs around pairwise dot products of embeddings."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from recmill.models.click.settings import ModelSettings, refuse_bottom, refuse_top
from recmill.models.parts.interaction import WIDTH_MULTIPLE, DotInteraction, Triangle
from recmill.models.parts.interaction_kernels import round_up
from recmill.models.parts.mlp import build_mlp

# Legend: B rows, F categories, D embedding dimension.


class DlrmConfig(ModelSettings):
    """Widths of the layers; the bottom MLP ends in the embedding dimension, the top one in a single logit.

    The published variants: TorchRec's is the default; OneFlow's has the lower triangle, both paddings and normal first
    values. Padding gives the layer behind it weights for zeros. They never move, but the layer has OneFlow's shape, and
    its first values the spread of the wider one.
    """

    kind: Literal["dlrm"] = "dlrm"
    bottom: tuple[int, ...] = (512, 256, 64, 16)
    top: tuple[int, ...] = (512, 256, 1)
    triangle: Triangle = "upper"
    self_interaction: bool = False
    pad_dense: bool = False  # to a multiple of 8
    pad_interaction: bool = False

    def model_post_init(self, _context: object) -> None:
        """Refuse layers that do not fit together."""
        refuse_bottom(self.bottom, self.embedding_dim)
        refuse_top(self.top)


class Dlrm(nn.Module):
    """The part of the model between the tables and the loss."""

    def __init__(
        self, config: DlrmConfig, dense_names: Sequence[str], category_names: Sequence[str], *, seed: int
    ) -> None:
        super().__init__()
        num_dense = len(dense_names)
        bottom_in = round_up(num_dense, WIDTH_MULTIPLE) if config.pad_dense else num_dense
        self._dense_padding = bottom_in - num_dense
        self.bottom = build_mlp(bottom_in, config.bottom, config.plain_style(seed), name="bottom", relu_last=True)
        num_vectors = len(category_names) + 1
        self.interaction = DotInteraction(num_vectors, triangle=config.triangle, with_self=config.self_interaction)
        top_in = config.embedding_dim + self.interaction.num_pairs
        top_in = round_up(top_in, WIDTH_MULTIPLE) if config.pad_interaction else top_in
        self.top = build_mlp(top_in, config.top, config.style(seed), name="top", relu_last=False)

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, dense) and embeddings (B, F, D) → logits (B)."""
        if self._dense_padding:
            dense = nn.functional.pad(dense, (0, self._dense_padding))
        dense_BD = self.bottom(dense)
        logits: Tensor = self.top(self.interaction(dense_BD, emb_BFD))
        return logits.squeeze(1)
