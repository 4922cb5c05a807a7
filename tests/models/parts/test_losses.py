"""Losses without logits in memory, against the same with them."""

import pytest
import torch
from torch import nn

from recmill.models.parts import losses
from recmill.models.parts.losses import Sampled, full_softmax_loss, sampled_softmax_loss


def make(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("chunk_bytes", [1, 500, 1 << 20])
def test_the_full_loss_and_its_gradients_are_torchs(
    smoothing: float, with_bias: bool, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "CHUNK_BYTES", chunk_bytes)
    hidden, weights, bias = make(13, 4), make(17, 4, seed=1), make(17, seed=2) if with_bias else None
    targets = torch.randint(0, 17, (13,), generator=torch.Generator().manual_seed(3))
    inputs = [hidden, weights] + ([bias] if bias is not None else [])
    logits = hidden @ weights.T + (bias if bias is not None else 0)
    expected = nn.functional.cross_entropy(logits, targets, label_smoothing=smoothing)
    actual = full_softmax_loss(hidden, targets, weights, bias, smoothing=smoothing)
    torch.testing.assert_close(actual, expected)
    for ours, theirs in zip(
        torch.autograd.grad(3 * actual, inputs), torch.autograd.grad(3 * expected, inputs), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_large_logits_do_not_overflow() -> None:
    hidden, weights = torch.full((2, 1), 200.0), torch.tensor([[1.0], [-1.0], [0.5]])
    loss = full_softmax_loss(hidden, torch.tensor([0, 1]), weights)
    assert float(loss) == pytest.approx(200.0)


def plain_sampled(
    hidden: torch.Tensor, targets: torch.Tensor, own: torch.Tensor, sampled: Sampled, vectors: torch.Tensor
) -> torch.Tensor:
    others = hidden @ vectors.T - sampled.log_expected
    others = others.masked_fill(targets[:, None] == sampled.items, -torch.inf)
    logits = torch.cat([(hidden * own).sum(dim=1, keepdim=True), others], dim=1)
    return nn.functional.cross_entropy(logits, torch.zeros(len(hidden), dtype=torch.int64))


@pytest.mark.parametrize("chunk_bytes", [1, 500, 1 << 20])
def test_the_sampled_loss_and_its_gradients_are_torchs(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK_BYTES", chunk_bytes)
    hidden, own, vectors = make(11, 4), make(11, 4, seed=1), make(6, 4, seed=2)
    targets = torch.arange(1, 12)
    sampled = Sampled(torch.tensor([3, 3, 7, 20, 21, 1]), make(6, seed=3).detach())
    expected = plain_sampled(hidden, targets, own, sampled, vectors)
    actual = sampled_softmax_loss(hidden, targets, own, sampled, vectors)
    torch.testing.assert_close(actual, expected)
    inputs = [hidden, own, vectors]
    for ours, theirs in zip(torch.autograd.grad(actual, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_sampling_all_items_evenly_is_the_full_softmax() -> None:
    """Each drawn once, as often as expected: log-Q is 0, and nothing is left to chance."""
    hidden, weights = make(5, 3), make(9, 3, seed=1)
    targets = torch.tensor([1, 4, 9, 9, 2])
    sampled = Sampled(torch.arange(1, 10), torch.zeros(9, dtype=torch.float64))
    actual = sampled_softmax_loss(hidden, targets, weights[targets - 1], sampled, weights)
    torch.testing.assert_close(actual, full_softmax_loss(hidden, targets - 1, weights))


def test_with_many_samples_the_corrected_gradient_nears_the_full_one() -> None:
    hidden, weights = make(4, 3), make(30, 3, seed=1)
    targets = torch.tensor([1, 2, 30, 7])
    (expected,) = torch.autograd.grad(full_softmax_loss(hidden, targets - 1, weights), [hidden])
    chances = torch.linspace(1, 10, 30, dtype=torch.float64)
    chances /= chances.sum()
    number = 200_000
    items = torch.multinomial(chances, number, replacement=True, generator=torch.Generator().manual_seed(0)) + 1
    log_expected = torch.log(number * chances)[items - 1]

    def gradient(correction: torch.Tensor) -> torch.Tensor:
        loss = sampled_softmax_loss(
            hidden, targets, weights[targets - 1], Sampled(items, correction), weights[items - 1]
        )
        return torch.autograd.grad(loss, [hidden])[0]

    torch.testing.assert_close(gradient(log_expected), expected, rtol=0.02, atol=0.002)
    uncorrected = gradient(torch.full_like(log_expected, float(torch.log(torch.tensor(number / 30)))))
    assert (uncorrected - expected).abs().max() > 5 * (gradient(log_expected) - expected).abs().max()
