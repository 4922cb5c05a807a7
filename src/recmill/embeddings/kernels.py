"""Numba kernels of the local engine: first values, gather, and the update that follows a backward pass.

Kernels are built for one dimension and one optimizer, so that LLVM unrolls the loops over a row into vector
instructions; numba keeps the compiled code on disk. All are deterministic for any number of threads: a thread owns
whole tables, and within a table rows are summed and updated in the order of the batch.

Where a table has several slots, other kernels pool them; a model of single values pays nothing for it.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.rules import Rates, Rule, Storage, update_row
from recmill.jit import njit, prange, uint64
from recmill.seeds import mix64

# Legend: B rows of the batch, F tables, S slots of all tables, D dimension, R rows of all tables.


class Scratch(NamedTuple):
    """One thread's hash of a table's ids in a batch, cleared by raising the stamp; chains link equal ids."""

    stamp: NDArray[np.int64]  # the current stamp
    slot_stamp: NDArray[np.int64]
    slot_row: NDArray[np.int64]
    slot_head: NDArray[np.int32]
    slot_tail: NDArray[np.int32]
    next_same: NDArray[np.int32]  # (entries): the next place in the batch with the same id, or −1
    used_slots: NDArray[np.int32]  # (entries)


def empty_scratch(threads: int, num_entries: int) -> Scratch:
    """Room for so many ids of one table in a batch; the first axis is the thread."""
    num_slots = 1 << max(4, (2 * num_entries - 1).bit_length())
    return Scratch(
        np.zeros((threads, 1), np.int64),
        np.zeros((threads, num_slots), np.int64),
        np.empty((threads, num_slots), np.int64),
        np.empty((threads, num_slots), np.int32),
        np.empty((threads, num_slots), np.int32),
        np.empty((threads, num_entries), np.int32),
        np.empty((threads, num_entries), np.int32),
    )


@njit(nogil=True, parallel=True, cache=True)
def fill_uniform(weights: NDArray[np.float32], key: np.uint64, bound: float, first_row: int, first_column: int) -> None:
    """U(−bound, bound) in every place, from the key and the row and column of the whole table alone."""
    for row in prange(weights.shape[0]):
        for column in range(weights.shape[1]):
            place = uint64(first_row + row) << uint64(16) | uint64(first_column + column)
            word = mix64(uint64(key) ^ mix64(place))
            unit = np.float64(word >> uint64(40)) * 2.0**-24
            weights[row, column] = np.float32((2.0 * unit - 1.0) * bound)


Gather = Callable[[NDArray[np.int64], Storage, NDArray[np.float32]], None]


@cache
def pool_kernel(dim: int) -> Gather:
    """A kernel that sums, for each table, the rows of its slots in ids (B, S) into (B, F, D); −1 adds nothing."""

    @njit(nogil=True, parallel=True, cache=True)
    def pool(ids: NDArray[np.int64], storage: Storage, out_BFD: NDArray[np.float32]) -> None:
        for place in prange(ids.shape[0]):
            for table in range(out_BFD.shape[1]):
                for d in range(dim):
                    out_BFD[place, table, d] = np.float32(0)
                for slot in range(storage.first_slot[table], storage.first_slot[table + 1]):
                    if ids[place, slot] >= 0:
                        row = storage.first_row[table] + ids[place, slot]
                        for d in range(dim):
                            out_BFD[place, table, d] += storage.weights[row, d]

    return pool


@cache
def gather_kernel(dim: int) -> Gather:
    """A kernel that copies the rows of ids (B, F) into (B, F, D)."""

    @njit(nogil=True, parallel=True, cache=True)
    def gather(ids: NDArray[np.int64], storage: Storage, out_BFD: NDArray[np.float32]) -> None:
        for place in prange(ids.shape[0]):
            for table in range(ids.shape[1]):
                row = storage.first_row[table] + ids[place, table]
                for d in range(dim):
                    out_BFD[place, table, d] = storage.weights[row, d]

    return gather


@njit(inline="always")
def _chain(row: int, entry: int, scratch: Scratch, thread: int, num_used: int) -> int:
    """Link one more entry to those of the same row; how many distinct rows there are now."""
    stamp, mask = scratch.stamp[thread, 0], uint64(scratch.slot_row.shape[1] - 1)
    slot = np.int64((uint64(row) * uint64(0x9E3779B97F4A7C15) >> uint64(32)) & mask)
    while scratch.slot_stamp[thread, slot] == stamp and scratch.slot_row[thread, slot] != row:
        slot = np.int64(uint64(slot + 1) & mask)
    if scratch.slot_stamp[thread, slot] == stamp:
        scratch.next_same[thread, scratch.slot_tail[thread, slot]] = entry
    else:
        scratch.slot_stamp[thread, slot] = stamp
        scratch.slot_row[thread, slot] = row
        scratch.slot_head[thread, slot] = entry
        scratch.used_slots[thread, num_used] = slot
        num_used += 1
    scratch.slot_tail[thread, slot] = entry
    scratch.next_same[thread, entry] = -1
    return num_used


@njit(nogil=True, cache=True)
def _chain_equal_ids(ids: NDArray[np.int64], table: int, scratch: Scratch, thread: int) -> int:
    """Link the places of each distinct id in batch order; how many distinct ids there are."""
    scratch.stamp[thread, 0] += 1
    num_used = 0
    for place in range(ids.shape[0]):
        num_used = _chain(ids[place, table], place, scratch, thread, num_used)
    return num_used


@njit(nogil=True, cache=True)
def _chain_equal_ids_of_slots(ids: NDArray[np.int64], first: int, width: int, scratch: Scratch, thread: int) -> int:
    """The same for `width` slots: entry i belongs to row i // width of the batch."""
    scratch.stamp[thread, 0] += 1
    num_used = 0
    for place in range(ids.shape[0]):
        for slot in range(width):
            if ids[place, first + slot] >= 0:
                num_used = _chain(ids[place, first + slot], place * width + slot, scratch, thread, num_used)
    return num_used


