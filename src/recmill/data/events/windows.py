"""Per-user sequences to batches of windows, in an order that depends on the seed and the epoch alone.

1. What a user did for training is cut into windows, the newest first: the last events, then those that end `step`
   events earlier, until the first event is in one.
2. Every epoch has a seeded permutation of all windows. Epochs follow each other without a seam: global batch b is the
   windows b·global_batch … of the endless row of permutations, so that only the very last one may be short.
3. A process of several takes rows rank, rank + size, … of each global batch; all see the same global batches.
4. What is hidden from the model is drawn from the seed, the epoch, the window and the place in it, and so is new in
   every epoch and the same for any batch size, number of threads or processes.

Batches are packed: windows lie end to end, without padding. Where positions count, they are counted from the end:
the newest event stands at the last one, in training as in evaluation.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from types import TracebackType
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Cursor, Position
from recmill.data.stream.stream import Part
from recmill.errors import DataError
from recmill.jit import njit, prange, uint64
from recmill.seeds import mix64, rng, stream_key
from recmill.settings.sequences import Masking

# Legend: B windows of a batch, N events in them.

PAD = 0  # the id of no item; items are 1 … num_items, and num_items + 1 hides one
UNKNOWN = -1  # a held-out event with an item that no training event has
Task = Literal["next", "masked"]
Heldout = Literal["validation", "test"]
_ONLY_LAST, _FALLBACK, _REPLACE, _RANDOM = (uint64(i) << uint64(40) for i in (1, 2, 3, 4))


class Sequences(NamedTuple):
    """What users did, oldest first, and which of it is for what. Arrays may be mapped files.

    Of user u, events[offsets[u] : offsets[u + 1]] are item ids: the first train_lengths[u] to learn from, and those at
    the places validation_at[u] and test_at[u], −1 if there is none, to be predicted from all before them.
    """

    events: NDArray[np.int32]
    offsets: NDArray[np.int64]
    train_lengths: NDArray[np.int32]
    validation_at: NDArray[np.int32]
    test_at: NDArray[np.int32]
    num_items: int

    @property
    def num_users(self) -> int:
        """How many there are."""
        return len(self.offsets) - 1

    def target_places(self, split: Heldout) -> NDArray[np.int32]:
        """Where the event to be predicted stands in each user's sequence; −1: the user has none."""
        return self.validation_at if split == "validation" else self.test_at

    def history(self, user: int, stop: int) -> NDArray[np.int32]:
        """The known items of a user's first `stop` events."""
        start = self.offsets[user]
        events = self.events[start : start + stop]
        return events[events > PAD]


def problems_of(sequences: Sequences) -> Iterator[str]:
    """What sequences from a file cannot be, if they are to be indexed by."""
    events, offsets, train_lengths, validation_at, test_at, num_items = sequences
    if not len(offsets) or offsets[0] < 0 or offsets[-1] > len(events) or (offsets[1:] < offsets[:-1]).any():
        yield "the events of a user end before they begin, or behind the file"
        return
    lengths = np.diff(offsets)
    if (train_lengths < 0).any() or (train_lengths > lengths).any():
        yield "a user has more events to learn from than events"
    for name, places in (("validation_at", validation_at), ("test_at", test_at)):
        if (places < -1).any() or (places >= lengths).any():
            yield f"{name} is no place of an event"
    if len(events) and (events.min() < UNKNOWN or events.max() > num_items or (events == PAD).any()):
        yield f"an event has an id that is none of {num_items} items"
    elif _has_untrained(offsets, train_lengths, events):
        yield "an event to learn from has no item"


@njit(nogil=True, cache=True)
def _has_untrained(offsets: NDArray[np.int64], train_lengths: NDArray[np.int32], events: NDArray[np.int32]) -> bool:
    for user in range(len(train_lengths)):
        for place in range(offsets[user], offsets[user] + train_lengths[user]):
            if place < len(events) and events[place] <= PAD:
                return True
    return False


