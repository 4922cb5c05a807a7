"""The rival: DLRM the way one writes it in plain PyTorch, an `nn.EmbeddingBag(sparse=True)` for every table."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recmill.settings.click_models import DlrmConfig


def layers(in_width: int, widths: Sequence[int], *, relu_last: bool) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    modules: list[nn.Module] = []
    for i, width in enumerate(widths):
        modules.append(nn.Linear(in_width, width))
        if relu_last or i < len(widths) - 1:
            modules.append(nn.ReLU())
        in_width = width
    return nn.Sequential(*modules)


class PlainTables(nn.ModuleList):
    """One `nn.EmbeddingBag` for each table."""

    def __init__(self, table_rows: Sequence[int], dim: int) -> None:
        super().__init__(nn.EmbeddingBag(rows, dim, mode="sum", sparse=True) for rows in table_rows)
        for rows, weight in zip(table_rows, self.parameters(), strict=True):
            nn.init.uniform_(weight, -(rows**-0.5), rows**-0.5)

    def look_up(self, ids: Tensor) -> list[Tensor]:
        """Ids (B, F) → F times (B, D)."""
        offsets = torch.arange(len(ids))
        return [table(ids[:, i], offsets) for i, table in enumerate(self)]


class PlainDlrm(nn.Module):
    """The model of `recmill.models.click.dlrm` with nothing done for speed beyond sparse gradients."""

    def __init__(self, config: DlrmConfig, num_dense: int, table_rows: Sequence[int]) -> None:
        super().__init__()
        dim, num_vectors = config.embedding_dim, len(table_rows) + 1
        self.tables = PlainTables(table_rows, dim)
        self.bottom = layers(num_dense, config.bottom, relu_last=True)
        self.top = layers(dim + num_vectors * (num_vectors - 1) // 2, config.top, relu_last=False)
        self.first, self.second = torch.triu_indices(num_vectors, num_vectors, offset=1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Dense features (B, dense) and ids (B, F) → logits (B)."""
        dense_BD = self.bottom(dense)
        vectors_BND = torch.stack([dense_BD, *self.tables.look_up(ids)], dim=1)
        products = torch.bmm(vectors_BND, vectors_BND.transpose(1, 2))
        logits: Tensor = self.top(torch.cat([dense_BD, products[:, self.first, self.second]], dim=1))
        return logits.squeeze(1)


def build_optimizers(model: nn.Module, kind: str, lr: float) -> list[torch.optim.Optimizer]:
    """One for the layers, one for the tables, whose gradients are sparse."""
    make = torch.optim.SGD if kind == "sgd" else torch.optim.Adagrad
    tables = list(model.get_submodule("tables").parameters())
    of_tables = {id(parameter) for parameter in tables}
    return [make([p for p in model.parameters() if id(p) not in of_tables], lr=lr), make(tables, lr=lr)]
