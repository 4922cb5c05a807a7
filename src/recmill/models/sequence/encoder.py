"""What sequence models share: positions counted from the newest event, blocks, and first values."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recmill.models.parts.attention import AttentionBlock, BlockStyle, Packing, run_blocks
from recmill.models.parts.dropout import Dropout
from recmill.models.parts.mlp import layer_stream
from recmill.settings.sequence_models import SequenceModelSettings

# Legend: N events of all sequences, M of them that are asked for, D dimension, L longest sequence.

SLOWEST_WAVE = 10_000  # events in a radian of the slowest sinusoid


def block_style_of(config: SequenceModelSettings, *, is_causal: bool, seed: int) -> BlockStyle:
    """What the settings say of the blocks."""
    return BlockStyle(
        dim=config.embedding_dim,
        num_heads=config.num_heads,
        hidden_dim=config.hidden_dim or 4 * config.embedding_dim,
        activation=config.activation,
        norm=config.norm,
        is_causal=is_causal,
        dropout_frac=config.dropout,
        attention_dropout_frac=config.attention_dropout,
        init_std=config.init_std,
        seed=seed,
    )


class SequenceEncoder(nn.Module):
    """Item vectors (N, D) of packed sequences → one vector for each event that knows its sequence."""

    def __init__(self, config: SequenceModelSettings, max_length: int, style: BlockStyle) -> None:
        super().__init__()
        self._factor = config.embedding_dim**0.5 if config.scale_items else 1.0
        self._max_length = max_length
        self.positions = nn.Parameter(first_positions(config, max_length, style.seed))
        self.input_norm = nn.LayerNorm(style.dim, eps=style.norm_eps) if config.input_norm else nn.Identity()
        self.dropout = Dropout(style.dropout_frac, style.seed, "input")
        self.blocks = nn.ModuleList(AttentionBlock(style, number) for number in range(config.num_blocks))
        self.final_norm = nn.LayerNorm(style.dim, eps=style.norm_eps) if config.final_norm else nn.Identity()

    def forward(self, emb_ND: Tensor, packing: Packing, places: NDArray[np.int64] | None = None) -> Tensor:
        """(N, D) → (N, D), or (M, D) of some places; the newest event of a sequence has the last position."""
        positions_ND = self.positions.index_select(0, self._max_length - 1 - packing.from_end)
        hidden_ND = self.dropout(self.input_norm(emb_ND * self._factor + positions_ND), packing.names)
        encoded: Tensor = self.final_norm(run_blocks(self.blocks, hidden_ND, packing, places))
        return encoded


def first_positions(config: SequenceModelSettings, max_length: int, seed: int) -> Tensor:
    """(L, D), that of the newest event last.

    Sinusoids make the product of two positions a function of their distance from the first step on. A model that looks
    both ways has nothing else to tell it which events stand near, and finds it out from random vectors slowly.
    """
    std, dim = config.position_std, config.embedding_dim
    if config.position_init == "normal":
        return nn.init.normal_(torch.empty(max_length, dim), 0.0, std, generator=layer_stream(seed, "positions"))
    num_waves = (dim + 1) // 2
    events_behind = torch.arange(max_length - 1, -1, -1, dtype=torch.float64)[:, None]
    angles = events_behind * SLOWEST_WAVE ** (-torch.arange(num_waves, dtype=torch.float64) / num_waves)
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)[:, :dim]
    return (std * 2**0.5 * waves).float()


def first_item_vectors(config: SequenceModelSettings, num_rows: int, seed: int) -> Tensor:
    """(rows, D), from a stream of their own."""
    std, generator = config.item_std, layer_stream(seed, "items")
    vectors = torch.empty(num_rows, config.embedding_dim)  # of neighbours: what they begin with
    if config.item_init == "uniform":
        return nn.init.uniform_(vectors, -std, std, generator=generator)
    return nn.init.normal_(vectors, 0.0, std, generator=generator)
