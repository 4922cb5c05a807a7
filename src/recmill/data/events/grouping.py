"""Numba kernels that make sequences of coded events: group by user, order, drop repeats and rare ones, hold out.

Arrays may be mapped files: all kernels but the grouping itself go through them front to back.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.events.windows import UNKNOWN
from recmill.jit import njit, prange

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


@njit(nogil=True, cache=True)
def count_codes(values: Longs, low: int, counts: Longs) -> None:
    """How often each number from `low` on occurs, added to what was counted before."""
    for value in values:
        counts[value - low] += 1


@njit(nogil=True, cache=True)
def place_events(users: Ints, items: Ints, cursors: Longs, out: Ints) -> None:
    """Put each event behind those of its user that came before it."""
    for i in range(len(users)):
        out[cursors[users[i]]] = items[i]
        cursors[users[i]] += 1


@njit(nogil=True, cache=True)
def place_times(users: Ints, times: Longs, cursors: Longs, out: Longs) -> None:
    """The same for their times."""
    for i in range(len(users)):
        out[cursors[users[i]]] = times[i]
        cursors[users[i]] += 1


@njit(nogil=True, parallel=True, cache=True)
def sort_by_time(offsets: Longs, items: Ints, times: Longs, is_moved: Flags) -> None:
    """Each user's events by time, those of the same time as they came; whose order was another is noted."""
    for user in prange(len(offsets) - 1):
        start, stop = offsets[user], offsets[user + 1]
        moved = False
        for i in range(start + 1, stop):
            if times[i] < times[i - 1]:
                moved = True
                break
        is_moved[user] = moved
        if moved:
            order = np.argsort(times[start:stop], kind="mergesort")
            items[start:stop] = items[start:stop][order]
            times[start:stop] = times[start:stop][order]


@njit(nogil=True, parallel=True, cache=True)
def sort_by_item(offsets: Longs, items: Ints) -> None:
    """Each user's events by the item's code, which grows with its value."""
    for user in prange(len(offsets) - 1):
        items[offsets[user] : offsets[user + 1]] = np.sort(items[offsets[user] : offsets[user + 1]])


@njit(nogil=True, cache=True)
def drop_repeats(offsets: Longs, items: Ints, num_items: int, keep_last: bool, alive: Flags) -> int:
    """Of a user's events with the same item leave the first or the last; how many were dropped."""
    seen_by = np.full(num_items, -1, np.int64)
    dropped = 0
    for user in range(len(offsets) - 1):
        for k in range(offsets[user + 1] - offsets[user]):
            i = offsets[user + 1] - 1 - k if keep_last else offsets[user] + k
            if seen_by[items[i]] == user:
                alive[i] = False
                dropped += 1
            seen_by[items[i]] = user
    return dropped


@njit(nogil=True, cache=True)
def count_alive(items: Ints, alive: Flags, counts: Longs) -> None:
    """How often each item occurs."""
    counts[:] = 0
    for i in range(len(items)):
        counts[items[i]] += alive[i]


@njit(nogil=True, cache=True)
def drop_rare(offsets: Longs, items: Ints, counts: Longs, limits: tuple[int, int, int], alive: Flags) -> int:
    """Drop events of rare items, then all of users with too few or too many left; how many events were dropped."""
    min_count, min_length, max_length = limits
    dropped = 0
    for user in range(len(offsets) - 1):
        length = 0
        for i in range(offsets[user], offsets[user + 1]):
            if alive[i] and counts[items[i]] < min_count:
                alive[i] = False
                dropped += 1
            length += alive[i]
        if length < min_length or length > max_length:
            dropped += length
            alive[offsets[user] : offsets[user + 1]] = False
    return dropped


@njit(nogil=True, cache=True)
def count_lengths(offsets: Longs, alive: Flags, lengths: Longs) -> None:
    """How many events each user has left."""
    for user in range(len(lengths)):
        lengths[user] = alive[offsets[user] : offsets[user + 1]].sum()


@njit(nogil=True, cache=True)
def compact(values: NDArray[np.generic], alive: Flags, out: NDArray[np.generic]) -> None:
    """The values that are left, side by side."""
    at = 0
    for i in range(len(values)):
        if alive[i]:
            out[at] = values[i]
            at += 1


class Places(NamedTuple):
    """Which events of each user are for what, as in `Sequences`."""

    train_lengths: Ints
    validation_at: Ints
    test_at: Ints


def empty_places(num_users: int) -> Places:
    """Room for so many users."""
    return Places(*(np.empty(num_users, np.int32) for _ in range(3)))


@njit(nogil=True, cache=True)
def hold_out_last(offsets: Longs, with_validation: bool, places: Places) -> None:
    """The last event is for testing, the one before for validation if asked; with fewer than three events, none."""
    for user in range(len(offsets) - 1):
        length = offsets[user + 1] - offsets[user]
        is_long = length >= 3
        places.train_lengths[user] = length - 1 - with_validation if is_long else length
        places.validation_at[user] = length - 2 if is_long and with_validation else -1
        places.test_at[user] = length - 1 if is_long else -1


@njit(nogil=True, cache=True)
def hold_out_later(offsets: Longs, times: Longs, validation_from: int, test_from: int, places: Places) -> None:
    """Train before a moment; of each user the first event from then on validates, the first from a later one tests."""
    for user in range(len(offsets) - 1):
        start, stop = offsets[user], offsets[user + 1]
        middle = start + np.searchsorted(times[start:stop], validation_from)
        late = start + np.searchsorted(times[start:stop], test_from)
        places.train_lengths[user] = middle - start
        places.validation_at[user] = middle - start if middle < late else -1
        places.test_at[user] = late - start if late < stop else -1


@njit(nogil=True, cache=True)
def count_trained(offsets: Longs, items: Ints, train_lengths: Ints, counts: Longs) -> None:
    """How often each item occurs in training events."""
    for user in range(len(train_lengths)):
        for i in range(offsets[user], offsets[user] + train_lengths[user]):
            counts[items[i]] += 1


@njit(nogil=True, cache=True)
def number_items(offsets: Longs, items: Ints, numbers: Ints, places: Places) -> int:
    """Final ids in place of codes; targets with no known item before them are given up; how many events are unknown."""
    unknown = 0
    for user in range(len(offsets) - 1):
        known, start = 0, offsets[user]
        for i in range(offsets[user + 1] - start):
            if known == 0:
                if places.validation_at[user] == i:
                    places.validation_at[user] = -1
                if places.test_at[user] == i:
                    places.test_at[user] = -1
            items[start + i] = numbers[items[start + i]]
            is_unknown = items[start + i] == UNKNOWN
            unknown += is_unknown
            known += not is_unknown
    return unknown


@njit(nogil=True, cache=True)
def count_before(times: Longs, moment: int) -> int:
    """How many events are earlier than a moment."""
    earlier = 0
    for time in times:
        earlier += time < moment
    return earlier


def find_moment(times: Longs, num_before: int) -> int:
    """The latest moment with at most so many events before it, found without sorting; reads them some sixty times."""
    low, high = int(times.min()), int(times.max()) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count_before(times, middle) <= num_before else (low, middle)
    return low
