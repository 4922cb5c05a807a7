"""A planted rule: what every row of a synthetic click log holds, and how probable its click is.

1. Row i is a pure function of (seed, i): every field takes its bits from a counter, so rows may be made in any order.
2. A category value is a rank, drawn by a power law. The first ranks are cells of their own; the ranks behind them
   share cells of growing width, which keeps the tables small at any number of values.
3. logit = bias + Σ effect(integer) + Σ effect(value) + Σ over pairs of columns coefficient · <latent(a), latent(b)>.
   Effects and latents are pseudo-random, shrink with the rank, and have mean 0 over the rows: what a pair says, no
   column says alone. Behind the first ranks they are 0. An empty category says nothing, an empty integer counts as 0.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit, uint32, uint64
from recmill.seeds import mix64, stream_key
from recmill.settings.criteo import NUM_CATEGORIES, NUM_DENSE, scaled_table_rows

Floats = NDArray[np.float64]

NUM_HEAD = 4096  # ranks with a cell, an effect and latents of their own
CELL_GROWTH = 1 / 32
SHRINK_RANK = 16  # the rank at which effects and latents have shrunk to a half
LATENT_RANK = 2
MAX_NUMBER = 99_999_999
MAX_ROW_BYTES = 2 + NUM_DENSE * 9 + NUM_CATEGORIES * 9
ABSENT = np.int64(-(1 << 40))  # an integer that no column holds

# The counters of a row: its label, its integers, its categories.
_LABEL, _FIRST_DENSE, _FIRST_CATEGORY = 0, 1, 1 + NUM_DENSE
_TAB, _NEWLINE, _MINUS, _ZERO = np.uint8(9), np.uint8(10), np.uint8(45), np.uint8(48)


class PlantedDense(NamedTuple):
    """An integer column, floor(exp(normal)) − subtracted; weights in logits of t = standardised log(x+3) and t² − 1."""

    log_mean: float
    log_spread: float
    subtracted: float
    missing_frac: float
    weight: float
    square_weight: float


class PlantedCategory(NamedTuple):
    """A category column: the exponent of its power law, and the deviation of its effect in logits."""

    exponent: float
    missing_frac: float
    effect: float


class Pair(NamedTuple):
    """Two category columns, and the deviation of their common term in logits."""

    a: int
    b: int
    effect: float


# fmt: off
DENSE = tuple(PlantedDense(*column) for column in (
    (0.8, 1.4, 1, 0.38, 0.22, 0.10), (2.0, 1.6, 2, 0.00, -0.16, 0.00), (2.2, 1.5, 1, 0.19, 0.14, -0.06),
    (1.6, 1.0, 1, 0.21, 0.00, 0.00), (6.5, 2.2, 1, 0.02, -0.24, 0.00), (3.4, 1.7, 1, 0.22, -0.18, 0.05),
    (1.6, 1.5, 1, 0.04, 0.24, 0.00), (2.2, 1.0, 0, 0.00, 0.10, -0.08), (3.7, 1.4, 1, 0.04, -0.12, 0.00),
    (0.1, 0.8, 1, 0.38, 0.16, 0.00), (1.1, 1.0, 1, 0.04, 0.20, 0.00), (0.2, 1.2, 1, 0.30, 0.00, 0.00),
    (1.8, 1.1, 1, 0.21, 0.12, 0.05),
))
# The columns whose published tables have fewer than two hundred rows say nothing: there, a table row that is chosen
# by the remainder of the value is shared by several values even when these are few.
CATEGORIES = tuple(PlantedCategory(*column) for column in (
    (1.10, 0.00, 0.20), (1.05, 0.00, 0.22), (1.05, 0.02, 0.20), (1.10, 0.02, 0.20), (1.05, 0.00, 0.22),
    (1.20, 0.12, 0.00), (1.05, 0.00, 0.20), (1.10, 0.00, 0.14), (1.20, 0.00, 0.00), (1.10, 0.05, 0.18),
    (1.12, 0.00, 0.18), (1.15, 0.03, 0.20), (1.10, 0.00, 0.00), (1.05, 0.00, 0.14), (1.05, 0.00, 0.20),
    (1.20, 0.03, 0.00), (1.10, 0.00, 0.00), (1.05, 0.04, 0.14), (1.10, 0.40, 0.00), (1.08, 0.00, 0.16),
    (1.12, 0.02, 0.18), (1.15, 0.35, 0.16), (1.10, 0.00, 0.20), (1.05, 0.03, 0.20), (1.15, 0.10, 0.00),
    (1.10, 0.15, 0.00),
))
PAIRS = tuple(Pair(*pair) for pair in (
    (1, 2, 0.45), (3, 4, 0.45), (6, 14, 0.45), (23, 2, 0.40), (4, 6, 0.40), (14, 3, 0.40), (7, 23, 0.40), (13, 1, 0.35),
))
# fmt: on


class DenseTable(NamedTuple):
    """The integer columns as the kernels see them: one array per fact."""

    log_mean: Floats
    log_spread: Floats
    subtracted: Floats
    missing_frac: Floats
    weight: Floats
    square_weight: Floats


class PlantedRule(NamedTuple):
    """What the kernels need. The cells of all category columns stand in one row; cell 0 is a missing value."""

    row_key: np.uint64
    bias: float
    dense: DenseTable
    centre: Floats  # of log(x+3), per integer column
    deviation: Floats
    salts: NDArray[np.uint32]
    missing: NDArray[np.uint32]  # out of 2^16
    first_cell: NDArray[np.int64]
    num_cells: NDArray[np.uint64]
    threshold: NDArray[np.uint32]
    alias: NDArray[np.int64]
    first_rank: NDArray[np.uint64]
    width: NDArray[np.uint64]
    effect: Floats
    latent: Floats  # (cells, LATENT_RANK)
    pairs: NDArray[np.int64]  # (pairs, 2)
    coefficient: Floats


class Cells(NamedTuple):
    """The ranks of a column, the rare ones in groups, with the share of rows that each cell gets."""

    first_rank: NDArray[np.int64]
    width: NDArray[np.int64]
    share: Floats


class Truth(NamedTuple):
    """What is known of generated rows: their labels, and what their fields and their pairs say, in logits."""

    labels: NDArray[np.float32]
    alone: Floats
    pairs: Floats


def power_law_cells(num_values: int, exponent: float) -> Cells:
    """Cells for the ranks below `num_values`, of probabilities proportional to (rank + 1)^−exponent."""
    edges = list(range(min(num_values, NUM_HEAD) + 1))
    while edges[-1] < num_values:
        edges.append(min(num_values, edges[-1] + int(edges[-1] * CELL_GROWTH)))
    first, stop = np.array(edges[:-1]), np.array(edges[1:])
    # the sum over a wide cell is the integral between half-integers, to one part in a million
    wide = ((first + 0.5) ** (1 - exponent) - (stop + 0.5) ** (1 - exponent)) / (exponent - 1)
    weight = np.where(first < NUM_HEAD, (first + 1.0) ** -exponent, wide)
    return Cells(first, stop - first, weight / weight.sum())


def alias_table(share: Floats) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Walker's table: a cell drawn evenly is kept if 32 random bits are below its threshold, else gives its alias."""
    scaled = share * len(share)
    threshold, alias = np.full(len(share), 0xFFFFFFFF, np.uint32), np.arange(len(share))
    small = [int(i) for i in np.flatnonzero(scaled < 1.0)]
    large = [int(i) for i in np.flatnonzero(scaled >= 1.0)]
    while small and large:
        i, j = small.pop(), large[-1]
        threshold[i], alias[i] = min(int(scaled[i] * 2**32), 0xFFFFFFFF), j
        scaled[j] -= 1.0 - scaled[i]
        if scaled[j] < 1.0:
            small.append(large.pop())
    return threshold, alias


