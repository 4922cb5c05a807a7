"""DLRM as published (Naumov et al., 2019): two MLPs around pairwise dot products of embeddings."""

from pydantic import Field
from torch import Tensor, nn

from recmill.config import Settings
from recmill.errors import ConfigError
from recmill.models.interaction import DotInteraction
from recmill.models.mlp import build_mlp

# Legend: B rows, F categories, D embedding dimension.


class DlrmConfig(Settings):
    """Widths of the layers; the bottom MLP ends in the embedding dimension, the top one in a single logit."""

    embedding_dim: int = Field(default=16, ge=1, le=4096)
    bottom: tuple[int, ...] = (512, 256, 64, 16)
    top: tuple[int, ...] = (512, 256, 1)

    def model_post_init(self, _context: object) -> None:
        """Refuse layers that do not fit together."""
        for name, widths in (("bottom", self.bottom), ("top", self.top)):
            if not widths or min(widths) < 1:
                raise ConfigError(f"model.{name} = {list(widths)}: it needs at least one layer, each at least 1 wide")
        if self.bottom[-1] != self.embedding_dim:
            raise ConfigError(
                f"model.bottom ends in {self.bottom[-1]} and model.embedding_dim is {self.embedding_dim}: "
                "the dense features enter the dot products as one more vector, so the two must be equal"
            )
        if self.top[-1] != 1:
            raise ConfigError(f"model.top ends in {self.top[-1]}; a click model ends in 1, the logit")


class Dlrm(nn.Module):
    """The part of the model between the tables and the loss."""

    def __init__(self, config: DlrmConfig, num_dense: int, num_categories: int, *, seed: int) -> None:
        super().__init__()
        num_vectors = num_categories + 1
        self.bottom = build_mlp(num_dense, config.bottom, seed=seed, name="bottom", relu_last=True)
        self.interaction = DotInteraction(num_vectors)
        top_in = config.embedding_dim + self.interaction.num_pairs
        self.top = build_mlp(top_in, config.top, seed=seed, name="top", relu_last=False)

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, dense) and embeddings (B, F, D) → logits (B)."""
        dense_BD = self.bottom(dense)
        logits: Tensor = self.top(self.interaction(dense_BD, emb_BFD))
        return logits.squeeze(1)
