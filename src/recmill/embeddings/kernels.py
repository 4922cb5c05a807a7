"""Numba kernels of the local engine: first values, gather, and the update that follows a backward pass.

Kernels are built for one dimension and one optimizer, so that LLVM unrolls the loops over a row into vector
instructions; numba keeps the compiled code on disk. All are deterministic for any number of threads: a thread owns
whole tables, and within a table rows are summed and updated in the order of the batch.

Where a table has several slots, another kernel gathers and pools them; a model of single values pays nothing for it.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.rules import Rule, Storage, UpdateNumbers, update_row
from recmill.embeddings.stack import row_on_stack
from recmill.jit import njit, prange, uint64
from recmill.seeds import mix64

# Legend: B rows of the batch, F tables, S slots of all tables, D dimension, R rows of all tables.


class TableScratch(NamedTuple):
    """One thread's hash of a table's ids in a batch, and the sums of their gradients; the first axis is the thread."""

    stamp: NDArray[np.int64]  # the current one: slots with another are free, so that raising it clears the hash
    slots: NDArray[np.int64]  # (slots, 3): a stamp, an id, and its place among the distinct ones
    distinct: NDArray[np.int64]  # (entries) in the order in which the batch names them
    sums: NDArray[np.float32]  # (entries, D)


def empty_scratch(threads: int, num_entries: int, dim: int) -> TableScratch:
    """Room for so many ids of one table in a batch."""
    num_slots = 1 << max(4, (2 * num_entries - 1).bit_length())
    return TableScratch(
        np.zeros(threads, np.int64),
        np.zeros((threads, num_slots, 3), np.int64),
        np.empty((threads, num_entries), np.int64),
        np.empty((threads, num_entries, dim), np.float32),
    )


@njit(inline="always")
def first_value(key: np.uint64, row: int, column: int, bound: float) -> np.float32:
    """U(−bound, bound), from the key and the row and column of the whole table alone."""
    place = uint64(row) << uint64(16) | uint64(column)
    word = mix64(uint64(key) ^ mix64(place))
    unit = np.float64(word >> uint64(40)) * 2.0**-24
    return np.float32((2.0 * unit - 1.0) * bound)


@njit(nogil=True, parallel=True, cache=True)
def fill_uniform(weights: NDArray[np.float32], key: np.uint64, bound: float, first_row: int, first_column: int) -> None:
    """The first values of all places of a part of a table."""
    for row in prange(weights.shape[0]):
        for column in range(weights.shape[1]):
            weights[row, column] = first_value(uint64(key), first_row + row, first_column + column, bound)


Gather = Callable[[NDArray[np.int64], Storage, NDArray[np.float32]], None]


@cache
def pool_kernel(dim: int) -> Gather:
    """A kernel that sums, for each table, the rows of its slots in ids (B, S) into (B, F, D); −1 adds nothing."""

    @njit(nogil=True, parallel=True, cache=True)
    def pool(ids: NDArray[np.int64], storage: Storage, out_BFD: NDArray[np.float32]) -> None:
        for place in prange(ids.shape[0]):
            total = row_on_stack(dim)
            for table in range(out_BFD.shape[1]):
                for d in range(dim):
                    total[d] = np.float32(0)
                for slot in range(storage.first_slot[table], storage.first_slot[table + 1]):
                    if ids[place, slot] >= 0:
                        row = storage.first_row[table] + ids[place, slot]
                        for d in range(dim):
                            total[d] += storage.weights[row, d]
                for d in range(dim):
                    out_BFD[place, table, d] = total[d]

    return pool


@cache
def gather_kernel(dim: int) -> Gather:
    """A kernel that copies the rows of ids (B, F) into (B, F, D)."""

    @njit(nogil=True, parallel=True, cache=True)
    def gather(ids: NDArray[np.int64], storage: Storage, out_BFD: NDArray[np.float32]) -> None:
        for place in prange(ids.shape[0]):
            copied = row_on_stack(dim)
            for table in range(ids.shape[1]):
                row = storage.first_row[table] + ids[place, table]
                for d in range(dim):
                    copied[d] = storage.weights[row, d]
                for d in range(dim):
                    out_BFD[place, table, d] = copied[d]

    return gather


@njit(inline="always")
def _place_of(id_: int, stamp: int, slots: NDArray[np.int64], next_place: int) -> int:
    """The place of an id among the distinct ones: the next, if it is not among them yet."""
    mask = uint64(len(slots) - 1)
    slot = np.int64((uint64(id_) * uint64(0x9E3779B97F4A7C15) >> uint64(32)) & mask)
    while slots[slot, 0] == stamp and slots[slot, 1] != id_:
        slot = np.int64(uint64(slot + 1) & mask)
    if slots[slot, 0] != stamp:
        slots[slot, 0], slots[slot, 1], slots[slot, 2] = stamp, id_, next_place
    return slots[slot, 2]


@cache
def sum_kernel(dim: int) -> Any:
    """A kernel that adds up, in batch order, the gradients (B, F, D) of each distinct id in a table's slots."""

    @njit(nogil=True)
    def sum_equal_ids(
        ids: NDArray[np.int64],
        gradient_BFD: NDArray[np.float32],
        table: int,
        slots: Any,
        scratch: TableScratch,
        thread: int,
    ) -> int:
        scratch.stamp[thread] += 1
        stamp, seen = scratch.stamp[thread], scratch.slots[thread]
        distinct, sums = scratch.distinct[thread], scratch.sums[thread]
        num_distinct, total = 0, row_on_stack(dim)
        for row in range(ids.shape[0]):
            for slot in range(slots[0], slots[1]):
                id_ = ids[row, slot]
                if id_ < 0:
                    continue
                place = _place_of(id_, stamp, seen, num_distinct)
                if place < num_distinct:
                    for d in range(dim):
                        total[d] = sums[place, d] + gradient_BFD[row, table, d]
                else:
                    distinct[place] = id_
                    num_distinct += 1
                    for d in range(dim):
                        total[d] = gradient_BFD[row, table, d]
                for d in range(dim):
                    sums[place, d] = total[d]
        return num_distinct

    return sum_equal_ids


