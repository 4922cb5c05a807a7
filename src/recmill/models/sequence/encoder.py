"""What sequence models share: settings, positions counted from the newest event, blocks, and first values."""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from recmill.errors import ConfigError
from recmill.models.parts.attention import Activation, Block, BlockStyle, Norm, Packing, run_blocks
from recmill.models.parts.dropout import Dropout
from recmill.models.parts.mlp import layer_stream
from recmill.settings.tree import Settings

# Legend: N events of all sequences, M of them that are asked for, D dimension, L longest sequence.

ItemInit = Literal["normal", "uniform", "neighbours"]
PositionInit = Literal["normal", "sinusoids"]
SLOWEST_WAVE = 10_000  # events in a radian of the slowest sinusoid


class SequenceModelSettings(Settings):
    """Width, depth and dropout of the blocks, and where their weights start."""

    embedding_dim: int = Field(default=64, ge=1, le=4096)
    num_blocks: int = Field(default=2, ge=1, le=64)
    num_heads: int = Field(default=2, ge=1)
    hidden_dim: int | None = Field(default=None, ge=1)  # of the two linear layers; None: four times the embedding
    activation: Activation = "gelu"
    norm: Norm = "post"
    input_norm: bool = False  # of the sum of item and position
    final_norm: bool = False
    scale_items: bool = False  # item vectors times √D before positions are added
    dropout_frac: float = Field(default=0.2, ge=0, lt=1)
    attention_dropout_frac: float = Field(default=0.0, ge=0, lt=1)
    init_std: float | None = Field(default=None, gt=0)  # of linear layers; None: 1/√fan_in
    # N(0, position_std), or sines and cosines of that quadratic mean, with which events begin to know their distance
    position_init: PositionInit = "normal"
    position_std: float = Field(default=0.02, gt=0)
    # N(0, item_std), U(−item_std, item_std), or vectors of one length, √D·item_std, alike for items that stand near
    # each other in training events
    item_init: ItemInit = "normal"
    item_std: float = Field(default=0.02, gt=0)
    item_rounds: int | None = Field(default=None, ge=1)  # of neighbours alone; without a value: 3
    # Of log(1 + how often an item followed the newest one directly in training events), which is added to the
    # network's scores where items are ranked. The network is trained as without it. 0: the network alone.
    transition_weight: float = Field(default=0.0, ge=0)
    transition_events: int = Field(default=1, ge=1, le=100)  # so many newest ones, each half as much as the newer one

    def model_post_init(self, _context: object) -> None:
        """Refuse heads that do not share the vector evenly, and what would do nothing."""
        if self.item_init != "neighbours" and self.item_rounds is not None:
            raise ConfigError(
                f"model.item_rounds = {self.item_rounds} does nothing for model.item_init = {self.item_init}; "
                "leave it out or set model.item_init=neighbours"
            )
        if self.embedding_dim % self.num_heads:
            raise ConfigError(
                f"model.num_heads = {self.num_heads} does not divide model.embedding_dim = {self.embedding_dim}; "
                "each head gets an equal part of the vector"
            )

    def block_style(self, *, is_causal: bool, seed: int) -> BlockStyle:
        """For the blocks."""
        return BlockStyle(
            dim=self.embedding_dim,
            num_heads=self.num_heads,
            hidden_dim=self.hidden_dim or 4 * self.embedding_dim,
            activation=self.activation,
            norm=self.norm,
            is_causal=is_causal,
            dropout_frac=self.dropout_frac,
            attention_dropout_frac=self.attention_dropout_frac,
            init_std=self.init_std,
            seed=seed,
        )


class Encoder(nn.Module):
    """Item vectors (N, D) of packed sequences → one vector for each event that knows its sequence."""

    def __init__(self, config: SequenceModelSettings, max_length: int, style: BlockStyle) -> None:
        super().__init__()
        self._factor = config.embedding_dim**0.5 if config.scale_items else 1.0
        self._max_length = max_length
        self.positions = nn.Parameter(first_positions(config, max_length, style.seed))
        self.input_norm = nn.LayerNorm(style.dim, eps=style.norm_eps) if config.input_norm else nn.Identity()
        self.dropout = Dropout(style.dropout_frac, style.seed, "input")
        self.blocks = nn.ModuleList(Block(style, number) for number in range(config.num_blocks))
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