def build_rule(seed: int, scale: float) -> PlantedRule:
    """The rule of a world, with a bias of 0."""
    columns = [
        power_law_cells(n, column.exponent) for n, column in zip(scaled_table_rows(scale), CATEGORIES, strict=True)
    ]
    num_cells = np.array([len(cells.share) for cells in columns])
    first_cell = 1 + np.cumsum(num_cells) - num_cells
    tables = [alias_table(cells.share) for cells in columns]
    none = np.zeros(1, np.int64)
    effects = [_spread(seed, "effect", c, cells, 1)[:, 0] * CATEGORIES[c].effect for c, cells in enumerate(columns)]
    latents = [_spread(seed, "latent", c, cells, LATENT_RANK) for c, cells in enumerate(columns)]
    dense = DenseTable(*np.array(DENSE).T.copy())
    centre, deviation = _log_moments(dense)
    return PlantedRule(
        row_key=np.uint64(stream_key(seed, "rows")),
        bias=0.0,
        dense=dense,
        centre=centre,
        deviation=deviation,
        salts=np.array([stream_key(0, "values", c) & 0xFFFFFFFF for c in range(NUM_CATEGORIES)], np.uint32),
        missing=np.array([round(column.missing_frac * 2**16) for column in CATEGORIES], np.uint32),
        first_cell=first_cell,
        num_cells=num_cells.astype(np.uint64),
        threshold=np.concatenate([none, *(threshold for threshold, _ in tables)]).astype(np.uint32),
        alias=np.concatenate([none, *(alias + first for (_, alias), first in zip(tables, first_cell, strict=True))]),
        first_rank=np.concatenate([none, *(cells.first_rank for cells in columns)]).astype(np.uint64),
        width=np.concatenate([none, *(cells.width for cells in columns)]).astype(np.uint64),
        effect=np.concatenate([np.zeros(1), *effects]),
        latent=np.concatenate([np.zeros((1, LATENT_RANK)), *latents]),
        pairs=np.array([[pair.a, pair.b] for pair in PAIRS]),
        coefficient=np.array([pair.effect for pair in PAIRS]) / math.sqrt(LATENT_RANK),
    )


