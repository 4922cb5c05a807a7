"""The rival: DCN v2 the way one writes it in plain PyTorch, an `nn.EmbeddingBag(sparse=True)` for every table."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from benchmarks.plain_dlrm import PlainTables, layers
from recmill.settings.click_models import DcnConfig


class PlainDcn(nn.Module):
    """The model of `recmill.models.click.dcn`: cross layers of two matrices each."""

    def __init__(self, config: DcnConfig, num_dense: int, table_rows: Sequence[int]) -> None:
        super().__init__()
        width = (len(table_rows) + 1) * config.embedding_dim
        self.tables = PlainTables(table_rows, config.embedding_dim)
        self.bottom = layers(num_dense, config.bottom, relu_last=True)
        self.down = nn.ModuleList(nn.Linear(width, config.cross_rank, bias=False) for _ in range(config.cross_layers))
        self.up = nn.ModuleList(nn.Linear(config.cross_rank, width) for _ in range(config.cross_layers))
        self.top = layers(width, config.top, relu_last=False)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Dense features (B, dense) and ids (B, F) → logits (B)."""
        first = x = torch.cat([self.bottom(dense), *self.tables.look_up(ids)], dim=1)
        for down, up in zip(self.down, self.up, strict=True):
            x = first * up(down(x)) + x
        logits: Tensor = self.top(x)
        return logits.squeeze(1)
