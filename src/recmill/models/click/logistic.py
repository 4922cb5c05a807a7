"""Logistic regression on encoded rows, one row after the other: the baseline that a click model has to beat.

1. Every row of every table has a weight, and so has every dense column, in standard deviations from its mean.
2. Each row of the training data moves the weights of the values it holds, by FTRL-proximal (McMahan et al., 2013):
   a learning rate for each weight that falls with its gradients, and an L2 penalty that keeps rare values near zero.
3. A pass takes about a microsecond a row. Three are enough for a small log, one for a large one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.embeddings.table import TableSpec
from recmill.jit import njit

BETA, L2 = 1.0, 5.0
_MAX_WEIGHTS = 1 << 24  # of all tables together; larger ones share weights


class _Weights(NamedTuple):
    """What FTRL keeps of each weight: the sum that makes it, and the sum of its squared gradients."""

    alpha: float  # the learning rate, before it falls

    z: NDArray[np.float32]
    n: NDArray[np.float32]


class _Moments(NamedTuple):
    """Of the dense columns, over the rows so far: how many, the mean, and the sum of squared deviations."""

    num_rows: NDArray[np.float64]  # (1)
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]


class LogisticRegression:
    """A linear model of all values of a row; the weights of a column of several values are summed."""

    def __init__(self, specs: Sequence[TableSpec], num_dense: int, *, alpha: float = 0.05) -> None:
        slots = [spec for spec in specs for _ in range(spec.num_slots)]
        num_rows = sum(spec.num_rows for spec in specs)
        largest = max(1, _MAX_WEIGHTS // max(1, len(specs))) if num_rows > _MAX_WEIGHTS else num_rows + 1
        sizes = {spec.name: min(spec.num_rows, largest) for spec in specs}
        firsts, at = dict[str, int](), 0
        for name, size in sizes.items():
            firsts[name], at = at, at + size
        self._slot_firsts = np.array([firsts[spec.name] for spec in slots], np.int64)
        self._slot_sizes = np.array([sizes[spec.name] for spec in slots], np.int64)
        self._tables = _Weights(alpha, np.zeros(at, np.float32), np.zeros(at, np.float32))
        self._dense = _Weights(alpha, np.zeros(num_dense + 1, np.float32), np.zeros(num_dense + 1, np.float32))
        self._moments = _Moments(np.zeros(1), np.zeros(num_dense), np.zeros(num_dense))
        self.num_updates = 0

    def train(self, columns: Columns) -> None:
        """Take in some rows."""
        dense, ids = np.ascontiguousarray(columns.dense), np.ascontiguousarray(columns.ids)
        if not self.num_updates:
            click_rate = float(np.clip(columns.labels.mean(), 1e-3, 1 - 1e-3))
            _set_bias(self._dense, np.log(click_rate / (1 - click_rate)))
        weights = columns.weights if len(columns.weights) else np.ones(columns.num_rows, np.float32)
        _train(
            dense,
            ids,
            np.stack([columns.labels, weights]),
            self._slot_firsts,
            self._slot_sizes,
            (self._tables, self._dense),
            self._moments,
        )
        self.num_updates += columns.num_rows

    def score(self, columns: Columns) -> NDArray[np.float32]:
        """The logits (B) of some rows."""
        logits = np.empty(columns.num_rows, np.float32)
        dense, ids = np.ascontiguousarray(columns.dense), np.ascontiguousarray(columns.ids)
        weights = (self._tables, self._dense)
        _score(dense, ids, self._slot_firsts, self._slot_sizes, weights, self._moments, logits)
        return logits


def _set_bias(dense: _Weights, value: float) -> None:
    """Begin with the click rate rather than with one half."""
    dense.z[-1] = -value * (BETA / dense.alpha)


@njit(inline="always")
def _weight(weights: _Weights, at: int, l2: float) -> float:
    return -np.float64(weights.z[at]) / ((BETA + np.sqrt(np.float64(weights.n[at]))) / weights.alpha + l2)


@njit(inline="always")
def _update(weights: _Weights, at: int, gradient: float, l2: float) -> None:
    """One step of FTRL-proximal, without an L1 penalty."""
    n = np.float64(weights.n[at])
    sigma = (np.sqrt(n + gradient * gradient) - np.sqrt(n)) / weights.alpha
    weights.z[at] += gradient - sigma * _weight(weights, at, l2)
    weights.n[at] = n + gradient * gradient


@njit(nogil=True, cache=True)
def _standardise(row: NDArray[np.float32], moments: _Moments, out: NDArray[np.float64]) -> None:
    """Each number as its distance from the mean, in standard deviations, within ±5."""
    count = max(1.0, moments.num_rows[0])
    for i in range(len(row)):
        deviation = np.sqrt(moments.squares[i] / count)
        value = (row[i] - moments.mean[i]) / deviation if deviation > 1e-12 else 0.0
        out[i] = min(5.0, max(-5.0, value))


@njit(nogil=True, cache=True)
def _logit(
    numbers: NDArray[np.float64],
    ids: NDArray[np.int64],
    firsts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: tuple[_Weights, _Weights],
) -> float:
    tables, dense = weights
    total = _weight(dense, len(numbers), 0.0)
    for i in range(len(numbers)):
        total += _weight(dense, i, 0.0) * numbers[i]
    for slot in range(len(ids)):
        if ids[slot] >= 0:
            total += _weight(tables, firsts[slot] + ids[slot] % sizes[slot], L2)
    return total


@njit(nogil=True, cache=True)
def _train(
    dense_BN: NDArray[np.float32],
    ids_BS: NDArray[np.int64],
    labels_and_weights: NDArray[np.float32],
    firsts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: tuple[_Weights, _Weights],
    moments: _Moments,
) -> None:
    tables, dense = weights
    labels, row_weights = labels_and_weights
    numbers = np.empty(dense_BN.shape[1])
    for row in range(len(labels)):
        moments.num_rows[0] += 1.0
        for i in range(len(numbers)):
            distance = dense_BN[row, i] - moments.mean[i]
            moments.mean[i] += distance / moments.num_rows[0]
            moments.squares[i] += distance * (dense_BN[row, i] - moments.mean[i])
        _standardise(dense_BN[row], moments, numbers)
        logit = _logit(numbers, ids_BS[row], firsts, sizes, weights)
        gradient = 1.0 / (1.0 + np.exp(-min(30.0, max(-30.0, logit)))) - labels[row]
        gradient *= row_weights[row]
        _update(dense, len(numbers), gradient, 0.0)
        for i in range(len(numbers)):
            _update(dense, i, gradient * numbers[i], 0.0)
        for slot in range(ids_BS.shape[1]):
            if ids_BS[row, slot] >= 0:
                _update(tables, firsts[slot] + ids_BS[row, slot] % sizes[slot], gradient, L2)


@njit(nogil=True, cache=True)
def _score(
    dense_BN: NDArray[np.float32],
    ids_BS: NDArray[np.int64],
    firsts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: tuple[_Weights, _Weights],
    moments: _Moments,
    logits: NDArray[np.float32],
) -> None:
    numbers = np.empty(dense_BN.shape[1])
    for row in range(len(logits)):
        _standardise(dense_BN[row], moments, numbers)
        logits[row] = _logit(numbers, ids_BS[row], firsts, sizes, weights)
