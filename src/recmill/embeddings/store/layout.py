"""How rows lie in files: records of one size in blocks, each with a checksum of its own.

A record is a row's weights and what the optimizer keeps for it, as float32. None straddles two blocks, so that one
read brings a row. A block's checksum also covers where the block belongs, so that one in a wrong place is noticed.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit, uint64

PAGE_BYTES = 4096  # direct reads and writes are of whole ones
CHECKSUM_BYTES = 8
_LEAST_USED_FRAC = 0.85  # of a block, if blocks of up to four pages can do that
_MOST_PAGES = 4
_FLOAT_BYTES = 4
_PRIME_1, _PRIME_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F  # of xxHash


@dataclass(frozen=True)
class RecordLayout:
    """The sizes of records and blocks for rows of so many weights and so many numbers of the optimizer."""

    dim: int
    state_width: int

    @cached_property
    def num_floats(self) -> int:
        """Of a record."""
        return self.dim + self.state_width

    @cached_property
    def record_bytes(self) -> int:
        """Of a record."""
        return self.num_floats * _FLOAT_BYTES

    @cached_property
    def block_bytes(self) -> int:
        """Whole pages: the fewest that hold a record, or a few more if one page would be left half empty."""
        least = -(-(self.record_bytes + CHECKSUM_BYTES) // PAGE_BYTES)
        candidates = [pages * PAGE_BYTES for pages in range(least, max(least, _MOST_PAGES) + 1)]
        return next((size for size in candidates if self._used_frac(size) >= _LEAST_USED_FRAC), candidates[0])

    @cached_property
    def per_block(self) -> int:
        """How many records a block holds."""
        return (self.block_bytes - CHECKSUM_BYTES) // self.record_bytes

    def _used_frac(self, block_bytes: int) -> float:
        return (block_bytes - CHECKSUM_BYTES) // self.record_bytes * self.record_bytes / block_bytes

    def num_blocks(self, num_records: int) -> int:
        """How many blocks so many records fill, the last one perhaps in part."""
        return -(-num_records // self.per_block)


class Arena(NamedTuple):
    """Rows in memory, by slots."""

    weights: NDArray[np.float32]  # (slots, D)
    state: NDArray[np.float32]  # (slots, state width)


def empty_arena(num_slots: int, layout: RecordLayout) -> Arena:
    """Room for so many rows; memory is taken when they come."""
    return Arena(np.empty((num_slots, layout.dim), np.float32), np.empty((num_slots, layout.state_width), np.float32))


@njit(inline="always")
def _rotated(word: np.uint64) -> np.uint64:
    return uint64(word << uint64(31) | word >> uint64(33))


@njit(nogil=True)
def block_checksum(words: NDArray[np.uint64], place_key: np.uint64) -> np.uint64:
    """Of a block's words but the last, and of where it belongs."""
    a, b = uint64(place_key), uint64(place_key) ^ uint64(_PRIME_1)
    c, d = uint64(place_key) ^ uint64(_PRIME_2), ~uint64(place_key)
    last = len(words) - 1
    for i in range(0, last - 3, 4):
        a = _rotated(a ^ words[i] * uint64(_PRIME_2)) * uint64(_PRIME_1)
        b = _rotated(b ^ words[i + 1] * uint64(_PRIME_2)) * uint64(_PRIME_1)
        c = _rotated(c ^ words[i + 2] * uint64(_PRIME_2)) * uint64(_PRIME_1)
        d = _rotated(d ^ words[i + 3] * uint64(_PRIME_2)) * uint64(_PRIME_1)
    for i in range(last - last % 4, last):
        a = _rotated(a ^ words[i] * uint64(_PRIME_2)) * uint64(_PRIME_1)
    return _rotated(a) ^ _rotated(b ^ _rotated(c)) * uint64(_PRIME_2) ^ _rotated(d) * uint64(_PRIME_1)


@njit(inline="always")
def place_key(store_key: np.uint64, number: int, block: int) -> np.uint64:
    """What stands for the place of a block: its store, its segment and its number in there."""
    key = (uint64(store_key) ^ uint64(number)) * uint64(_PRIME_1)
    return (_rotated(key) ^ uint64(block)) * uint64(_PRIME_2)


@njit(nogil=True, cache=True)
def seal_blocks(blocks: NDArray[np.uint64], store_key: np.uint64, number: int, first_block: int) -> None:
    """Put the checksum of each block (blocks, words) into its last word."""
    for i in range(len(blocks)):
        blocks[i, -1] = block_checksum(blocks[i], place_key(store_key, number, first_block + i))


@njit(nogil=True, cache=True)
def find_damaged(
    blocks: NDArray[np.uint64],
    store_key: np.uint64,
    numbers: NDArray[np.int64],
    block_numbers: NDArray[np.int64],
) -> int:
    """The first block that is not what its checksum says, of blocks from these segments and places; or −1."""
    for i in range(len(numbers)):
        if blocks[i, -1] != block_checksum(blocks[i], place_key(store_key, numbers[i], block_numbers[i])):
            return i
    return -1


@njit(nogil=True, cache=True)
def pack_records(
    arena: Arena,
    slots: NDArray[np.int64],
    blocks: NDArray[np.float32],
    per_block: int,
    first_record: int,
) -> None:
    """Copy the rows of these slots into blocks (blocks, floats), from a record on."""
    dim, state_width = arena.weights.shape[1], arena.state.shape[1]
    for i in range(len(slots)):
        block, record = divmod(first_record + i, per_block)
        start, slot = record * (dim + state_width), slots[i]
        for d in range(dim):
            blocks[block, start + d] = arena.weights[slot, d]
        for s in range(state_width):
            blocks[block, start + dim + s] = arena.state[slot, s]


@njit(nogil=True, cache=True)
def unpack_records(
    blocks: NDArray[np.float32],
    block_of: NDArray[np.int64],
    record_of: NDArray[np.int64],
    arena: Arena,
    slots: NDArray[np.int64],
) -> None:
    """Copy records, each of a block and a place in it, into these slots."""
    dim, state_width = arena.weights.shape[1], arena.state.shape[1]
    for i in range(len(slots)):
        start, slot, block = record_of[i] * (dim + state_width), slots[i], block_of[i]
        for d in range(dim):
            arena.weights[slot, d] = blocks[block, start + d]
        for s in range(state_width):
            arena.state[slot, s] = blocks[block, start + dim + s]