def _spread(seed: int, name: str, column: int, cells: Cells, num_parts: int) -> Floats:
    """Numbers per cell that shrink with the rank; over the rows the parts have mean 0, variance 1, covariance 0."""
    raw = np.empty((num_parts, len(cells.share)))
    for part in range(num_parts):
        _fill_normals(np.uint64(stream_key(seed, name, column, part)), raw[part])
    weight = np.where(cells.first_rank < NUM_HEAD, 1 / (1 + cells.first_rank / SHRINK_RANK), 0.0)
    present = cells.share * (1 - CATEGORIES[column].missing_frac)
    # the mean is taken away in proportion to the weights, so that it does not come back through the rare values
    raw = weight * (raw - (raw @ (present * weight) / (present @ weight))[:, None])
    return np.asarray(np.linalg.solve(np.linalg.cholesky((raw * present) @ raw.T), raw).T)


def _log_moments(dense: DenseTable) -> tuple[Floats, Floats]:
    """The mean and deviation of log(x+3) per integer column, over one fixed sample: they belong to no world."""
    logs = np.empty((NUM_DENSE, 1 << 16))
    _fill_logs(dense, logs)
    return logs.mean(axis=1), logs.std(axis=1)


@njit(inline="always")
def _uniform(word: np.uint64) -> float:
    return np.float64(word >> np.uint64(11)) * 2.0**-53


@njit(inline="always")
def _normal(word: np.uint64) -> float:
    """Four uniforms of 16 bits, added and standardised: near enough, and cheap."""
    lane = np.uint64(0xFFFF)
    total = (word & lane) + (word >> np.uint64(16) & lane) + (word >> np.uint64(32) & lane) + (word >> np.uint64(48))
    return (np.float64(total) - 2.0 * 65535.0) / (65536.0 / math.sqrt(3.0))


@njit(nogil=True, cache=True)
def _fill_normals(key: np.uint64, normals: Floats) -> None:
    for i in range(len(normals)):
        normals[i] = _normal(mix64(key + uint64(i)))


@njit(inline="always")
def _draw_number(word: np.uint64, dense: DenseTable, column: int) -> np.int64:
    """An integer, or ABSENT."""
    if _uniform(mix64(word)) < dense.missing_frac[column]:
        return ABSENT
    count = math.exp(dense.log_mean[column] + dense.log_spread[column] * _normal(word))
    return np.int64(min(math.floor(count) - dense.subtracted[column], np.float64(MAX_NUMBER)))


@njit(inline="always")
def _log_number(number: np.int64) -> float:
    return math.log(3.0 + (0.0 if number == ABSENT else np.float64(number)))


@njit(nogil=True, cache=True)
def _fill_logs(dense: DenseTable, logs: Floats) -> None:
    for column in range(logs.shape[0]):
        for i in range(logs.shape[1]):
            logs[column, i] = _log_number(_draw_number(mix64(uint64(i)), dense, column))


@njit(inline="always")
def _draw_cell(word: np.uint64, rule: PlantedRule, column: int) -> np.int64:
    """A cell of a category column: 16 bits say whether there is a value, 32 others which."""
    if uint32(word & np.uint64(0xFFFF)) < rule.missing[column]:
        return np.int64(0)
    product = (word >> np.uint64(32)) * rule.num_cells[column]
    cell = rule.first_cell[column] + np.int64(product >> np.uint64(32))
    # a branch would be guessed wrong so often that rows took twice as long
    kept = np.int64(uint32(product & np.uint64(0xFFFFFFFF)) < rule.threshold[cell])
    return np.int64(rule.alias[cell] + kept * (cell - rule.alias[cell]))


@njit(inline="always")
def _draw_rank(word: np.uint64, rule: PlantedRule, cell: np.int64) -> np.uint64:
    """A rank within the cell."""
    return np.uint64(rule.first_rank[cell] + ((mix64(word) >> np.uint64(32)) * rule.width[cell] >> np.uint64(32)))


