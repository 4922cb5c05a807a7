"""What may stand in front of a model, whatever its kind: numbers measured and spread, and dropout of vectors."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recmill.models.dropout import Dropout
from recmill.models.norm import BatchNorm
from recmill.models.settings import ModelSettings

# Legend: B rows, N dense features, K knots, F categories, D dimension of the tables.


def spread(dense: Tensor, knots: Tensor) -> Tensor:
    """(B, N) → (B, N·K): how near every number is to each knot, 1 at the knot and 0 at its neighbours.

    The K numbers of a feature add up to 1. Linear layers over them are piecewise linear functions of the feature, with
    a bend at every knot; outside of the knots they are constant.
    """
    risen = ((dense.unsqueeze(2) - knots[:-1]) / (knots[1:] - knots[:-1])).clamp(0, 1)
    ones, zeros = torch.ones_like(risen[..., :1]), torch.zeros_like(risen[..., :1])
    return (torch.cat([ones, risen], dim=2) - torch.cat([risen, zeros], dim=2)).flatten(1)


def spread_names(dense_names: Sequence[str], config: ModelSettings) -> tuple[str, ...]:
    """The column of each number that the layers see."""
    return (*dense_names, *(name for name in dense_names for _ in config.dense_knots))


class Front(nn.Module):
    """A model whose numbers are measured and spread, and whose vectors are dropped in part, before it sees them."""

    def __init__(self, config: ModelSettings, model: nn.Module, num_dense: int, *, seed: int) -> None:
        super().__init__()
        self.norm = BatchNorm(num_dense) if config.dense_norm else None
        self.register_buffer("knots", torch.tensor(config.dense_knots), persistent=False)
        frac = config.embedding_dropout_frac
        self.dropout = Dropout(frac, seed, "embeddings") if frac else None
        self.model = model

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, N) and rows of the tables (B, F, D) → logits (B)."""
        knots = self.get_buffer("knots")
        inputs = dense if self.norm is None else self.norm(dense)
        if len(knots):
            inputs = torch.cat([inputs, spread(dense, knots)], dim=1)
        vectors = emb_BFD if self.dropout is None else self.dropout(emb_BFD)
        logits: Tensor = self.model(inputs, vectors)
        return logits


def with_front(config: ModelSettings, model: nn.Module, num_dense: int, *, seed: int) -> nn.Module:
    """The model, behind a front if the settings ask for one."""
    is_wanted = config.dense_norm or config.dense_knots or config.embedding_dropout_frac
    return Front(config, model, num_dense, seed=seed) if is_wanted else model
