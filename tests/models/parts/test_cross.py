from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from recmill.models.parts import cross
from recmill.models.parts.cross import CrossNet, fits_kernels

# Rows, widths of the two inputs, rank, layers: around the borders of tiles (4 × 16) and blocks (32 rows), and away
# from them; ranks of 1 and beyond the width; one layer and many; no rows at all.
SHAPES = [
    (1, 1, 1, 1, 1),
    (1, 3, 5, 1, 3),
    (5, 4, 12, 40, 2),
    (32, 16, 16, 16, 1),
    (33, 7, 10, 17, 2),
    (31, 0, 9, 4, 3),
    (70, 16, 33, 5, 6),
    (64, 16, 416, 128, 3),
    (0, 4, 8, 3, 2),
]


def build(num_rows: int, dim: int, rest: int, rank: int, num_layers: int) -> tuple[CrossNet, Tensor, Tensor]:
    net = CrossNet(dim + rest, num_layers, rank, seed=0)
    generator = torch.Generator().manual_seed(num_rows)
    with torch.no_grad():
        for layer in net.layers:
            layer.get_parameter("bias").normal_(generator=generator)
    dense_BD = torch.randn(num_rows, dim, generator=generator, requires_grad=True)
    return net, dense_BD, torch.randn(num_rows, rest, generator=generator, requires_grad=True)


def on_paper(net: CrossNet, dense_BD: Tensor, emb_BE: Tensor) -> Tensor:
    """The formula, in double precision."""
    x0_BN = x_BN = torch.cat([dense_BD, emb_BE], dim=1).double()
    for layer in net.layers:
        v, w, bias = (layer.get_parameter(name).double() for name in ("v", "w", "bias"))
        x_BN = x0_BN * (x_BN @ v.T @ w.T + bias) + x_BN
    return x_BN


def gradients(out: Tensor, net: CrossNet, *inputs: Tensor) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad((out * weights).sum(), [*net.parameters(), *inputs])


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("max_width", [cross.MAX_KERNEL_WIDTH, 0])  # our kernels, and torch's
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_the_formula(
    shape: tuple[int, int, int, int, int], max_width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross, "MAX_KERNEL_WIDTH", max_width)
    net, *inputs = build(*shape)
    assert fits_kernels(*inputs) == bool(max_width)
    out, expected = net(*inputs), on_paper(net, *inputs)
    # sums of as many terms as there are rows or columns, some of which cancel: the error is a share of the largest
    for mine, other in zip(
        (out, *gradients(out, net, *inputs)), (expected, *gradients(expected, net, *inputs)), strict=True
    ):
        assert mine.dtype == torch.float32
        largest = float(other.detach().abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(mine, other.float(), rtol=1e-4, atol=1e-5 * largest)


def test_rows_do_not_depend_on_the_number_of_threads_or_on_their_neighbours() -> None:
    net, *inputs = build(101, 6, 15, 9, 3)
    results = []
    for count in (1, 2):
        with torch_threads(count):
            out = net(*inputs)
            # the gradients of V and W are torch's products over all rows, whose order is torch's
            biases = [layer.get_parameter("bias") for layer in net.layers]
            results.append((out, *torch.autograd.grad(out.square().sum(), [*inputs, *biases])))
    for alone, together in zip(*results, strict=True):
        assert torch.equal(alone, together)
    assert torch.equal(net(*(tensor[50:53] for tensor in inputs)), results[0][0][50:53])


def test_inputs_and_gradients_that_are_views_of_others_count_as_their_values() -> None:
    net, dense_BD, emb_BE = build(9, 4, 6, 3, 2)
    plain = net(dense_BD, emb_BE)
    scattered = net(dense_BD.t().contiguous().t(), torch.cat([emb_BE, emb_BE], dim=1)[:, :6])
    assert torch.equal(scattered, plain)
    of_scattered = torch.autograd.grad(scattered.t().contiguous().sum(), [dense_BD, emb_BE])
    for mine, other in zip(of_scattered, torch.autograd.grad(plain.sum(), [dense_BD, emb_BE]), strict=True):
        assert torch.equal(mine, other)


def test_inputs_without_a_gradient_still_move_the_weights() -> None:
    net, *inputs = build(6, 4, 5, 3, 2)
    expected = gradients(net(*inputs), net)
    assert all(map(torch.equal, gradients(net(*(tensor.detach() for tensor in inputs)), net), expected))


def test_other_precisions_and_devices_are_left_to_torch() -> None:
    net, dense_BD, emb_BE = build(5, 4, 6, 3, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert not fits_kernels(dense_BD, emb_BE)
        out = net(dense_BD, emb_BE)
        assert net(dense_BD.bfloat16(), emb_BE).shape == (5, 10)
    torch.testing.assert_close(out.float(), on_paper(net, dense_BD, emb_BE).float(), rtol=0.1, atol=0.1)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(out.float(), net, dense_BD, emb_BE))
    assert not fits_kernels(dense_BD.double(), emb_BE)
    assert not fits_kernels(dense_BD, emb_BE.to("meta"))  # a device that is not the CPU, on every machine
    assert net.to("meta")(dense_BD.to("meta"), emb_BE.to("meta")).shape == (5, 10)


def test_without_gradients_the_same_values() -> None:
    net, *inputs = build(40, 4, 30, 8, 3)
    with torch.no_grad():
        without = net(*inputs)
    torch.testing.assert_close(without, net(*inputs).detach(), rtol=1e-5, atol=1e-5)
