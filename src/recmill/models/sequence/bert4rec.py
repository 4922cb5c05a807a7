"""BERT4Rec (Sun et al., 2019): hidden events are guessed from those on both sides; in use, the next one is."""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recmill.models.parts.attention import ACTIVATIONS, Packing, seeded_linear
from recmill.models.parts.mlp import layer_stream
from recmill.models.sequence.encoder import SequenceEncoder, block_style_of
from recmill.settings.sequence_models import Bert4RecConfig

# Legend: N events of all sequences, M of them that are asked for, V items, D dimension.


class Bert4Rec(nn.Module):
    """The part of the model between the item vectors and their scores."""

    task: Literal["masked"] = "masked"

    def __init__(self, config: Bert4RecConfig, num_items: int, max_length: int, *, seed: int) -> None:
        super().__init__()
        style = block_style_of(config, is_causal=False, seed=seed)
        self.encoder = SequenceEncoder(config, max_length, style)
        layers: list[nn.Module] = []
        if config.head:
            layers += [seeded_linear(style.dim, style.dim, style, "head"), ACTIVATIONS[config.activation]()]
            layers += [nn.LayerNorm(style.dim, eps=style.norm_eps)]
        self.head = nn.Sequential(*layers)
        self.own_weights: nn.Parameter | None = None
        if config.output == "own":
            weights = torch.empty(num_items, style.dim)
            nn.init.normal_(weights, 0.0, config.item_std, generator=layer_stream(seed, "output"))
            self.own_weights = nn.Parameter(weights)
        self.bias = nn.Parameter(torch.zeros(num_items)) if config.output_bias else None

    def forward(self, emb_ND: Tensor, packing: Packing, places: NDArray[np.int64] | None = None) -> Tensor:
        """Item vectors (N, D) → vectors, of all or of some places, to be multiplied with those of the hidden items."""
        hidden_MD: Tensor = self.head(self.encoder(emb_ND, packing, places))
        return hidden_MD

    @property
    def output_weights(self) -> Tensor | None:
        """(V, D), or None: scores are made with the item vectors."""
        return self.own_weights

    @property
    def output_bias(self) -> Tensor | None:
        """(V), or None: an item has no score of its own."""
        return self.bias
