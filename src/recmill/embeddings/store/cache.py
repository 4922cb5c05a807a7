"""A cache of rows over a place that holds them all: rows come before they are used, and leave when others need room.

1. `announce` a batch as soon as its ids are known, long before it is trained on: its rows will be spared.
2. `settle` it a few batches before its turn: rows that are not here are brought, in the background.
3. Wait for what that returned, train, and say that the batch is `finished`: its rows may leave.

Values do not depend on any of this. A row is in one place that counts, and is read from there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.bounds import Bounds
from recmill.embeddings.store.first_values import FirstValues
from recmill.embeddings.store.hit_curve import HitCurve
from recmill.embeddings.store.layout import Arena, RecordLayout, empty_arena
from recmill.embeddings.store.log import Records, Traffic
from recmill.embeddings.store.residency import (
    BYTES_PER_SLOT,
    FREE,
    NEVER,
    NO_PLACE,
    Numbering,
    SlotProgress,
    announce,
    are_finite,
    empty_residency,
    find_moved,
    find_slots,
    give_slots,
    note_changes,
    order_of_leaving,
    outside,
    pick_leaving,
    release,
    translate,
)

_AGE = 1600.0  # batches after which a use counts half
_MOST_GAIN = 2.0**60
_OFTEN = 2.5  # recent uses of a row that announced batches will use again and again
_LEAVE_AT_ONCE = 64  # parts of the cache: one of them leaves at a time
_LEAST_LEAVING, _MOST_LEAVING = 2048, 8  # rows, unless that is more than such a part of the cache
_CHOOSE_AT_ONCE = 8
_FILL_BYTES = 16 << 20


class Backing(Protocol):
    """What holds all rows that were ever changed."""

    place_shift: int
    live: NDArray[np.int64]
    traffic: Traffic

    @property
    def can_write(self) -> bool:
        """Whether rows may be appended."""

    def append(
        self, rows: NDArray[np.int64], steps: NDArray[np.int64], arena: Arena, slots: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Keep rows that lie in these slots; their places."""

    def start_fetch(self, places: NDArray[np.int64], arena: Arena, slots: NDArray[np.int64]) -> Callable[[], None]:
        """Have rows copied into these slots; what is returned waits until they are there."""

    def next_to_move(self, *, all_of_them: bool = False) -> tuple[Records, NDArray[np.int64]] | None:
        """Rows to be appended anew, if their places still count; None if there are none."""

    def forget(self) -> None:
        """Be empty."""

    def close(self) -> None:
        """Let go of all."""


@dataclass
class Uses:
    """What has been looked up so far, by table."""

    distinct: NDArray[np.int64]  # rows of batches, each counted once a batch
    read: NDArray[np.int64]  # of these, those that had to be brought from outside
    created: NDArray[np.int64]  # and those that were seen for the first time


@dataclass
class Settling:
    """A batch whose rows are given slots."""

    number: int
    ids: NDArray[np.int64]
    waits: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slots = np.empty(self.ids.shape, np.int64)
        self.progress = SlotProgress(self.number, 0, 0, 0, 0)

    @property
    def is_done(self) -> bool:
        """Whether every row has one."""
        return self.progress.entry == self.ids.size

    def wait(self) -> None:
        """Until all its rows have been brought."""
        while self.waits:
            self.waits.pop()()


