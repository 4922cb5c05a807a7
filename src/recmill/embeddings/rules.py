"""The rules that move one row of a table, given the sum of its gradients; `TableOptimizer` has their formulas.

No operation may be reordered or fused: a kernel just compiled and the same one loaded from its cache have been through
the optimiser in different company, and a run that is resumed is to end with the same bits.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit
from recmill.settings.optimizers import TableOptimizer
from recmill.settings.table_rules import TABLE_RULES


class Storage(NamedTuple):
    """All tables end to end: weights (R, D), optimizer state (R, state width), first row and slot of each table."""

    weights: NDArray[np.float32]
    state: NDArray[np.float32]
    first_row: NDArray[np.int64]  # (F + 1)
    first_slot: NDArray[np.int64]  # (F + 1)


class UpdateNumbers(NamedTuple):
    """The numbers a rule is given at each step; those it does not take are 0."""

    lr: np.float32
    eps: np.float32
    momentum: np.float32
    weight_decay: np.float32
    beta1: np.float32
    beta2: np.float32
    rest1: np.float32  # 1 − β₁, which 32 bits would spoil if the kernel took it
    rest2: np.float32
    unbias1: np.float32  # 1 / (1 − β₁ᵗ)
    unbias2: np.float32
    l1: np.float32
    l2: np.float32
    lr_power: np.float32


def update_numbers(lr: float, numbers: dict[str, float], num_updates: int) -> UpdateNumbers:
    """The numbers of the update that makes `num_updates`."""
    given = {"lr": lr, **{name: value for name, value in numbers.items() if name in UpdateNumbers._fields}}
    for moment in ("1", "2"):
        beta = numbers.get(f"beta{moment}", 0.0)
        given[f"rest{moment}"] = 1 - beta
        given[f"unbias{moment}"] = 1 / (1 - beta ** max(1, num_updates))
    return UpdateNumbers(*(np.float32(given.get(name, 0.0)) for name in UpdateNumbers._fields))


class Rule(NamedTuple):
    """What a kernel is built for: the kind of optimizer, and whether the parts that cost time are in use."""

    kind: str
    has_momentum: bool
    has_decay: bool
    state_width: int


def rule_of(optimizer: TableOptimizer, dim: int) -> Rule:
    """The rule that the settings choose."""
    numbers = optimizer.numbers
    return Rule(
        optimizer.kind,
        numbers.get("momentum", 0.0) > 0,
        numbers.get("weight_decay", 0.0) > 0,
        optimizer.state_width(dim),
    )


def update_row(rule: Rule, dim: int) -> Any:
    """The compiled rule for rows of one dimension: (weights, state, gradient, rates) → None, all rows of their own."""
    module, name = TABLE_RULES[rule.kind].kernel.split(":")
    return getattr(import_module(module), name)(rule, dim)


def _sum_of_squares(dim: int) -> Any:
    """Four sums that are added at the end: a vector does that, and in this order, whatever a compiler makes of it."""
    rest = dim - dim % 4

    @njit(inline="always")
    def sum_of_squares(gradient: Any) -> Any:
        a = b = c = e = np.float32(0)
        for d in range(0, rest, 4):
            a += gradient[d] * gradient[d]
            b += gradient[d + 1] * gradient[d + 1]
            c += gradient[d + 2] * gradient[d + 2]
            e += gradient[d + 3] * gradient[d + 3]
        for d in range(rest, dim):
            a += gradient[d] * gradient[d]
        return (a + b) + (c + e)

    return sum_of_squares


def sgd(rule: Rule, dim: int) -> Any:
    """SGD, with momentum if the rule has it."""
    if rule.has_momentum:
        return _momentum(dim)

    @njit(inline="always")
    def plain(weights: Any, _state: Any, gradient: Any, rates: UpdateNumbers) -> None:
        for d in range(dim):
            weights[d] -= rates.lr * gradient[d]

    return plain


def _momentum(dim: int) -> Any:
    @njit(inline="always")
    def momentum(weights: Any, state: Any, gradient: Any, rates: UpdateNumbers) -> None:
        for d in range(dim):
            state[d] = rates.momentum * state[d] + gradient[d]
            weights[d] -= rates.lr * state[d]

    return momentum


def adagrad(_rule: Rule, dim: int) -> Any:
    """Adagrad, an accumulator for every weight."""

    @njit(inline="always")
    def update(weights: Any, state: Any, gradient: Any, rates: UpdateNumbers) -> None:
        for d in range(dim):
            state[d] += gradient[d] * gradient[d]
            weights[d] -= rates.lr * gradient[d] / (np.sqrt(state[d]) + rates.eps)

    return update


def rowwise_adagrad(_rule: Rule, dim: int) -> Any:
    """Adagrad with one accumulator for a row."""
    sum_of_squares = _sum_of_squares(dim)

    @njit(inline="always")
    def update(weights: Any, state: Any, gradient: Any, rates: UpdateNumbers) -> None:
        squares = sum_of_squares(gradient)
        state[0] += squares / np.float32(dim)
        rate = rates.lr / (np.sqrt(state[0]) + rates.eps)
        for d in range(dim):
            weights[d] -= rate * gradient[d]

    return update


def adam(_rule: Rule, dim: int) -> Any:
    """Adam, both moments for every weight."""

    @njit(inline="always")
    def update(weights: Any, state: Any, gradient: Any, rates: UpdateNumbers) -> None:
        for d in range(dim):
            first = rates.beta1 * state[d] + rates.rest1 * gradient[d]
            second = rates.beta2 * state[dim + d] + rates.rest2 * gradient[d] * gradient[d]
            state[d] = first
            state[dim + d] = second
            scale = np.sqrt(second * rates.unbias2) + rates.eps
            weights[d] -= rates.lr * rates.unbias1 * first / scale

    return update


def rowwise_adam(_rule: Rule, dim: int) -> Any:
    """Adam with one second moment for a row."""
    sum_of_squares = _sum_of_squares(dim)

    @njit(inline="always")
    def update(weights: Any, state: Any, gradient: Any, rates: UpdateNumbers) -> None:
        squares = sum_of_squares(gradient)
        second = rates.beta2 * state[dim] + rates.rest2 * squares / np.float32(dim)
        state[dim] = second
        rate = rates.lr * rates.unbias1 / (np.sqrt(second * rates.unbias2) + rates.eps)
        for d in range(dim):
            first = rates.beta1 * state[d] + rates.rest1 * gradient[d]
            state[d] = first
            weights[d] -= rate * first

    return update


def ftrl(_rule: Rule, dim: int) -> Any:
    """FTRL-Proximal."""

    @njit(inline="always")
    def update(weights: Any, state: Any, gradient: Any, rates: UpdateNumbers) -> None:
        for d in range(dim):
            before = state[d]
            after = before + gradient[d] * gradient[d]
            grown = after**-rates.lr_power
            z = state[dim + d] + gradient[d]
            z -= (grown - before**-rates.lr_power) / rates.lr * weights[d]
            state[d] = after
            state[dim + d] = z
            if abs(z) <= rates.l1:
                weights[d] = np.float32(0)
            else:
                weights[d] = (np.copysign(rates.l1, z) - z) / (grown / rates.lr + rates.l2)

    return update
