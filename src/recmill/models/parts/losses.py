"""Losses over a catalogue of items that never hold the logits of more than a few events at once."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

# Legend: M events with something to guess, V items, C sampled items, D dimension.

CHUNK_BYTES = 32 << 20  # of logits that exist at a time


def full_softmax_loss(
    hidden_MD: Tensor,
    targets_M: Tensor,
    weights_VD: Tensor,
    bias_V: Tensor | None = None,
    *,
    smoothing: float = 0.0,
    mean_of: float | None = None,
) -> Tensor:
    """The mean cross entropy of softmax(hidden · weightsᵀ + bias) with the targets, which are rows of the weights.

    `mean_of` is by how much the sum is divided, if these events are not all that the mean is of.

    With smoothing s, a target's probability is 1 − s + s/V and that of every other item s/V. The gradients are worked
    out on the way forward, while a chunk of logits is at hand: each is computed once and never kept.
    """
    count = max(1, len(hidden_MD)) if mean_of is None else mean_of
    loss: Tensor = _FullSoftmax.apply(hidden_MD, targets_M, weights_VD, bias_V, smoothing, count)  # type: ignore[no-untyped-call]
    return loss


class _FullSoftmax(torch.autograd.Function):
    """Forward computes the loss and all gradients, chunk by chunk; backward scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        targets_M: Tensor,
        weights_VD: Tensor,
        bias_V: Tensor | None,
        smoothing: float,
        mean_of: float,
    ) -> Tensor:
        num_items = len(weights_VD)
        wants = any(ctx.needs_input_grad)
        hidden_grad = torch.empty_like(hidden_MD) if wants else None
        weights_grad = torch.zeros_like(weights_VD) if wants else None
        bias_grad = torch.zeros_like(bias_V) if wants and bias_V is not None else None
        total = torch.zeros((), dtype=torch.float64)
        chunk = max(1, CHUNK_BYTES // (num_items * hidden_MD.element_size()))
        for start in range(0, len(hidden_MD), chunk):
            hidden, targets = hidden_MD[start : start + chunk], targets_M[start : start + chunk, None]
            logits = hidden @ weights_VD.T if bias_V is None else torch.addmm(bias_V, hidden, weights_VD.T)
            peaks = logits.amax(dim=1, keepdim=True)
            at_targets = logits.gather(1, targets) - peaks
            if smoothing:
                total += smoothing * (at_targets - (logits.mean(dim=1, keepdim=True) - peaks)).double().sum()
            exps = logits.sub_(peaks).exp_()
            sums = exps.sum(dim=1, keepdim=True)
            total += (sums.log() - at_targets).double().sum()
            if hidden_grad is None or weights_grad is None:
                continue
            errors = exps.div_(sums * mean_of)
            if smoothing:
                errors -= smoothing / (num_items * mean_of)
            errors.scatter_add_(1, targets, torch.full_like(sums, (smoothing - 1) / mean_of))
            torch.mm(errors, weights_VD, out=hidden_grad[start : start + chunk])
            weights_grad.addmm_(errors.T, hidden)
            if bias_grad is not None:
                bias_grad += errors.sum(dim=0)
        ctx.gradients = hidden_grad, weights_grad, bias_grad
        return (total / mean_of).to(hidden_MD.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = gradients
        hidden, weights, bias = (None if g is None else g if scale == 1 else g * scale for g in ctx.gradients)
        return hidden, None, weights, bias, None, None


class Sampled(NamedTuple):
    """Items drawn for a batch, shared by all its events."""

    items: Tensor  # (C)
    log_expected: Tensor  # (C): how often each is expected among the drawn ones, as a logarithm


def sampled_softmax_loss(
    hidden_MD: Tensor,
    targets_M: Tensor,
    target_vectors_MD: Tensor,
    sampled: Sampled,
    vectors_CD: Tensor,
    *,
    mean_of: float | None = None,
) -> Tensor:
    """The mean cross entropy of each target among itself and the drawn items that are not it.

    A drawn item stands for all that were not drawn: its logit is lowered by the logarithm of how often it was to be
    expected among the drawn ones (log-Q), so that the gradient approaches that of the full softmax.
    """
    count = max(1, len(hidden_MD)) if mean_of is None else mean_of
    loss: Tensor = _SampledSoftmax.apply(hidden_MD, targets_M, target_vectors_MD, sampled, vectors_CD, count)  # type: ignore[no-untyped-call]
    return loss


class _SampledSoftmax(torch.autograd.Function):
    """Forward computes the loss and all gradients, chunk by chunk; backward scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        targets_M: Tensor,
        own_MD: Tensor,
        sampled: Sampled,
        vectors_CD: Tensor,
        mean_of: float,
    ) -> Tensor:
        hidden_grad, own_grad, vectors_grad = (
            torch.empty_like(hidden_MD),
            torch.empty_like(own_MD),
            torch.zeros_like(vectors_CD),
        )
        total = torch.zeros((), dtype=torch.float64)
        chunk = max(1, CHUNK_BYTES // (len(vectors_CD) * hidden_MD.element_size()))
        for start in range(0, len(hidden_MD), chunk):
            rows = slice(start, start + chunk)
            hidden, own = hidden_MD[rows], own_MD[rows]
            own_logits = (hidden * own).sum(dim=1, keepdim=True)
            logits = torch.addmm(sampled.log_expected, hidden, vectors_CD.T, beta=-1)
            logits.masked_fill_(targets_M[rows, None] == sampled.items, -torch.inf)
            peaks = torch.maximum(logits.amax(dim=1, keepdim=True), own_logits)
            exps = logits.sub_(peaks).exp_()
            own_exps = (own_logits - peaks).exp()
            sums = exps.sum(dim=1, keepdim=True) + own_exps
            total += (sums.log() + peaks - own_logits).double().sum()
            errors = exps.div_(sums * mean_of)
            own_errors = (own_exps / sums - 1) / mean_of
            torch.addmm(own_errors * own, errors, vectors_CD, out=hidden_grad[rows])
            own_grad[rows] = own_errors * hidden
            vectors_grad.addmm_(errors.T, hidden)
        ctx.gradients = hidden_grad, own_grad, vectors_grad
        return (total / mean_of).to(hidden_MD.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = gradients
        hidden, own, vectors = (gradient if scale == 1 else gradient * scale for gradient in ctx.gradients)
        return hidden, None, own, None, vectors, None
