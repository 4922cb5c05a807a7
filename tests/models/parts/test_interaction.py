from itertools import product

import pytest
import torch
from torch import Tensor

from recmill.models.parts.interaction import DotInteraction
from recmill.settings.click_models import Triangle

# Around the borders of the kernels' tiles of 4 × 16, and away from them.
SHAPES = [(1, 2, 1), (5, 3, 4), (7, 4, 16), (3, 16, 17), (2, 17, 40), (9, 27, 16), (2, 33, 3)]


def expected_columns(dense_BD: Tensor, emb_BFD: Tensor, triangle: Triangle, *, with_self: bool) -> Tensor:
    """Pair by pair, as one would write it on paper."""
    vectors = [dense_BD, *emb_BFD.unbind(1)]
    indices = range(len(vectors))
    if triangle == "upper":
        pairs = [(i, j) for i, j in product(indices, indices) if i < j or (with_self and i == j)]
    else:
        pairs = [(i, j) for i, j in product(indices, indices) if i > j or (with_self and i == j)]
    columns = [dense_BD, *((vectors[i] * vectors[j]).sum(1, keepdim=True) for i, j in pairs)]
    return torch.cat(columns, dim=1)


def random_vectors(num_rows: int, num_vectors: int, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(dim)
    dense_BD = torch.randn(num_rows, dim, generator=generator).to(dtype)
    emb_BFD = torch.randn(num_rows, num_vectors - 1, dim, generator=generator).to(dtype)
    return dense_BD.requires_grad_(), emb_BFD.requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # our kernels, and torch's
@pytest.mark.parametrize("with_self", [False, True])
@pytest.mark.parametrize("triangle", ["upper", "lower"])
@pytest.mark.parametrize(("num_rows", "num_vectors", "dim"), SHAPES)
def test_values_and_gradients_are_those_of_the_formula(
    num_rows: int, num_vectors: int, dim: int, triangle: Triangle, with_self: bool, dtype: torch.dtype
) -> None:
    dense_BD, emb_BFD = random_vectors(num_rows, num_vectors, dim, dtype)
    interaction = DotInteraction(num_vectors, triangle=triangle, with_self=with_self)
    out = interaction(dense_BD, emb_BFD)
    expected = expected_columns(dense_BD, emb_BFD, triangle, with_self=with_self)
    assert expected.shape[1] == dim + interaction.num_pairs
    torch.testing.assert_close(out[:, : expected.shape[1]], expected)
    assert out.shape[1] % 8 == 0
    assert out.shape[1] < expected.shape[1] + 8
    assert not out[:, expected.shape[1] :].any()
    weights = torch.randn(expected.shape, dtype=dtype)
    ours = torch.autograd.grad((out[:, : expected.shape[1]] * weights).sum(), [dense_BD, emb_BFD])
    theirs = torch.autograd.grad((expected * weights).sum(), [dense_BD, emb_BFD])
    torch.testing.assert_close(ours, theirs)


def test_rows_do_not_depend_on_the_number_of_threads() -> None:
    dense_BD, emb_BFD = random_vectors(101, 6, 8, torch.float32)
    interaction, threads = DotInteraction(6), torch.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            out = interaction(dense_BD, emb_BFD)
            results.append((out, *torch.autograd.grad(out.square().sum(), [dense_BD, emb_BFD])))
    finally:
        torch.set_num_threads(threads)
    for alone, together in zip(*results, strict=True):
        assert torch.equal(alone, together)


def test_vectors_that_are_views_of_others_count_as_their_values() -> None:
    dense_BD, emb_BFD = random_vectors(4, 3, 6, torch.float32)
    interaction = DotInteraction(3)
    scattered = interaction(dense_BD.t().contiguous().t(), emb_BFD.transpose(0, 2).contiguous().transpose(0, 2))
    assert torch.equal(scattered, interaction(dense_BD, emb_BFD))
