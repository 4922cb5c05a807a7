"""Numba kernels of the cross layers, forward and backward: a few rows at a time, which stay in the cache.

Layer by layer over the whole batch, as torch has it, each product waits for memory and for the other threads, and
between the products stand passes over the batch. Here a thread takes its rows through all layers by itself. The loops
over columns are short ones: LLVM makes no vectors of one that touches more than a handful of arrays.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit, prange
from recmill.models.parts.deal import take_next
from recmill.models.parts.tile import TILE_COLUMNS, TILE_ROWS, multiply_tile

# Legend: B rows of the batch, D and E widths of the two inputs, N = D + E, R rank, L layers, K terms of a product,
# P panels: what is multiplied with lies in panels of as many columns as a tile has.

BLOCK_ROWS = 32  # whole tiles of rows that go through all layers before the next ones


class Ways(NamedTuple):
    """The matrices of all layers in panels, and the biases."""

    down: NDArray[np.float32]  # (L, P, N, tile) from N to R columns
    up: NDArray[np.float32]  # (L, P, R, tile) from R to N columns
    bias: NDArray[np.float32]  # (L, N)


class Kept(NamedTuple):
    """What the way back needs of the way forth."""

    states: NDArray[np.float32]  # (L, B, N) what each layer is given: the first is the inputs side by side
    lows: NDArray[np.float32]  # (L, B, R)
    factors: NDArray[np.float32]  # (L, B, N) what each layer multiplies the inputs with


class Moved(NamedTuple):
    """Gradients of what lies between the layers, and of the inputs."""

    factors: NDArray[np.float32]  # (L, B, N)
    lows: NDArray[np.float32]  # (L, B, R)
    bias: NDArray[np.float32]  # (blocks, L, N) to be added up
    dense: NDArray[np.float32]  # (B, D)
    emb: NDArray[np.float32]  # (B, E)


@njit(nogil=True, parallel=True, cache=True)
def lay_in_panels(matrices: NDArray[np.float32], panels: NDArray[np.float32]) -> None:
    """(L, K, columns) → (L, P, K, tile), with zeros where there is no column."""
    num_layers, num_panels, num_terms, _ = panels.shape
    num_columns = matrices.shape[2]
    for place in prange(num_layers * num_panels):
        layer, panel = place // num_panels, place % num_panels
        first = panel * TILE_COLUMNS
        for term in range(num_terms):
            for i in range(TILE_COLUMNS):
                inside = first + i < num_columns
                panels[layer, panel, term, i] = matrices[layer, term, first + i] if inside else np.float32(0)


@njit(nogil=True, cache=True)
def multiply_block(a: Any, panels: Any, out: Any) -> None:
    """(block, at least K) · (P, K, tile) → (block, P · tile)."""
    for panel in range(len(panels)):
        for i in range(0, len(a), TILE_ROWS):
            multiply_tile(a, i, panels[panel], 0, out, panel * TILE_COLUMNS)


class CrossScratch(NamedTuple):
    """A thread's own rows on their way."""

    state: NDArray[np.float32]  # (block, N or more)
    factor: NDArray[np.float32]  # (block, N or more)
    first: NDArray[np.float32]  # (block, N or more)
    low: NDArray[np.float32]  # (block, R or more)


@njit(nogil=True, cache=True)
def build_scratch(ways: Any) -> Any:
    """As wide as the panels that fill it."""
    width, rank = ways.up.shape[1] * TILE_COLUMNS, ways.down.shape[1] * TILE_COLUMNS
    rows = np.zeros((3, BLOCK_ROWS, width), np.float32)
    return CrossScratch(rows[0], rows[1], rows[2], np.zeros((BLOCK_ROWS, rank), np.float32))