class RowCache:
    """Some rows of all tables, in slots."""

    def __init__(
        self, bounds: Bounds, layout: RecordLayout, backing: Backing, first_values: FirstValues, memory_bytes: int
    ) -> None:
        num_rows = int(bounds.first_row[-1])
        self.layout = layout
        self.num_slots = min(num_rows, memory_bytes // layout.record_bytes)
        self.arena = empty_arena(self.num_slots, layout)
        self.residency = empty_residency(num_rows, self.num_slots)
        self.backing = backing
        self._bounds = bounds
        table_of = np.repeat(np.arange(len(bounds.first_slot) - 1), np.diff(bounds.first_slot))
        self._numbering = Numbering(bounds.first_row, bounds.first_slot, table_of)
        self._first_values = first_values
        self._free = np.arange(self.num_slots)[::-1].copy()
        self._num_free = self.num_slots
        self._candidates = np.empty(0, np.int64)
        self._next_candidate, self._spares_soon = 0, True
        self._keys = np.empty(self.num_slots)
        self._announced = self._settled = self._finished = -1
        self._gain = 1.0
        num_tables = len(bounds.first_row) - 1
        self.uses = Uses(*(np.zeros(num_tables, np.int64) for _ in range(3)))
        self.num_soon = 0  # rows that announced batches will use and settled ones do not
        self._under_way: list[Settling] = []
        self.curve = HitCurve(num_rows)
        self.has_bad_numbers = False  # in a row that has left the cache

    def announce(self, ids: NDArray[np.int64]) -> int:
        """A batch (B, S) will be settled later; its number. Batches are settled in the order of their numbers."""
        self._bounds.refuse_outside(ids)
        self._announced += 1
        self._gain *= 2.0 ** (1 / _AGE)
        if self._gain > _MOST_GAIN:
            self.residency.heat[:] /= np.float32(self._gain)
            self._gain = 1.0
        number = self._announced
        self.num_soon += announce(ids, self._numbering, number, self._settled, self._gain, self.residency)
        self.curve.note(ids, self._numbering, number)
        return number

    def settle(self, batch: Settling) -> bool:
        """Give slots to a batch's rows and have them brought; false if there is no room until others are finished."""
        if batch not in self._under_way:
            self._under_way.append(batch)
            uses = self.uses.distinct
            self.num_soon -= find_slots(batch.ids, self._numbering, batch.number, self.residency, batch.slots, uses)
        while not batch.is_done:
            missing = np.empty((min(self._num_free, batch.ids.size - batch.progress.entry), 4), np.int64)
            started = batch.progress._replace(num_free=self._num_free, num_missing=0, num_last_uses=0)
            batch.progress = give_slots(
                batch.ids, self._numbering, self.residency, batch.slots, self._free, missing, started
            )
            self._num_free = batch.progress.num_free
            self.num_soon -= batch.progress.num_last_uses
            batch.waits.append(self._bring(missing[: batch.progress.num_missing]))
            if not batch.is_done and not self._make_room():
                return False
        self._settled = max(self._settled, batch.number)
        return True

    def finished(self, number: int) -> None:
        """The batches up to this one have been trained on."""
        self._finished = number
        self._under_way = [batch for batch in self._under_way if batch.number > number]
        self._tidy()

    def wait(self) -> None:
        """Until nothing is being brought."""
        for batch in self._under_way:
            batch.wait()

    def translate(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """The slots of the rows of a batch (B, S), and how many entries have none."""
        slots = np.empty(ids.shape, np.int64)
        return slots, translate(ids, self._numbering, self.residency.where, slots)

    def note_changes(self, slots: NDArray[np.int64], step: int) -> None:
        """These rows (B, S) have been changed by a step."""
        note_changes(slots, step, self.residency, self.backing.live, self.backing.place_shift)

    def rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of a batch (B, S) among those of all tables, −1 where there is no id."""
        return np.where(ids >= 0, ids + self._numbering.first_row[self._numbering.table_of], -1)

    def read_aside(self, rows: NDArray[np.int64]) -> Arena:
        """Distinct rows, wherever they are, without a change to the cache."""
        self.wait()
        aside, slots = empty_arena(len(rows), self.layout), np.arange(len(rows))
        found = self.residency.where[rows]
        is_here, is_new = found >= 0, found == NEVER
        aside.weights[is_here], aside.state[is_here] = (
            self.arena.weights[found[is_here]],
            self.arena.state[found[is_here]],
        )
        self._first_values.fill(aside, slots[is_new], rows[is_new])
        is_outside = ~(is_here | is_new)
        self.backing.start_fetch(outside(found[is_outside]), aside, slots[is_outside])()
        return aside

    def keep(self, rows: NDArray[np.int64], values: Arena) -> None:
        """Put distinct rows that were read aside into free slots, as many as there are."""
        residency = self.residency
        outsiders = np.flatnonzero(residency.where[rows] < 0)[: self._num_free]
        self._num_free -= len(outsiders)
        slots, rows = self._free[self._num_free : self._num_free + len(outsiders)].copy(), rows[outsiders]
        found = residency.where[rows]
        residency.slot_place[slots] = np.where(found == NEVER, NO_PLACE, outside(found))
        residency.where[rows], residency.slot_row[slots] = slots, rows
        residency.slot_needed[slots] = -1
        self.arena.weights[slots], self.arena.state[slots] = values.weights[outsiders], values.state[outsiders]

    def flush(self) -> None:
        """Have every changed row outside as well; those in the cache stay."""
        self.wait()
        slots = np.flatnonzero(self.residency.slot_dirty)
        if len(slots):
            residency = self.residency
            residency.slot_place[slots] = self._append(slots)
            residency.slot_dirty[slots] = False

    def let_all_go(self) -> None:
        """Have every row outside, and none in the cache; no batch may be under way."""
        self.flush()
        slots = np.flatnonzero(self.residency.slot_row != FREE)
        release(self.residency, slots, self.residency.slot_place[slots])
        self._start_anew()

    def forget(self) -> None:
        """No row has ever been changed."""
        self.wait()
        self.backing.forget()
        self.residency = empty_residency(len(self.residency.where), self.num_slots)
        self._start_anew()

    def _start_anew(self) -> None:
        """All slots are free, and no batch has been announced."""
        self.residency.latest_use[:] = -1
        self.residency.slot_needed[:] = -1
        self._free[:] = np.arange(self.num_slots)[::-1]
        self._num_free, self._candidates, self.num_soon = self.num_slots, np.empty(0, np.int64), 0
        self._next_candidate, self._under_way = 0, []
        self._announced = self._settled = self._finished = -1

    def write_rows(self, rows: NDArray[np.int64], values: Arena) -> None:
        """Put values into rows that are not in the cache, before the first step."""
        found, backing = self.residency.where[rows], self.backing
        assert not (found >= 0).any()
        np.subtract.at(backing.live, outside(found[found != NEVER]) >> backing.place_shift, 1)
        self.place_rows(rows, self.backing.append(rows, np.zeros(len(rows), np.int64), values, np.arange(len(rows))))

    def place_rows(self, rows: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        """These rows lie outside of the cache, in these places."""
        self.residency.where[rows] = outside(places)

    def write_first_values(self) -> None:
        """Have rows outside that nobody has changed yet; those in the cache stay, and count as changed by nobody."""
        residency, step = self.residency, max(1, _FILL_BYTES // self.layout.record_bytes)
        slots = np.flatnonzero((residency.slot_row != FREE) & (residency.slot_place == NO_PLACE))
        residency.slot_place[slots] = self._append(slots)
        rows = np.flatnonzero(residency.where == NEVER)
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            self.write_rows(some, self.read_aside(some))

    def _tidy(self) -> None:
        """Move a portion of records, if too many do not count any more."""
        if self.backing.can_write and (records := self.backing.next_to_move()) is not None:
            self._move(*records)

    def _move(self, records: Records, places: NDArray[np.int64]) -> None:
        moved = np.empty(len(places), np.int64)
        number, live = int(places[0]) >> self.backing.place_shift, self.backing.live
        count = find_moved(records.rows, records.steps, places, self.residency, live, number, moved)
        moved = moved[:count]
        if count:
            rows = records.rows[moved]
            self.place_rows(rows, self.backing.append(rows, records.steps[moved], records.arena, moved))
            self.backing.traffic.records_moved += count

    def _bring(self, missing: NDArray[np.int64]) -> Callable[[], None]:
        """Have rows (slot, row, where it was) in their slots; what is returned waits for it."""
        slots, rows, found, tables = missing.T
        is_new = found == NEVER
        self._first_values.fill(self.arena, slots[is_new], rows[is_new])
        brought, places = slots[~is_new], outside(found[~is_new])
        self.residency.slot_place[brought] = places
        self.uses.distinct += np.bincount(tables, minlength=len(self.uses.distinct))
        self.uses.created += np.bincount(tables[is_new], minlength=len(self.uses.created))
        self.uses.read += np.bincount(tables[~is_new], minlength=len(self.uses.read))
        return self.backing.start_fetch(places, self.arena, brought)

    def _make_room(self) -> bool:
        """Let some rows leave; false if all have to stay."""
        wanted = max(1, self.num_slots // _LEAVE_AT_ONCE, min(_LEAST_LEAVING, self.num_slots // _MOST_LEAVING))
        slots = self._pick(wanted)
        if not len(slots):
            self._choose(wanted)
            slots = self._pick(wanted)
        if not len(slots):
            return False
        is_dirty = self.residency.slot_dirty[slots]
        places = self.residency.slot_place[slots]
        if is_dirty.any():
            places[is_dirty] = self._append(slots[is_dirty])
        release(self.residency, slots, places)
        self._free[self._num_free : self._num_free + len(slots)] = slots
        self._num_free += len(slots)
        return True

    def _append(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        residency = self.residency
        self.has_bad_numbers |= not are_finite(self.arena.weights, slots)
        return self.backing.append(residency.slot_row[slots], residency.slot_step[slots], self.arena, slots)

    def _pick(self, wanted: int) -> NDArray[np.int64]:
        picked = np.empty(wanted, np.int64)
        self._next_candidate, count = pick_leaving(
            *(self.residency, self._candidates, self._next_candidate, self._finished, self._settled),
            *(self._spares_soon, picked),
        )
        return picked[:count]

    def _choose(self, wanted: int) -> None:
        """Who leaves next: rows that no announced batch uses or, if there are none, the one that is used last."""
        often = _OFTEN * self._gain
        order_of_leaving(self.residency, self._finished, self._settled, often, self._keys)
        count = min(self.num_slots, wanted * _CHOOSE_AT_ONCE)
        chosen = np.argpartition(self._keys, count - 1)[:count]
        keys = self._keys[chosen]
        chosen, keys = chosen[np.isfinite(keys)], keys[np.isfinite(keys)]
        chosen = chosen[np.argsort(keys, kind="stable")]
        is_spared = self.residency.latest_use[self.residency.slot_row[chosen]] > self._settled
        self._spares_soon = not is_spared.all()
        self._candidates, self._next_candidate = chosen, 0


def bytes_per_slot(layout: RecordLayout) -> int:
    """What a row in the cache takes."""
    return layout.record_bytes + BYTES_PER_SLOT
