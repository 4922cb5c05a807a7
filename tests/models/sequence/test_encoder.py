"""First values of positions: they tell how far events stand apart."""

import pytest
import torch

from recmill.models.sequence.encoder import first_positions
from recmill.settings.sequence_models import Bert4RecConfig


@pytest.mark.parametrize(("dim", "length"), [(64, 200), (8, 2), (7, 30), (1, 5)])
def test_sinusoids_have_the_asked_size_and_the_newest_event_last(dim: int, length: int) -> None:
    config = Bert4RecConfig(embedding_dim=dim, num_heads=1, position_init="sinusoids", position_std=0.3)
    positions = first_positions(config, length, seed=1)
    assert positions.shape == (length, dim)
    assert torch.equal(positions, first_positions(config, length, seed=2)), "nothing is random"
    torch.testing.assert_close(first_positions(config, length + 9, seed=1)[9:], positions, rtol=0, atol=1e-6)
    if dim % 2 == 0:
        assert positions.square().mean().sqrt().item() == pytest.approx(0.3)


def test_the_product_of_two_sinusoids_is_a_matter_of_their_distance() -> None:
    config = Bert4RecConfig(position_init="sinusoids", position_std=0.1)
    positions = first_positions(config, 50, seed=0).double()
    products = positions @ positions.T
    by_distance = [products.diagonal(distance) for distance in range(50)]
    for products_there in by_distance:
        torch.testing.assert_close(products_there, products_there[:1].expand_as(products_there), rtol=0, atol=1e-6)
    means = torch.stack([products_there[0] for products_there in by_distance])
    assert (means[:4].diff() < 0).all(), "neighbours are most alike"
    assert means[0] > means[1:].max()


def test_random_positions_depend_on_the_seed_alone() -> None:
    config = Bert4RecConfig(position_std=0.5)
    first = first_positions(config, 100, seed=4)
    assert torch.equal(first, first_positions(config, 100, seed=4))
    assert not torch.equal(first, first_positions(config, 100, seed=5))
    assert first.std().item() == pytest.approx(0.5, rel=0.05)
