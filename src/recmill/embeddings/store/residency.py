"""Which rows are in memory, where, and which of them leave first: kernels over plain arrays.

The batches to come are known. A row that one of them uses stays; of all others, the one leaves that was used least,
uses long ago counting little. That beats the least recently used one by a third, and comes close to what could be done
if the whole future were known.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.jit import njit, prange

NEVER = -1  # of a row: it has never been changed, and has its first value
_FIRST_PLACE = -2  # of a row that is not in memory: this minus its place
NO_PLACE = -1  # of a slot: what it holds is nowhere else
FREE = -1  # of a slot: no row
MISSING = -2  # of an entry of a batch: its row has no slot yet
_SOON = 1e30  # above all numbers of uses
_OFTEN_USED = 1e45


class Numbering(NamedTuple):
    """How rows of all tables are counted: those of the first table come first."""

    first_row: NDArray[np.int64]  # (F + 1)
    first_slot: NDArray[np.int64]  # (F + 1) the columns of ids that belong to a table
    table_of: NDArray[np.int64]  # (S) the table that a column of ids belongs to


class Residency(NamedTuple):
    """Where rows (R) are, what is known of their uses, and what is in the slots (C) of the cache."""

    where: NDArray[np.int64]  # (R) the slot, or NEVER, or what `outside` makes of a place
    latest_use: NDArray[np.int32]  # (R) the last batch known to use it
    heat: NDArray[np.float32]  # (R) uses, newer ones counting more
    slot_row: NDArray[np.int64]  # (C)
    slot_place: NDArray[np.int64]  # (C) where the same numbers lie outside of the cache
    slot_step: NDArray[np.int64]  # (C) the step of its last change
    slot_needed: NDArray[np.int32]  # (C) the last batch that it has to stay for
    slot_dirty: NDArray[np.bool_]  # (C) changed since it was read


def empty_residency(num_rows: int, num_slots: int) -> Residency:
    """No row has been seen, no slot is taken."""
    return Residency(
        np.full(num_rows, NEVER, np.int64),
        np.full(num_rows, -1, np.int32),
        np.zeros(num_rows, np.float32),
        np.full(num_slots, FREE, np.int64),
        np.full(num_slots, NO_PLACE, np.int64),
        np.zeros(num_slots, np.int64),
        np.full(num_slots, -1, np.int32),
        np.zeros(num_slots, np.bool_),
    )


BYTES_PER_ROW = 16
BYTES_PER_SLOT = 29


def outside(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """What `where` says of rows at these places outside of the cache; and the places, of what it says."""
    return _FIRST_PLACE - places


@njit(inline="always")
def _outside(place: int) -> int:
    return _FIRST_PLACE - place


@njit(nogil=True, parallel=True, cache=True)
def announce(
    ids: NDArray[np.int64], numbering: Numbering, number: int, settled: int, gain: float, residency: Residency
) -> int:
    """A batch will come: note its rows (B, S); how many of them no batch behind the settled ones was known to use.

    Threads share out the tables, so that no two of them look at one row.
    """
    num_new = 0
    # by names of their own: numba 0.68 loses what a parallel loop writes into an array of a tuple that it also reads
    latest_use, heat = residency.latest_use, residency.heat
    for table in prange(len(numbering.first_slot) - 1):
        for i in range(ids.shape[0]):
            for column in range(numbering.first_slot[table], numbering.first_slot[table + 1]):
                if ids[i, column] < 0:
                    continue
                row = numbering.first_row[table] + ids[i, column]
                if latest_use[row] != number:
                    num_new += latest_use[row] <= settled
                    latest_use[row] = number
                    heat[row] += gain
    return num_new


@njit(nogil=True, parallel=True, cache=True)
def find_slots(
    ids: NDArray[np.int64],
    numbering: Numbering,
    number: int,
    residency: Residency,
    slots: NDArray[np.int64],
    distinct: NDArray[np.int64],
) -> int:
    """The slots (B, S) of a batch's rows, which have to stay for it; MISSING of rows that have none, −1 without an id.

    `distinct` counts the rows of each table. Returns how many of these rows no later batch is known to use.
    """
    num_last_uses = 0
    where, latest_use, slot_needed = residency.where, residency.latest_use, residency.slot_needed
    for table in prange(len(numbering.first_slot) - 1):
        for i in range(ids.shape[0]):
            for column in range(numbering.first_slot[table], numbering.first_slot[table + 1]):
                slots[i, column] = -1
                if ids[i, column] < 0:
                    continue
                row = numbering.first_row[table] + ids[i, column]
                slot = where[row]
                if slot < 0:
                    slots[i, column] = MISSING
                    continue
                slots[i, column] = slot
                if slot_needed[slot] != number:
                    slot_needed[slot] = number
                    distinct[table] += 1
                    num_last_uses += latest_use[row] <= number
    return num_last_uses


class SlotProgress(NamedTuple):
    """How far the missing rows of a batch have been given slots."""

    number: int  # of the batch
    entry: int  # of the batch, counted through
    num_free: int
    num_missing: int
    num_last_uses: int


@njit(nogil=True, cache=True)
def give_slots(
    ids: NDArray[np.int64],
    numbering: Numbering,
    residency: Residency,
    slots: NDArray[np.int64],
    free: NDArray[np.int64],
    missing: NDArray[np.int64],
    progress: SlotProgress,
) -> SlotProgress:
    """Give a slot to every row of a batch (B, S) that has none, until there is no free one left.

    These rows are noted as (slot, row, what `where` said, table): their numbers have to be brought.
    """
    number, entry, num_free, num_missing, num_last_uses = progress
    width = ids.shape[1]
    while entry < ids.shape[0] * width:
        i, column = divmod(entry, width)
        if slots[i, column] == MISSING:
            table = numbering.table_of[column]
            row = numbering.first_row[table] + ids[i, column]
            slot = residency.where[row]
            if slot < 0:
                if num_free == 0:
                    break
                num_free -= 1
                slot = free[num_free]
                missing[num_missing, 0], missing[num_missing, 1] = slot, row
                missing[num_missing, 2], missing[num_missing, 3] = residency.where[row], table
                num_missing += 1
                num_last_uses += residency.latest_use[row] <= number
                residency.where[row] = slot
                residency.slot_row[slot] = row
                residency.slot_needed[slot] = number
            slots[i, column] = slot
        entry += 1
    return SlotProgress(number, entry, num_free, num_missing, num_last_uses)


@njit(nogil=True, parallel=True, cache=True)
def translate(
    ids: NDArray[np.int64],
    numbering: Numbering,
    where: NDArray[np.int64],
    out: NDArray[np.int64],
) -> int:
    """The slots of the rows of a batch (B, S), −1 where there is no id; how many rows have none."""
    num_missing = 0
    for i in prange(ids.shape[0]):
        for column in range(ids.shape[1]):
            slot = np.int64(-1)
            if ids[i, column] >= 0:
                slot = where[numbering.first_row[numbering.table_of[column]] + ids[i, column]]
                num_missing += slot < 0
            out[i, column] = slot
    return num_missing


@njit(nogil=True, parallel=True, cache=True)
def order_of_leaving(
    residency: Residency, finished: int, settled: int, often: float, keys: NDArray[np.float64]
) -> None:
    """For each slot, when its row would leave: the smallest first, infinity for those that must stay.

    Batches up to `finished` are done with, and those up to `settled` have their rows in the cache. First come rows that
    no announced batch uses, then those that one does, the farthest first, and last rows whose heat is above `often`.
    """
    for slot in prange(len(keys)):
        row = residency.slot_row[slot]
        if row < 0 or residency.slot_needed[slot] > finished:
            keys[slot] = np.inf
        elif residency.latest_use[row] > settled:
            heat = residency.heat[row]
            # of a row that is used once, the latest use is the next
            keys[slot] = _SOON * (2.0**32 - residency.latest_use[row]) if heat < often else _OFTEN_USED * heat
        else:
            keys[slot] = residency.heat[row]


@njit(nogil=True, cache=True)
def may_leave(residency: Residency, slot: int, finished: int, settled: int, spare_soon: bool) -> bool:
    """Whether a row that was chosen to leave a while ago still may."""
    row = residency.slot_row[slot]
    if row < 0 or residency.slot_needed[slot] > finished:
        return False
    return not (spare_soon and residency.latest_use[row] > settled)


@njit(nogil=True, cache=True)
def pick_leaving(
    residency: Residency,
    candidates: NDArray[np.int64],
    first: int,
    finished: int,
    settled: int,
    spare_soon: bool,
    picked: NDArray[np.int64],
) -> tuple[int, int]:
    """The next candidates that may still leave, as many as there is room for; where to go on, and how many."""
    count = 0
    while first < len(candidates) and count < len(picked):
        if may_leave(residency, candidates[first], finished, settled, spare_soon):
            picked[count] = candidates[first]
            count += 1
        first += 1
    return first, count


@njit(nogil=True, cache=True)
def are_finite(weights: NDArray[np.float32], slots: NDArray[np.int64]) -> bool:
    """Whether all weights in these slots are numbers."""
    for i in range(len(slots)):
        total = np.float32(0)
        for d in range(weights.shape[1]):
            total += weights[slots[i], d] * np.float32(0)
        if total != 0:
            return False
    return True


@njit(nogil=True, cache=True)
def release(residency: Residency, slots: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    """These rows are out of the cache, and lie in these places; NO_PLACE of those that were never changed."""
    for i in range(len(slots)):
        slot = slots[i]
        place = places[i]
        residency.where[residency.slot_row[slot]] = NEVER if place == NO_PLACE else _outside(place)
        residency.slot_row[slot] = FREE
        residency.slot_place[slot] = NO_PLACE
        residency.slot_dirty[slot] = False


@njit(nogil=True, cache=True)
def note_changes(
    slots: NDArray[np.int64], step: int, residency: Residency, live: NDArray[np.int64], place_shift: int
) -> None:
    """The rows in these slots (B, S) have been changed by a step: what lies outside of the cache counts no more."""
    for i in range(slots.shape[0]):
        for column in range(slots.shape[1]):
            slot = slots[i, column]
            if slot < 0:
                continue
            residency.slot_step[slot] = step
            if not residency.slot_dirty[slot]:
                residency.slot_dirty[slot] = True
                if residency.slot_place[slot] != NO_PLACE:
                    live[residency.slot_place[slot] >> place_shift] -= 1
                    residency.slot_place[slot] = NO_PLACE


@njit(nogil=True, cache=True)
def find_moved(
    rows: NDArray[np.int64],
    steps: NDArray[np.int64],
    places: NDArray[np.int64],
    residency: Residency,
    live: NDArray[np.int64],
    number: int,
    moved: NDArray[np.int64],
) -> int:
    """Of records that lie in a segment to be emptied: which have to be written elsewhere; how many.

    A row that is in the cache as well will be written when it leaves; until then it counts as changed.
    """
    count = 0
    for i in range(len(rows)):
        found = residency.where[rows[i]]
        if found == _outside(places[i]):
            moved[count] = i
            count += 1
            live[number] -= 1
        elif found >= 0 and residency.slot_place[found] == places[i]:
            residency.slot_place[found] = NO_PLACE
            residency.slot_dirty[found] = True
            residency.slot_step[found] = steps[i]
            live[number] -= 1
    return count
