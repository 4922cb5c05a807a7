"""Numba kernels of the dot products between a row's vectors, forward and backward, without a matrix per row in memory.

Per row of the batch they are one small matrix product, X·Xᵀ forward and G·X backward, in tiles that stay in registers.
`torch.bmm` takes twice as long for matrices of this size, and the copies around it as long again. Kernels are built for
one dimension, so that LLVM unrolls the loops over a vector.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit, prange
from recmill.models.parts.tile import TILE_COLUMNS, TILE_ROWS, multiply_tile

# Legend: B rows of the batch, F categories, N vectors per row, D dimension, P pairs.


def round_up(number: int, multiple: int) -> int:
    """The next multiple, or the number if it is one."""
    return -(-number // multiple) * multiple


class Pairs(NamedTuple):
    """Which products are wanted, as places in flattened matrices that are whole tiles large."""

    places: NDArray[np.int64]  # (P) in X·Xᵀ
    weights: NDArray[np.int64]  # (P) in G
    mirrors: NDArray[np.int64]  # (P) across the diagonal of G


def choose_pairs(first_P: NDArray[np.int64], second_P: NDArray[np.int64], num_vectors: int) -> Pairs:
    """Pairs in the order in which their products are to stand."""
    low_P, high_P = np.minimum(first_P, second_P), np.maximum(first_P, second_P)  # on or above the diagonal
    height, width = round_up(num_vectors, TILE_ROWS), round_up(num_vectors, TILE_COLUMNS)
    return Pairs(low_P * width + high_P, low_P * height + high_P, high_P * height + low_P)


def _vector_loader(dim: int, num_vectors: int) -> Any:
    """What copies a row's vectors side by side, the dense one first."""

    @njit(inline="always")
    def load_vectors(dense_BD: Any, emb_BFD: Any, row: int, vectors: Any) -> None:
        for d in range(dim):
            vectors[0, d] = dense_BD[row, d]
        for i in range(1, num_vectors):
            for d in range(dim):
                vectors[i, d] = emb_BFD[row, i - 1, d]

    return load_vectors


@cache
def product_kernel(dim: int, num_vectors: int) -> Callable[..., None]:
    """A kernel that writes, into (B, at least D + P), the dense vector, the products of the pairs, and zeros."""
    load_vectors = _vector_loader(dim, num_vectors)
    height, width = round_up(num_vectors, TILE_ROWS), round_up(num_vectors, TILE_COLUMNS)

    @njit(nogil=True, parallel=True, cache=True)
    def multiply(
        dense_BD: NDArray[np.float32],
        emb_BFD: NDArray[np.float32],
        pairs: Pairs,
        threads: int,
        out: NDArray[np.float32],
    ) -> None:
        num_rows, num_pairs = len(dense_BD), len(pairs.places)
        for thread in prange(threads):
            vectors, transposed = np.zeros((height, dim), np.float32), np.zeros((dim, width), np.float32)
            products = np.empty((height, width), np.float32)
            flat = products.reshape(-1)
            for row in range(num_rows * thread // threads, num_rows * (thread + 1) // threads):
                load_vectors(dense_BD, emb_BFD, row, vectors)
                for i in range(num_vectors):
                    for d in range(dim):
                        transposed[d, i] = vectors[i, d]
                for i in range(0, height, TILE_ROWS):
                    for j in range(i // TILE_COLUMNS * TILE_COLUMNS, width, TILE_COLUMNS):
                        multiply_tile(vectors, i, transposed, j, products, j)  # none below the diagonal
                for d in range(dim):
                    out[row, d] = dense_BD[row, d]
                for pair in range(num_pairs):
                    out[row, dim + pair] = flat[pairs.places[pair]]
                for place in range(dim + num_pairs, out.shape[1]):
                    out[row, place] = np.float32(0)

    return multiply


@cache
def gradient_kernel(dim: int, num_vectors: int) -> Callable[..., None]:
    """A kernel that writes the gradients of dense (B, D) and embeddings (B, F, D), given that of the products."""
    load_vectors = _vector_loader(dim, num_vectors)
    height, width = round_up(num_vectors, TILE_ROWS), round_up(dim, TILE_COLUMNS)

    @njit(nogil=True, parallel=True, cache=True)
    def multiply_back(
        gradient: NDArray[np.float32],
        vectors_in: tuple[NDArray[np.float32], NDArray[np.float32]],
        pairs: Pairs,
        threads: int,
        gradients_out: tuple[NDArray[np.float32], NDArray[np.float32]],
    ) -> None:
        (dense_BD, emb_BFD), (dense_out_BD, emb_out_BFD) = vectors_in, gradients_out
        num_rows, num_pairs = len(dense_BD), len(pairs.weights)
        for thread in prange(threads):
            vectors, moved = np.zeros((height, width), np.float32), np.empty((height, width), np.float32)
            weights = np.zeros((height, height), np.float32)
            flat = weights.reshape(-1)
            for row in range(num_rows * thread // threads, num_rows * (thread + 1) // threads):
                load_vectors(dense_BD, emb_BFD, row, vectors)
                for pair in range(num_pairs):
                    weight, mirror = gradient[row, dim + pair], pairs.mirrors[pair]
                    flat[mirror] = weight
                    flat[pairs.weights[pair]] = weight + weight if mirror == pairs.weights[pair] else weight
                for i in range(0, height, TILE_ROWS):
                    for j in range(0, width, TILE_COLUMNS):
                        multiply_tile(weights, i, vectors, j, moved, j)
                for d in range(dim):
                    dense_out_BD[row, d] = moved[0, d] + gradient[row, d]
                for i in range(1, num_vectors):
                    for d in range(dim):
                        emb_out_BFD[row, i - 1, d] = moved[i, d]

    return multiply_back
