"""Synthetic events with a known right answer: users who follow planted chains of items, with noise.

`recmill synth interactions --users 5000 --items 500 --out DIR` writes interactions.csv (user,item,time) and world.json.

1. A rule is a cycle through all items: what follows what. There are a few, and every user has one of them.
2. A user's next event is the one that the rule wants, unless noise or an item met before comes in between: then it is
   any item not met before, each with the same chance.
3. The rule of a user can be told from the history, by Bayes' rule. From that follow the chances of every item and the
   best order of them, whose expected NDCG@10 no model can beat.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.synthetic.clicks import WORLD_FILE
from recmill.files import finished_dir, write_atomic
from recmill.jit import njit, prange, uint64
from recmill.seeds import mix64, rng, stream_key
from recmill.settings.synthetic import LIST_LENGTH, ChainSpec

EVENTS_FILE = "interactions.csv"
_DAY_S = 86_400
_FIRST_TIME = 1_600_000_000
_LINES_AT_ONCE = 1 << 18
_RULE, _NOISE = (uint64(i) << uint64(32) for i in (1, 2))


class BestRanking(NamedTuple):
    """What the best order of items scores on average."""

    ndcg: float
    hr: float


class ChainWorld(NamedTuple):
    """What was written: the number of events, and the best possible on the last events but one, and on the last."""

    num_events: int
    validation: BestRanking
    test: BestRanking


def plant_rules(spec: ChainSpec) -> NDArray[np.int64]:
    """(rules, items): what follows each item, a single cycle each."""
    rules = np.empty((spec.rules, spec.items), np.int64)
    for rule in range(spec.rules):
        cycle = rng(spec.seed, "chain", rule).permutation(spec.items)
        rules[rule, cycle] = np.roll(cycle, -1)
    return rules


@njit(inline="always")
def _unit(word: np.uint64) -> float:
    return np.float64(mix64(word) >> uint64(11)) * 2.0**-53


@njit(nogil=True, parallel=True, cache=True)
def _walk(
    rules: NDArray[np.int64], noise: float, key: np.uint64, offsets: NDArray[np.int64], items: NDArray[np.int64]
) -> None:
    """Fill in each user's items."""
    num_items = rules.shape[1]
    for user in prange(len(offsets) - 1):
        user_key = mix64(key ^ uint64(user))
        follows = rules[np.int64(mix64(user_key ^ _RULE) % uint64(len(rules)))]
        events = items[offsets[user] : offsets[user + 1]]
        draw = 0
        for i in range(len(events)):
            if i > 0 and _unit(user_key ^ _NOISE ^ uint64(i)) >= noise:
                events[i] = follows[events[i - 1]]
                if not (events[:i] == events[i]).any():
                    continue
            while True:
                events[i] = np.int64(mix64(user_key ^ uint64(draw)) % uint64(num_items))
                draw += 1
                if not (events[:i] == events[i]).any():
                    break


@njit(nogil=True, cache=True)
def _best_of(events: NDArray[np.int64], rules: NDArray[np.int64], noise: float, shares: NDArray[np.float64]) -> int:
    """The chances of the items that a rule may want behind some events, best first, and of any other item at the end.

    How many of the former there are; one that several rules want counts once.
    """
    num_rules, num_items = rules.shape
    beliefs = np.full(num_rules, 1.0 / num_rules)
    for i in range(1, len(events)):
        others = noise / (num_items - i)
        for rule in range(num_rules):
            wanted = rules[rule, events[i - 1]]
            if (events[:i] == wanted).any():
                beliefs[rule] *= 1.0 / (num_items - i)
            else:
                beliefs[rule] *= others + (1.0 - noise) * (wanted == events[i])
        beliefs /= beliefs.sum()
    left = num_items - len(events)
    wanted_items, count, background = np.empty(num_rules, np.int64), 0, 0.0
    for rule in range(num_rules):
        wanted = rules[rule, events[-1]]
        if (events == wanted).any():
            background += beliefs[rule] / left
            continue
        background += beliefs[rule] * noise / left
        place = 0
        while place < count and wanted_items[place] != wanted:
            place += 1
        if place == count:
            wanted_items[place], shares[place] = wanted, 0.0
            count += 1
        shares[place] += beliefs[rule] * (1.0 - noise)
    shares[:count] = -np.sort(-shares[:count])
    shares[:count] += background
    shares[count:] = background
    return count


@njit(nogil=True, parallel=True, cache=True)
def _best_scores(
    items: NDArray[np.int64],
    offsets: NDArray[np.int64],
    rules: NDArray[np.int64],
    noise: float,
    behind: int,
    out: NDArray[np.float64],
) -> None:
    """For each user the expected NDCG and hit rate of the best list for the event `behind` places from the end."""
    for user in prange(len(offsets) - 1):
        shares = np.empty(LIST_LENGTH, np.float64)
        _best_of(items[offsets[user] : offsets[user + 1] - behind], rules, noise, shares)
        out[user, 0], out[user, 1] = 0.0, shares.sum()
        for place in range(LIST_LENGTH):
            out[user, 0] += shares[place] / np.log2(place + 2)


def write_chains(spec: ChainSpec, out_dir: Path, *, overwrite: bool = False) -> ChainWorld:
    """Write the events of all users by time, and what can be reached."""
    rules, key = plant_rules(spec), np.uint64(stream_key(spec.seed, "users"))
    lengths = rng(spec.seed, "lengths").integers(spec.min_length, spec.max_length + 1, spec.users)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    items = np.empty(int(offsets[-1]), np.int64)
    _walk(rules, spec.noise, key, offsets, items)
    best = list[BestRanking]()
    for behind in (2, 1):
        scores = np.empty((spec.users, 2))
        _best_scores(items, offsets, rules, spec.noise, behind, scores)
        best.append(BestRanking(*(float(mean) for mean in scores.mean(axis=0))))
    world = ChainWorld(len(items), *best)
    with finished_dir(out_dir, overwrite=overwrite, is_ours=lambda there: (there / WORLD_FILE).is_file()) as directory:
        _write_csv(directory / EVENTS_FILE, spec, lengths, items)
        write_atomic(directory / WORLD_FILE, json.dumps(_as_dict(spec, world), indent=1))
    return world


def _write_csv(path: Path, spec: ChainSpec, lengths: NDArray[np.int64], items: NDArray[np.int64]) -> None:
    """By time: a user does one thing a day, at any moment of it."""
    users = np.repeat(np.arange(spec.users), lengths)
    days = np.arange(len(items)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    times = _FIRST_TIME + days * _DAY_S + rng(spec.seed, "times").integers(0, _DAY_S, len(items))
    order = np.argsort(times, kind="stable")
    with path.open("w", encoding="ascii") as file:
        file.write("user,item,time\n")
        for start in range(0, len(order), _LINES_AT_ONCE):
            some = order[start : start + _LINES_AT_ONCE]
            rows = zip(users[some].tolist(), items[some].tolist(), times[some].tolist(), strict=True)
            file.writelines(f"{user},{item},{time}\n" for user, item, time in rows)


def _as_dict(spec: ChainSpec, world: ChainWorld) -> dict[str, Any]:
    best = {"validation": world.validation, "test": world.test}
    return {
        "spec": spec.model_dump(mode="json"),
        "events": world.num_events,
        "best_possible": {
            name: {f"ndcg@{LIST_LENGTH}": each.ndcg, f"hr@{LIST_LENGTH}": each.hr} for name, each in best.items()
        },
    }
