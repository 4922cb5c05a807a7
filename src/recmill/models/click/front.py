"""What may stand in front of a model, whatever its kind: rates, numbers measured and spread, dropout of vectors."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recmill.embeddings.table import TableSpec
from recmill.models.click.target_statistics import STATISTICS, TargetStatistics
from recmill.models.parts.dropout import Dropout
from recmill.models.parts.norm import BatchNorm
from recmill.settings.click_models import ModelSettings

# Legend: B rows, N dense features, M rates, K knots, F categories, D dimension of the tables.


def spread(dense: Tensor, knots: Tensor) -> Tensor:
    """(B, N) → (B, N·K): how near every number is to each knot, 1 at the knot and 0 at its neighbours.

    The K numbers of a feature add up to 1. Linear layers over them are piecewise linear functions of the feature, with
    a bend at every knot; outside of the knots they are constant.
    """
    risen = ((dense.unsqueeze(2) - knots[:-1]) / (knots[1:] - knots[:-1])).clamp(0, 1)
    ones, zeros = torch.ones_like(risen[..., :1]), torch.zeros_like(risen[..., :1])
    return (torch.cat([ones, risen], dim=2) - torch.cat([risen, zeros], dim=2)).flatten(1)


def input_names(dense_names: Sequence[str], category_names: Sequence[str], config: ModelSettings) -> tuple[str, ...]:
    """The numbers that a model is given of each row."""
    if not config.target_encoding_folds:
        return tuple(dense_names)
    return (*dense_names, *(f"{name} {what}" for what in STATISTICS for name in category_names))


def spread_names(dense_names: Sequence[str], category_names: Sequence[str], config: ModelSettings) -> tuple[str, ...]:
    """The column of each number that the layers see."""
    inputs = input_names(dense_names, category_names, config)
    return (*inputs, *(name for name in dense_names for _ in config.dense_knots))


class Front(nn.Module):
    """A model whose numbers are measured and spread, and whose vectors are dropped in part, before it sees them.

    It holds the rates, which need the values themselves: whoever calls it has them looked up and puts them behind the
    dense features.
    """

    def __init__(
        self, config: ModelSettings, model: nn.Module, num_dense: int, specs: Sequence[TableSpec], *, seed: int
    ) -> None:
        super().__init__()
        num_folds, prior = config.target_encoding_folds, config.target_encoding_prior
        has_rates = num_folds > 0
        self._num_dense = num_dense
        self.rates = TargetStatistics(specs, num_folds, prior) if has_rates else None
        num_inputs = num_dense + len(STATISTICS) * len(specs) * has_rates
        self.norm = BatchNorm(num_inputs) if config.dense_norm and num_inputs else None
        self.register_buffer("knots", torch.tensor(config.dense_knots), persistent=False)
        frac = config.embedding_dropout
        self.dropout = Dropout(frac, seed, "embeddings") if frac else None
        self.model = model

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features and rates (B, N + M) and rows of the tables (B, F, D) → logits (B)."""
        knots = self.get_buffer("knots")
        inputs = dense if self.norm is None else self.norm(dense)
        if len(knots):
            inputs = torch.cat([inputs, spread(dense[:, : self._num_dense], knots)], dim=1)
        vectors = emb_BFD if self.dropout is None else self.dropout(emb_BFD)
        logits: Tensor = self.model(inputs, vectors)
        return logits


def with_front(
    config: ModelSettings, model: nn.Module, num_dense: int, specs: Sequence[TableSpec], *, seed: int
) -> nn.Module:
    """The model, behind a front if the settings ask for one."""
    is_wanted = config.dense_norm or config.dense_knots or config.embedding_dropout or config.target_encoding_folds
    return Front(config, model, num_dense, specs, seed=seed) if is_wanted else model


def target_statistics_of(model: nn.Module) -> TargetStatistics | None:
    """Those that a model is to be given, if it is."""
    return model.rates if isinstance(model, Front) else None
