"""The rival: BERT4Rec the way one writes it in plain PyTorch, padded batches and logits of all items everywhere."""

import torch
from torch import Tensor, nn

from recmill.models.bert4rec import Bert4RecConfig


class PlainBert4Rec(nn.Module):
    """The model of `recmill.models.bert4rec`: tied weights, `nn.TransformerEncoder`, nothing done for speed."""

    def __init__(self, config: Bert4RecConfig, num_items: int, max_length: int) -> None:
        super().__init__()
        dim = config.embedding_dim
        self.items = nn.Embedding(num_items + 2, dim, padding_idx=0)
        self.positions = nn.Embedding(max_length, dim)
        nn.init.normal_(self.items.weight, 0, config.item_std)
        self.norm, self.dropout = nn.LayerNorm(dim), nn.Dropout(config.dropout_frac)
        layer = nn.TransformerEncoderLayer(
            dim, config.num_heads, config.hidden_dim or 4 * dim, config.dropout_frac, "gelu", batch_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, config.num_blocks, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.bias = nn.Parameter(torch.zeros(num_items + 2))

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (B, L), 0 where there is no event → logits (B, L, items + 2)."""
        places = torch.arange(ids.shape[1])
        hidden = self.dropout(self.norm(self.items(ids) + self.positions(places)))
        hidden = self.head(self.blocks(hidden, src_key_padding_mask=ids == 0))
        logits: Tensor = hidden @ self.items.weight.T + self.bias
        return logits


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, ids: Tensor, labels: Tensor) -> None:
    """One step on padded ids and labels (B, L), 0 where nothing is to be guessed."""
    logits = model(ids)
    loss = nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=0)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
