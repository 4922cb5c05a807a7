"""Events to sequences in plain Python: obvious, slow, and the judge of the fast way."""

from collections import Counter
from dataclasses import dataclass

from recmill.settings.events import EventRules

Event = tuple[int | str, int | str, int]  # user, item, time


@dataclass(frozen=True)
class Expected:
    users: list[int | str]
    items: list[int | str]
    events: list[list[int]]  # of each user; −1 for items without an id
    train_lengths: list[int]
    validation_at: list[int]
    test_at: list[int]


def sequences_of(rows: list[Event], rules: EventRules) -> Expected:
    by_user: dict[int | str, list[Event]] = {}
    for row in rows:
        by_user.setdefault(row[0], []).append(row)
    for user, events in by_user.items():
        if rules.order == "time":
            events.sort(key=lambda event: event[2])
        elif rules.order == "item":
            events.sort(key=lambda event: event[1])
        by_user[user] = without_repeats(events, rules.repeats)
    by_user = dict(sorted(filtered(by_user, rules).items()))
    places = hold_out(list(by_user.values()), rules)
    trained = sorted(
        {event[1] for events, (train, _, _) in zip(by_user.values(), places, strict=True) for event in events[:train]}
    )
    ids = {item: number for number, item in enumerate(trained, start=1)}
    coded = [[ids.get(event[1], -1) for event in events] for events in by_user.values()]
    judged = [
        (train, *(at if at >= 0 and any(i > 0 for i in events[:at]) else -1 for at in (validation, test)))
        for events, (train, validation, test) in zip(coded, places, strict=True)
    ]
    return Expected(list(by_user), trained, coded, *([place[i] for place in judged] for i in range(3)))


def without_repeats(events: list[Event], repeats: str) -> list[Event]:
    if repeats == "keep":
        return events
    kept: dict[int | str, Event] = {}
    for event in events if repeats == "first" else events[::-1]:
        kept.setdefault(event[1], event)
    return list(kept.values()) if repeats == "first" else list(kept.values())[::-1]


def filtered(by_user: dict[int | str, list[Event]], rules: EventRules) -> dict[int | str, list[Event]]:
    while True:
        counts = Counter(event[1] for events in by_user.values() for event in events)
        kept = {
            user: [event for event in events if counts[event[1]] >= rules.min_item_count]
            for user, events in by_user.items()
        }
        longest = rules.max_length or 10**9
        kept = {user: events for user, events in kept.items() if rules.min_length <= len(events) <= longest}
        if not rules.k_core or kept == by_user:
            return kept
        by_user = kept


def hold_out(sequences: list[list[Event]], rules: EventRules) -> list[tuple[int, int, int]]:
    if rules.split == "leave_one_out":
        lengths = [len(events) for events in sequences]
        return [(n - 2, n - 2, n - 1) if n >= 3 else (n, -1, -1) for n in lengths]
    if rules.split == "last":
        return [(n - 1, -1, n - 1) if len(events) >= 3 else (n, -1, -1) for events in sequences for n in [len(events)]]
    times = sorted(event[2] for events in sequences for event in events)
    first, second = (moment(times, share) for share in (rules.heldout_frac, rules.test_frac or 0.1))
    places = []
    for events in sequences:
        train = sum(event[2] < first for event in events)
        late = sum(event[2] < second for event in events)
        places.append((train, train if train < late else -1, late if late < len(events) else -1))
    return places


def moment(times: list[int], share: float) -> int:
    """The latest moment with at most so many events before it."""
    num_before = round(len(times) * (1 - share))
    candidates = [t for t in range(times[0], times[-1] + 1) if sum(time < t for time in times) <= num_before]
    return max(candidates)