@njit(nogil=True, cache=True)
def cross_block(start: int, inputs: Any, ways: Any, scratch: Any, kept: Any, out_BN: Any) -> None:
    """The rows from `start` on through all layers."""
    (dense_BD, emb_BE), (state, factor, first, low) = inputs, scratch
    num_layers, num_rows, width = kept.states.shape
    rank, dim = kept.lows.shape[2], dense_BD.shape[1]
    count = min(BLOCK_ROWS, num_rows - start)
    for i in range(count):
        for j in range(dim):
            first[i, j] = dense_BD[start + i, j]
        for j in range(width - dim):
            first[i, dim + j] = emb_BE[start + i, j]
        for j in range(width):
            state[i, j] = first[i, j]
            kept.states[0, start + i, j] = first[i, j]
    for layer in range(num_layers):
        multiply_block(state, ways.down[layer], low)
        multiply_block(low, ways.up[layer], factor)
        target = kept.states[layer + 1] if layer + 1 < num_layers else out_BN
        for i in range(count):
            for j in range(rank):
                kept.lows[layer, start + i, j] = low[i, j]
            for j in range(width):
                factor[i, j] += ways.bias[layer, j]
                kept.factors[layer, start + i, j] = factor[i, j]
            for j in range(width):
                state[i, j] += first[i, j] * factor[i, j]
                target[start + i, j] = state[i, j]


@njit(nogil=True, cache=True)
def cross_block_back(block: int, gradient_BN: Any, ways: Any, scratch: Any, kept: Any, moved: Any) -> None:
    """The rows of a block through all layers, from the last to the first."""
    state, factor, first, low = scratch
    num_layers, num_rows, width = kept.states.shape
    rank, dim, start = kept.lows.shape[2], moved.dense.shape[1], block * BLOCK_ROWS
    count = min(BLOCK_ROWS, num_rows - start)
    for i in range(count):
        for j in range(width):
            state[i, j] = gradient_BN[start + i, j]
            first[i, j] = np.float32(0)
    for layer in range(num_layers - 1, -1, -1):
        for j in range(width):
            moved.bias[block, layer, j] = np.float32(0)
        for i in range(count):
            for j in range(width):
                first[i, j] += state[i, j] * kept.factors[layer, start + i, j]
            for j in range(width):
                factor[i, j] = state[i, j] * kept.states[0, start + i, j]
                moved.factors[layer, start + i, j] = factor[i, j]
            for j in range(width):
                moved.bias[block, layer, j] += factor[i, j]
        multiply_block(factor, ways.down[layer], low)
        multiply_block(low, ways.up[layer], factor)
        for i in range(count):
            for j in range(rank):
                moved.lows[layer, start + i, j] = low[i, j]
            for j in range(width):
                state[i, j] += factor[i, j]
    for i in range(count):
        for j in range(dim):
            moved.dense[start + i, j] = state[i, j] + first[i, j]
        for j in range(width - dim):
            moved.emb[start + i, j] = state[i, dim + j] + first[i, dim + j]


@njit(nogil=True, parallel=True, cache=True)
def cross_rows(inputs: Any, ways: Ways, threads: int, kept: Kept, out_BN: NDArray[np.float32]) -> None:
    """All layers, one behind the other."""
    num_blocks = (len(out_BN) + BLOCK_ROWS - 1) // BLOCK_ROWS
    blocks_taken = np.zeros(1, np.int64)
    for _thread in prange(threads):
        scratch = build_scratch(ways)
        block = take_next(blocks_taken)
        while block < num_blocks:
            cross_block(block * BLOCK_ROWS, inputs, ways, scratch, kept, out_BN)
            block = take_next(blocks_taken)


@njit(nogil=True, parallel=True, cache=True)
def cross_rows_back(gradient_BN: NDArray[np.float32], ways: Ways, threads: int, kept: Kept, moved: Moved) -> None:
    """The layers from the last to the first; `ways` are the transposed ones."""
    num_blocks = len(moved.bias)
    blocks_taken = np.zeros(1, np.int64)
    for _thread in prange(threads):
        scratch = build_scratch(ways)
        block = take_next(blocks_taken)
        while block < num_blocks:
            cross_block_back(block, gradient_BN, ways, scratch, kept, moved)
            block = take_next(blocks_taken)
