"""SASRec (Kang and McAuley, 2018): each event looks at those before it and predicts the one behind it."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from recmill.models.parts.attention import Packing
from recmill.models.sequence.encoder import SequenceEncoder, block_style_of
from recmill.settings.sequence_models import SasRecConfig

# Legend: N events of all sequences, M of them that are asked for, D dimension.


class SasRec(nn.Module):
    """The part of the model between the item vectors and their scores."""

    task: Literal["next"] = "next"

    def __init__(self, config: SasRecConfig, num_items: int, max_length: int, *, seed: int) -> None:
        super().__init__()
        del num_items  # has no weights of its own for items
        self.encoder = SequenceEncoder(config, max_length, block_style_of(config, is_causal=True, seed=seed))

    def forward(self, emb_ND: Tensor, packing: Packing, places: NDArray[np.int64] | None = None) -> Tensor:
        """Item vectors (N, D) → vectors, of all or of some places, to be multiplied with those of the next items."""
        hidden_MD: Tensor = self.encoder(emb_ND, packing, places)
        return hidden_MD

    @property
    def output_weights(self) -> Tensor | None:
        """None: scores are made with the item vectors."""
        return None

    @property
    def output_bias(self) -> Tensor | None:
        """None: an item has no score of its own."""
        return None
