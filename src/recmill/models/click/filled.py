"""Rows that have no numbers, or no categories: zeros in their place, for models that expect both."""

import torch
from torch import Tensor, nn

NOTHING = ("(none)",)  # the name of the column that is not there


class Filled(nn.Module):
    """A model that is given one number, or one vector, of zeros where rows have none."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, N) and rows of the tables (B, F, D), N or F may be 0 → logits (B)."""
        num_rows, num_fields, dim = emb_BFD.shape
        if dense.shape[1] == 0:
            dense = torch.zeros(num_rows, 1, dtype=emb_BFD.dtype, device=emb_BFD.device)
        if num_fields == 0:
            emb_BFD = torch.zeros(num_rows, 1, dim, dtype=dense.dtype, device=dense.device)
        logits: Tensor = self.model(dense, emb_BFD)
        return logits
