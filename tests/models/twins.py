"""TorchRec's own models beside ours: one set of weights, then equal logits and gradients."""

from typing import Any

import torch
from torch import Tensor, nn

B, F, D, NUM_DENSE, TABLE_ROWS = 7, 3, 4, 6, 11
DENSE, CATEGORIES = [f"int_{i}" for i in range(NUM_DENSE)], [f"cat_{i}" for i in range(F)]

Pairs = list[tuple[Tensor, Tensor]]


def build_tables() -> Any:
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    configs = [
        EmbeddingBagConfig(name=f"t_{name}", embedding_dim=D, num_embeddings=TABLE_ROWS, feature_names=[name])
        for name in CATEGORIES
    ]
    return EmbeddingBagCollection(tables=configs)


def linear_pairs(ours: nn.Module, theirs: nn.Module) -> Pairs:
    """Weights and biases of two stacks of linear layers."""
    first, second = (
        [parameter for module in stack.modules() if isinstance(module, nn.Linear) for parameter in module.parameters()]
        for stack in (ours, theirs)
    )
    return list(zip(first, second, strict=True))


def assert_twins(ours: nn.Module, theirs: Any, pairs: Pairs) -> None:
    """Logits, and the gradients of every parameter, of the dense input and of the tables, to float32 rounding."""
    from torchrec import KeyedJaggedTensor

    assert len(pairs) == len(list(ours.parameters())), "every parameter of ours has its twin"
    with torch.no_grad():
        for mine, other in pairs:
            other.copy_(mine)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, TABLE_ROWS, (B, F), generator=generator)
    dense = torch.randn(B, NUM_DENSE, generator=generator)
    our_dense, their_dense = dense.clone().requires_grad_(), dense.clone().requires_grad_()
    their_tables = [bag.weight for bag in theirs.sparse_arch.embedding_bag_collection.embedding_bags.values()]
    our_tables = [table.detach().clone().requires_grad_() for table in their_tables]
    emb_BFD = torch.stack([table[ids[:, i]] for i, table in enumerate(our_tables)], dim=1)
    our_logits = ours(our_dense, emb_BFD)
    features = KeyedJaggedTensor(
        keys=CATEGORIES, values=ids.T.reshape(-1), lengths=torch.ones(B * F, dtype=torch.int32)
    )
    their_logits = theirs(their_dense, features).squeeze(1)
    torch.testing.assert_close(our_logits, their_logits)
    for logits in (our_logits, their_logits):
        logits.square().sum().backward()
    inputs = [(our_dense, their_dense), *zip(our_tables, their_tables, strict=True)]
    for mine, other in [*pairs, *inputs]:
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-5, atol=1e-6)
        assert mine.grad.any()
