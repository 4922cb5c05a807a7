"""A gate that lets through up to twice of every feature, or nothing."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recmill.models.parts.mlp import LayerStyle, build_mlp, layer_stream

# Legend: B rows, W features.


class Gate(nn.Module):
    """(B, W) → (B, W): x ⊙ 2σ(MLP(context)), the context being some places of x, or a vector that is learnt."""

    _places: Tensor

    def __init__(
        self, places: Sequence[int], learnt_width: int, widths: Sequence[int], style: LayerStyle, name: str
    ) -> None:
        super().__init__()
        self.register_buffer("_places", torch.tensor(places, dtype=torch.int64), persistent=False)
        bound, generator = learnt_width**-0.5, layer_stream(style.seed, name, "context")
        context = nn.init.uniform_(torch.empty(1, learnt_width), -bound, bound, generator=generator)
        self.context = None if places else nn.Parameter(context)
        self.mlp = build_mlp(len(places) or learnt_width, widths, style, name=name, relu_last=False)

    def forward(self, features_BW: Tensor) -> Tensor:
        """Every feature by its own factor."""
        context = features_BW[:, self._places] if self.context is None else self.context
        return features_BW * (2 * torch.sigmoid(self.mlp(context)))