@cache
def update_kernel(dim: int, rule: Rule) -> Callable[..., None]:
    """A kernel that sums the gradients (B, F, D) of equal ids and applies the optimizer to each row once."""
    sum_equal_ids, move_row = sum_kernel(dim), update_row(rule, dim)
    has_decay, state_width = rule.has_decay, rule.state_width

    @njit(nogil=True, error_model="numpy")
    def move_rows(
        first_row: int, num_rows: int, storage: Storage, scratch: TableScratch, thread: int, rates: UpdateNumbers
    ) -> None:
        weights, state, gradient = row_on_stack(dim), row_on_stack(state_width), row_on_stack(dim)
        for place in range(num_rows):
            row = first_row + scratch.distinct[thread, place]
            for d in range(dim):
                weights[d] = storage.weights[row, d]
                gradient[d] = scratch.sums[thread, place, d]
            for i in range(state_width):
                state[i] = storage.state[row, i]
            if has_decay:
                for d in range(dim):
                    gradient[d] += rates.weight_decay * weights[d]
            move_row(weights, state, gradient, rates)
            for d in range(dim):
                storage.weights[row, d] = weights[d]
            for i in range(state_width):
                storage.state[row, i] = state[i]

    @njit(nogil=True, parallel=True, cache=True)
    def update(
        ids: NDArray[np.int64],
        gradient_BFD: NDArray[np.float32],
        storage: Storage,
        scratch: TableScratch,
        rates: UpdateNumbers,
    ) -> None:
        threads = len(scratch.stamp)
        for thread in prange(threads):
            for table in range(thread, gradient_BFD.shape[1], threads):
                slots = storage.first_slot[table : table + 2]
                num_rows = sum_equal_ids(ids, gradient_BFD, table, slots, scratch, thread)
                move_rows(storage.first_row[table], num_rows, storage, scratch, thread, rates)

    return update
