"""FinalMLP (Mao et al., AAAI 2023): two MLPs over gated features, fused by a bilinear form with heads."""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from recmill.errors import ConfigError
from recmill.models.click.settings import ModelSettings, refuse_strangers, refuse_widths
from recmill.models.parts.bilinear import BilinearFusion
from recmill.models.parts.gate import Gate
from recmill.models.parts.mlp import build_mlp

# Legend: B rows, F categories, D embedding dimension.


class FinalMlpConfig(ModelSettings):
    """Widths of the two streams, the heads of their fusion, and the hidden widths of the gates (none: no gates).

    A gate sees the columns it is given, or without any a vector that is learnt.
    """

    kind: Literal["finalmlp"] = "finalmlp"
    stream1: tuple[int, ...] = (512, 256)
    stream2: tuple[int, ...] = (512, 256)
    heads: int = Field(default=4, ge=1)
    gate_hidden: tuple[int, ...] = ()
    gate1_columns: tuple[str, ...] = ()
    gate2_columns: tuple[str, ...] = ()
    batch_norm: bool = False

    def model_post_init(self, _context: object) -> None:
        """Refuse layers that do not fit together."""
        for name, widths in (("stream1", self.stream1), ("stream2", self.stream2)):
            refuse_widths(**{name: widths})
            if widths[-1] % self.heads:
                raise ConfigError(
                    f"model.{name} ends in {widths[-1]}, which model.heads = {self.heads} does not divide: "
                    "every head takes an equal share; change one of them"
                )
        if self.gate_hidden:
            refuse_widths(gate_hidden=self.gate_hidden)
        elif self.gate1_columns or self.gate2_columns:
            raise ConfigError(
                "model.gate1_columns and model.gate2_columns are what gates see, and there are none; "
                "set model.gate_hidden, for instance to [64]"
            )

    def refuse_strange_columns(self, dense_names: Sequence[str], category_names: Sequence[str]) -> None:
        """Complain about columns that the settings name and the data do not have."""
        super().refuse_strange_columns(dense_names, category_names)
        for name, columns in (("gate1_columns", self.gate1_columns), ("gate2_columns", self.gate2_columns)):
            refuse_strangers(name, columns, [*dense_names, *category_names])


class FinalMlp(nn.Module):
    """The part of the model between the tables and the loss."""

    def __init__(
        self, config: FinalMlpConfig, dense_names: Sequence[str], category_names: Sequence[str], *, seed: int
    ) -> None:
        super().__init__()
        dim = config.embedding_dim
        places = dict[str, list[int]]()
        for i, name in enumerate(dense_names):  # a number that is spread over knots has several places
            places.setdefault(name, []).append(i)
        for name in category_names:
            first = sum(map(len, places.values()))
            places[name] = list(range(first, first + dim))
        width = sum(map(len, places.values()))

        def build_gate(name: str, columns: Sequence[str]) -> Gate | None:
            seen = [place for column in columns for place in places[column]]
            widths = (*config.gate_hidden, width)
            return Gate(seen, dim, widths, config.plain_style(seed), name) if config.gate_hidden else None

        self.gate1 = build_gate("gate1", config.gate1_columns)
        self.gate2 = build_gate("gate2", config.gate2_columns)
        style = config.style(seed, batch_norm=config.batch_norm)
        self.stream1 = build_mlp(width, config.stream1, style, name="stream1", relu_last=True)
        self.stream2 = build_mlp(width, config.stream2, style, name="stream2", relu_last=True)
        self.fusion = BilinearFusion(config.stream1[-1], config.stream2[-1], config.heads, config.plain_style(seed))

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, dense) and embeddings (B, F, D) → logits (B)."""
        features = torch.cat([dense, emb_BFD.flatten(1)], dim=1)
        first = features if self.gate1 is None else self.gate1(features)
        second = features if self.gate2 is None else self.gate2(features)
        logits: Tensor = self.fusion(self.stream1(first), self.stream2(second))
        return logits
