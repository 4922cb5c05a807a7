"""The rivals: BERT4Rec the way one writes it in plain PyTorch, and with the two savings that come to mind first."""

import torch
from torch import Tensor, nn

from recmill.settings.sequence_models import Bert4RecConfig


class PlainBert4Rec(nn.Module):
    """The model of `models.sequence.bert4rec`: tied weights, `nn.TransformerEncoder`, dropout at the same places."""

    def __init__(self, config: Bert4RecConfig, num_items: int, max_length: int) -> None:
        super().__init__()
        dim = config.embedding_dim
        self.items = nn.Embedding(num_items + 2, dim, padding_idx=0)
        self.positions = nn.Embedding(max_length, dim)
        nn.init.normal_(self.items.weight, 0, config.item_std)
        self.norm, self.dropout = nn.LayerNorm(dim), nn.Dropout(config.dropout)
        layer = nn.TransformerEncoderLayer(
            dim, config.num_heads, config.hidden_dim or 4 * dim, config.dropout, "gelu", batch_first=True
        )
        layer.self_attn.dropout, layer.dropout.p = config.attention_dropout, 0.0
        self.blocks = nn.TransformerEncoder(layer, config.num_blocks, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.bias = nn.Parameter(torch.zeros(num_items + 2))

    def encode(self, ids: Tensor) -> Tensor:
        """Ids (B, L), 0 where there is no event → (B, L, D), positions counted from the end."""
        places = torch.arange(self.positions.num_embeddings - ids.shape[1], self.positions.num_embeddings)
        hidden = self.dropout(self.norm(self.items(ids) + self.positions(places)))
        encoded: Tensor = self.head(self.blocks(hidden, src_key_padding_mask=ids == 0))
        return encoded

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, items + 2)."""
        return hidden @ self.items.weight.T + self.bias


def plain_loss(model: PlainBert4Rec, ids: Tensor, labels: Tensor) -> Tensor:
    """Of padded ids and labels (B, L), 0 where nothing is to be guessed: logits of all items at all places."""
    logits = model.logits(model.encode(ids))
    return nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=0)


def gathered_loss(model: PlainBert4Rec, ids: Tensor, labels: Tensor) -> Tensor:
    """The same with logits where something is to be guessed, padded to the batch's longest window."""
    longest = int((ids > 0).sum(dim=1).max())
    ids, labels = ids[:, -longest:], labels[:, -longest:]
    is_hidden = labels > 0
    return nn.functional.cross_entropy(model.logits(model.encode(ids)[is_hidden]), labels[is_hidden])


def take_step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Forward has been; backward and update."""
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