@njit(nogil=True, cache=True)
def category_value(rank: np.uint64, salt: np.uint32) -> np.uint32:
    """The 32 bits that stand for a rank: a bijection, so that no two ranks of a column share a value."""
    x = uint32(rank) ^ uint32(salt)
    x = uint32((x ^ (x >> uint32(16))) * uint32(0x85EBCA6B))
    x = uint32((x ^ (x >> uint32(13))) * uint32(0xC2B2AE35))
    return uint32(x ^ (x >> uint32(16)))


@njit(inline="always")
def _draw_row(
    rule: PlantedRule, key: np.uint64, numbers: NDArray[np.int64], cells: NDArray[np.int64]
) -> tuple[float, float]:
    """Fill the integers and cells of a row; what its fields say alone and what its pairs say, in logits."""
    alone, pairs = 0.0, 0.0
    for j in range(NUM_DENSE):
        numbers[j] = _draw_number(mix64(key + uint64(_FIRST_DENSE + j)), rule.dense, j)
        t = (_log_number(numbers[j]) - rule.centre[j]) / rule.deviation[j]
        alone += rule.dense.weight[j] * t + rule.dense.square_weight[j] * (t * t - 1.0)
    for c in range(NUM_CATEGORIES):
        cells[c] = _draw_cell(mix64(key + uint64(_FIRST_CATEGORY + c)), rule, c)
        alone += rule.effect[cells[c]]
    for p in range(len(rule.pairs)):
        a, b = cells[rule.pairs[p, 0]], cells[rule.pairs[p, 1]]
        product = 0.0
        for k in range(LATENT_RANK):
            product += rule.latent[a, k] * rule.latent[b, k]
        pairs += rule.coefficient[p] * product
    return alone, pairs


@njit(nogil=True, cache=True)
def draw_logits(rule: PlantedRule, first_row: int, alone: Floats, pairs: Floats) -> None:
    """Fill in what the fields and the pairs of some rows say, in logits, without the bias."""
    numbers, cells = np.empty(NUM_DENSE, np.int64), np.empty(NUM_CATEGORIES, np.int64)
    for i in range(len(alone)):
        alone[i], pairs[i] = _draw_row(rule, mix64(rule.row_key + uint64(first_row + i)), numbers, cells)


@njit(inline="always")
def _write_number(buffer: NDArray[np.uint8], at: int, number: np.int64) -> int:
    """Decimal digits, or nothing for ABSENT; where they end."""
    if number == ABSENT:
        return at
    if number < 0:
        buffer[at] = _MINUS
        at += 1
    rest = uint32(abs(number))  # divided as an unsigned number, which is one multiplication
    end, power = at + 1, uint32(10)
    while rest >= power:
        end, power = end + 1, uint32(power * uint32(10))
    for i in range(end - 1, at - 1, -1):
        tenth = uint32(rest // uint32(10))
        buffer[i] = _ZERO + np.uint8(rest - tenth * uint32(10))
        rest = tenth
    return end


@njit(inline="always")
def _write_hex8(buffer: NDArray[np.uint8], at: int, value: np.uint32) -> int:
    """Eight lower-case digits; where they end."""
    for i in range(8):
        digit = np.uint8(value >> uint32(28 - 4 * i) & uint32(15))
        buffer[at + i] = digit + (_ZERO if digit < 10 else np.uint8(87))
    return at + 8


@njit(nogil=True, cache=True)
def write_rows(rule: PlantedRule, first_row: int, buffer: NDArray[np.uint8], truth: Truth) -> int:
    """Write as many rows as `truth` has room for, as text, with what is known of them; the number of bytes."""
    numbers, cells = np.empty(NUM_DENSE, np.int64), np.empty(NUM_CATEGORIES, np.int64)
    at = 0
    for i in range(len(truth.labels)):
        key = mix64(rule.row_key + uint64(first_row + i))
        alone, pairs = _draw_row(rule, key, numbers, cells)
        clicked = _uniform(mix64(key + uint64(_LABEL))) < 1.0 / (1.0 + math.exp(-(rule.bias + alone + pairs)))
        truth.labels[i], truth.alone[i], truth.pairs[i] = np.float32(clicked), alone, pairs
        buffer[at] = _ZERO + np.uint8(clicked)
        at += 1
        for j in range(NUM_DENSE):
            buffer[at] = _TAB
            at = _write_number(buffer, at + 1, numbers[j])
        for c in range(NUM_CATEGORIES):
            buffer[at] = _TAB
            at += 1
            if cells[c] > 0:
                rank = _draw_rank(mix64(key + uint64(_FIRST_CATEGORY + c)), rule, cells[c])
                at = _write_hex8(buffer, at, category_value(rank, rule.salts[c]))
        buffer[at] = _NEWLINE
        at += 1
    return at