class Windows(NamedTuple):
    """Ranges of the events."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


@dataclass(frozen=True)
class WindowOrder:
    """How windows are cut and put into batches; `epochs` None never ends."""

    task: Task
    max_length: int  # events that a model sees at once
    step: int  # between the ends of a user's windows; 0: only the newest window
    global_batch: int
    seed: int
    epochs: int | None = 1

    @property
    def window_events(self) -> int:
        """How many events a window has at most: to predict the next one, one more than is seen."""
        return self.max_length + (self.task == "next")


@dataclass(frozen=True)
class SequenceBatch:
    """A process's windows of a global batch, and what it knows of the whole.

    ids (N) are those the model sees, one window behind the other, lengths (B) of them; targets (N) what is to be
    guessed at each place, PAD where nothing is. A process may have no window of a short batch.
    """

    ids: NDArray[np.int64]
    targets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    rows: NDArray[np.int64]  # (B) the numbers of the windows in the global batch
    num_rows: int  # of the global batch
    num_targets: int  # of the global batch
    position: Position  # behind it
    num_skipped: int = 0

    def part(self, part: Part) -> "SequenceBatch":
        """The windows of one of several processes."""
        if part.size == 1:
            return self
        is_own = np.arange(len(self.lengths)) % part.size == part.rank
        events = np.repeat(is_own, self.lengths)
        return replace(
            self,
            ids=self.ids[events],
            targets=self.targets[events],
            lengths=self.lengths[is_own],
            rows=self.rows[is_own],
        )


@njit(nogil=True, cache=True)
def _count_windows(train_lengths: NDArray[np.int32], width: int, step: int, counts: NDArray[np.int64]) -> None:
    for user in range(len(train_lengths)):
        length = train_lengths[user]
        counts[user] = 0 if length < 2 else 1
        if step > 0 and length > width:
            counts[user] += (length - width + step - 1) // step


@njit(nogil=True, cache=True)
def _place_windows(
    offsets: NDArray[np.int64],
    train_lengths: NDArray[np.int32],
    width: int,
    step: int,
    counts: NDArray[np.int64],
    windows: Windows,
) -> None:
    at = 0
    for user in range(len(train_lengths)):
        for i in range(counts[user]):
            stop = train_lengths[user] - i * step
            windows.starts[at] = offsets[user] + max(0, stop - width)
            windows.stops[at] = offsets[user] + stop
            at += 1


def cut_windows(sequences: Sequences, order: WindowOrder) -> Windows:
    """All windows of the training events, by user and newest first; who has a single event gives none."""
    counts = np.empty(sequences.num_users, np.int64)
    _count_windows(sequences.train_lengths, order.window_events, order.step, counts)
    total = int(counts.sum())
    windows = Windows(np.empty(total, np.int64), np.empty(total, np.int64))
    _place_windows(sequences.offsets, sequences.train_lengths, order.window_events, order.step, counts, windows)
    # where the step is as wide as the window or less, the oldest window may be a single event, which teaches nothing
    lasting = windows.stops - windows.starts > 1
    return windows if lasting.all() else Windows(windows.starts[lasting], windows.stops[lasting])


@njit(inline="always")
def _unit(word: np.uint64) -> float:
    return np.float64(mix64(word) >> uint64(11)) * 2.0**-53


class _Rule(NamedTuple):
    """The masking as kernels take it."""

    key: np.uint64
    frac: float
    last: bool
    only_last_frac: float
    replace: bool
    num_items: int


@njit(nogil=True, parallel=True, cache=True)
def _fill_next(
    events: NDArray[np.int32],
    starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    ids: NDArray[np.int64],
    targets: NDArray[np.int64],
) -> None:
    for row in prange(len(starts)):
        for i in range(offsets[row + 1] - offsets[row]):
            ids[offsets[row] + i] = events[starts[row] + i]
            targets[offsets[row] + i] = events[starts[row] + i + 1]


@njit(nogil=True, cache=True)
def _shown(item: int, key: np.uint64, place: int, rule: _Rule) -> int:
    """What the model sees of a hidden event."""
    if rule.replace:
        chance = _unit(key ^ _REPLACE ^ uint64(place))
        if chance >= 0.9:
            return item
        if chance >= 0.8:
            return 1 + int(np.int64(mix64(key ^ _RANDOM ^ uint64(place)) % uint64(rule.num_items)))
    return rule.num_items + 1


@njit(nogil=True, parallel=True, cache=True)
def _fill_masked(
    events: NDArray[np.int32],
    starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    keys: NDArray[np.uint64],
    rule: _Rule,
    ids: NDArray[np.int64],
    targets: NDArray[np.int64],
) -> None:
    for row in prange(len(starts)):
        first, length, key = offsets[row], offsets[row + 1] - offsets[row], keys[row]
        only_last = _unit(key ^ _ONLY_LAST) < rule.only_last_frac
        num_hidden = 0
        for i in range(length):
            item, is_last = np.int64(events[starts[row] + i]), i == length - 1
            hidden = is_last if only_last else _unit(key ^ uint64(i)) < rule.frac or (is_last and rule.last)
            ids[first + i] = _shown(item, key, i, rule) if hidden else item
            targets[first + i] = item if hidden else 0
            num_hidden += hidden
        if num_hidden == 0:  # a window in which nothing is hidden would teach nothing
            i = int(np.int64(mix64(key ^ _FALLBACK) % uint64(length)))
            item = np.int64(events[starts[row] + i])
            ids[first + i] = _shown(item, key, i, rule)
            targets[first + i] = item


@njit(nogil=True, cache=True)
def _row_keys(key: np.uint64, epochs: NDArray[np.int64], windows: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    for row in range(len(out)):
        out[row] = mix64(mix64(key ^ uint64(epochs[row])) ^ uint64(windows[row]))


class WindowStream:
    """Batches of windows from a position on; an iterator."""

    def __init__(
        self,
        sequences: Sequences,
        order: WindowOrder,
        masking: Masking,
        *,
        start: Position | None = None,
        part: Part = Part(),  # noqa: B008 frozen
    ) -> None:
        self._sequences, self._order, self._part = sequences, order, part
        self._windows = cut_windows(sequences, order)
        self.num_windows = len(self._windows.starts)
        if not self.num_windows:
            raise DataError(
                "no user has two training events, so that there is nothing to learn from; "
                "lower the filters of `recmill prepare`, or give it more events"
            )
        self._rule = _Rule(
            np.uint64(stream_key(order.seed, "mask")),
            masking.mask_prob,
            masking.last,
            masking.only_last_prob,
            masking.replace,
            sequences.num_items,
        )
        self._permutation = lru_cache(maxsize=2)(self._permute)  # a batch lies in one epoch or at the seam of two
        cursor = start.cursors[0] if start else Cursor()
        if start and (len(start.cursors) != 1 or cursor.ordinal or not 0 <= cursor.row < self.num_windows):
            place = f"row {cursor.row:,} of block {cursor.ordinal:,}"
            raise start.misfit(f"position is {place}, and an epoch has {self.num_windows:,} windows in one block")
        self._spent = cursor.epoch * self.num_windows + cursor.row
        self.trailing_skipped = 0  # bad rows were rejected when the events were prepared

    def __iter__(self) -> Iterator[SequenceBatch]:
        return self

    def __next__(self) -> SequenceBatch:
        order = self._order
        stop = self._spent + order.global_batch
        if order.epochs is not None:
            stop = min(stop, order.epochs * self.num_windows)
        if stop <= self._spent:
            raise StopIteration
        places = np.arange(self._spent, stop)
        self._spent = stop
        position = Position((Cursor(stop // self.num_windows, 0, stop % self.num_windows),))
        # a process fills the windows of all, which takes microseconds: so it knows how many targets they have
        return self._fill(places, position).part(self._part)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing runs behind its back; here because every stream has it."""

    def _permute(self, epoch: int) -> NDArray[np.int64]:
        return rng(self._order.seed, "windows", epoch).permutation(self.num_windows)

    def _fill(self, places: NDArray[np.int64], position: Position) -> SequenceBatch:
        epochs, ordinals = np.divmod(places, self.num_windows)
        numbers = np.empty(len(places), np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            numbers[here] = self._permutation(int(epoch))[ordinals[here]]
        is_next = self._order.task == "next"
        starts = self._windows.starts[numbers]
        lengths = self._windows.stops[numbers] - starts - is_next
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids, targets = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)
        if is_next:
            _fill_next(self._sequences.events, starts, offsets, ids, targets)
        else:
            keys = np.empty(len(numbers), np.uint64)
            _row_keys(self._rule.key, epochs, numbers, keys)
            _fill_masked(self._sequences.events, starts, offsets, keys, self._rule, ids, targets)
        num_rows = len(lengths)
        return SequenceBatch(
            ids, targets, lengths, np.arange(num_rows), num_rows, int(np.count_nonzero(targets)), position
        )


class Histories(NamedTuple):
    """What some users did before the event to be predicted, packed as a batch is, and that event."""

    users: NDArray[np.int64]
    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    targets: NDArray[np.int64]


def heldout_users(sequences: Sequences, split: Heldout) -> NDArray[np.int64]:
    """The users with an event to be predicted and something known before it."""
    return np.flatnonzero(sequences.target_places(split) > 0)


def read_histories(sequences: Sequences, split: Heldout, users: NDArray[np.int64]) -> Histories:
    """Whole histories of some users, known items only, and their targets, UNKNOWN if no training event has the item."""
    places = sequences.target_places(split)[users]
    pieces = [sequences.history(int(user), int(place)) for user, place in zip(users, places, strict=True)]
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    ids = np.concatenate(pieces).astype(np.int64) if pieces else np.empty(0, np.int64)
    targets = sequences.events[sequences.offsets[users] + places].astype(np.int64)
    return Histories(users, ids, lengths, targets)