@cache
def update_kernel(dim: int, rule: Rule, *, pooled: bool) -> Callable[..., None]:
    """A kernel that sums the gradients (B, F, D) of equal ids and applies the optimizer to each row once."""
    move_row, has_decay = update_row(rule, dim), rule.has_decay

    @njit(nogil=True, error_model="numpy")
    def update_table(
        ids: NDArray[np.int64],
        gradient_BFD: NDArray[np.float32],
        table: int,
        storage: Storage,
        scratch: Scratch,
        thread: int,
        rates: Rates,
    ) -> None:
        total = np.empty(dim, np.float32)
        width = storage.first_slot[table + 1] - storage.first_slot[table]
        if pooled:
            num_used = _chain_equal_ids_of_slots(ids, storage.first_slot[table], width, scratch, thread)
        else:
            num_used = _chain_equal_ids(ids, table, scratch, thread)
        for used in range(num_used):
            slot = scratch.used_slots[thread, used]
            entry = np.int64(scratch.slot_head[thread, slot])
            place = entry // width if pooled else entry
            for d in range(dim):
                total[d] = gradient_BFD[place, table, d]
            entry = np.int64(scratch.next_same[thread, entry])
            while entry >= 0:
                place = entry // width if pooled else entry
                for d in range(dim):
                    total[d] += gradient_BFD[place, table, d]
                entry = np.int64(scratch.next_same[thread, entry])
            row = storage.first_row[table] + scratch.slot_row[thread, slot]
            if has_decay:
                for d in range(dim):
                    total[d] += rates.weight_decay * storage.weights[row, d]
            move_row(storage, row, total, rates)

    @njit(nogil=True, parallel=True, cache=True)
    def update(
        ids: NDArray[np.int64], gradient_BFD: NDArray[np.float32], storage: Storage, scratch: Scratch, rates: Rates
    ) -> None:
        threads = scratch.stamp.shape[0]
        for thread in prange(threads):
            for table in range(thread, gradient_BFD.shape[1], threads):
                update_table(ids, gradient_BFD, table, storage, scratch, thread, rates)

    return update
