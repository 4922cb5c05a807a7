"""FinalMLP (Mao et al., AAAI 2023): two MLPs over gated features, fused by a bilinear form with heads."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recmill.models.parts.bilinear import BilinearFusion
from recmill.models.parts.gate import Gate
from recmill.models.parts.mlp import build_mlp, plain_style_of, style_of
from recmill.settings.click_models import FinalMlpConfig

# Legend: B rows, F categories, D embedding dimension.


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
            return Gate(seen, dim, widths, plain_style_of(config, seed), name) if config.gate_hidden else None

        self.gate1 = build_gate("gate1", config.gate1_columns)
        self.gate2 = build_gate("gate2", config.gate2_columns)
        style = style_of(config, seed, batch_norm=config.batch_norm)
        self.stream1 = build_mlp(width, config.stream1, style, name="stream1", relu_last=True)
        self.stream2 = build_mlp(width, config.stream2, style, name="stream2", relu_last=True)
        self.fusion = BilinearFusion(config.stream1[-1], config.stream2[-1], config.heads, plain_style_of(config, seed))

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, dense) and embeddings (B, F, D) → logits (B)."""
        features = torch.cat([dense, emb_BFD.flatten(1)], dim=1)
        first = features if self.gate1 is None else self.gate1(features)
        second = features if self.gate2 is None else self.gate2(features)
        logits: Tensor = self.fusion(self.stream1(first), self.stream2(second))
        return logits
