"""How good lists of items are: a protocol that is part of every number, and sums that merge exactly.

1. A scorer gives every item of the catalogue a score, for a block of users at a time.
2. The protocol says which items compete with the one that came next: all, or some that are drawn; with or without
   those that the user knows already.
3. The rank of that item is 1 plus the number of competitors with a score that is not lower: ties count against it.
4. Only a histogram of ranks is kept, so that results of several processes add up to the last digit.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.errors import ConfigError
from recmill.jit import njit, prange, uint64
from recmill.seeds import mix64, stream_key
from recmill.settings.protocol import Protocol

# Legend: U users, V items, K length of the longest list, C candidates.

_LONG_LIST = 1000
_MOST_DRAWS = 100  # for each candidate wanted, before popularity gives way to chance


def is_at_ten(name: str) -> bool:
    """Whether a metric of any protocol is of lists of ten."""
    return name.partition("@")[2].partition("_")[0] == "10"


class Known(NamedTuple):
    """The items (1 … V) that each user of a block knows, end to end."""

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @staticmethod
    def of(ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> "Known":
        """So many of the ids for each user."""
        return Known(ids, np.concatenate([[0], np.cumsum(lengths)]))


@njit(nogil=True, cache=True)
def _top(scores: NDArray[np.float32], out: NDArray[np.int64]) -> None:
    """The places of the highest scores, best first; of equals the first; −1 where scores are −inf or there is none."""
    num_listed, length = 0, len(out)
    lowest = np.float32(-np.inf)
    for start in range(0, len(scores), 64):
        stop = min(start + 64, len(scores))
        best = scores[start]
        for i in range(start + 1, stop):
            best = max(best, scores[i])
        if not best > lowest:
            continue
        for i in range(start, stop):
            if scores[i] > lowest:
                at = min(num_listed, length - 1)
                while at > 0 and scores[out[at - 1]] < scores[i]:
                    out[at] = out[at - 1]
                    at -= 1
                out[at] = i
                num_listed = min(num_listed + 1, length)
                if num_listed == length:
                    lowest = scores[out[length - 1]]
    out[num_listed:] = -1


@njit(nogil=True, parallel=True, cache=True)
def take_top(scores_UV: NDArray[np.float32], out_UK: NDArray[np.int64]) -> None:
    """The best items of each user, best first, as places 0 … V − 1."""
    for user in prange(len(scores_UV)):
        _top(scores_UV[user], out_UK[user])


@njit(nogil=True, parallel=True, cache=True)
def hide_known(scores_UV: NDArray[np.float32], known: Known) -> None:
    """−inf for the items that users know."""
    for user in prange(len(scores_UV)):
        for i in range(known.offsets[user], known.offsets[user + 1]):
            scores_UV[user, known.ids[i] - 1] = -np.inf


@njit(nogil=True, parallel=True, cache=True)
def full_ranks(scores_UV: NDArray[np.float32], targets_U: NDArray[np.int64], out_U: NDArray[np.int64]) -> None:
    """The rank of each target (1 … V) among all items; 0 for one that is none of them, or that is removed."""
    for user in prange(len(scores_UV)):
        score = scores_UV[user, targets_U[user] - 1] if targets_U[user] >= 1 else np.float32(-np.inf)
        if score == -np.inf:
            out_U[user] = 0
            continue
        not_lower = 0
        for i in range(scores_UV.shape[1]):
            not_lower += not scores_UV[user, i] < score  # a score that is no number is not lower either
        out_U[user] = not_lower


@njit(nogil=True, parallel=True, cache=True)
def drawn_ranks(
    scores_UV: NDArray[np.float32], targets_U: NDArray[np.int64], drawn_UC: NDArray[np.int64], out_U: NDArray[np.int64]
) -> None:
    """The rank of each target among itself and the drawn items; 0 for a target that is no item."""
    for user in prange(len(scores_UV)):
        if targets_U[user] < 1:
            out_U[user] = 0
            continue
        score = scores_UV[user, targets_U[user] - 1]
        rank = 1
        for item in drawn_UC[user]:
            rank += not scores_UV[user, item - 1] < score
        out_U[user] = rank


@njit(nogil=True, cache=True)
def _is_taken(item: int, target: int, known: Known, user: int, drawn: NDArray[np.int64], num_drawn: int) -> bool:
    if item == target:
        return True
    for i in range(known.offsets[user], known.offsets[user + 1]):
        if known.ids[i] == item:
            return True
    return bool((drawn[:num_drawn] == item).any())


@njit(nogil=True, parallel=True, cache=True)
def draw_candidates(
    keys_U: NDArray[np.uint64],
    targets_U: NDArray[np.int64],
    known: Known,
    cumulative_V: NDArray[np.float64],
    out_UC: NDArray[np.int64],
) -> None:
    """For each user different items that are neither known nor the target, by cumulative shares; evenly if empty."""
    num_items = len(cumulative_V)
    for user in prange(len(keys_U)):
        count, draw = 0, 0
        while count < out_UC.shape[1]:
            word = mix64(keys_U[user] ^ uint64(draw))
            draw += 1
            if draw <= _MOST_DRAWS * out_UC.shape[1] and cumulative_V[0] >= 0:
                unit = np.float64(word >> uint64(11)) * 2.0**-53
                item = min(int(np.searchsorted(cumulative_V, unit, side="right")), num_items - 1) + 1
            else:
                item = int(np.int64(word % uint64(num_items))) + 1
            if not _is_taken(item, targets_U[user], known, user, out_UC[user], count):
                out_UC[user, count] = item
                count += 1


def refuse_too_few(protocol: Protocol, num_items: int, known: Known) -> None:
    """Complain if so many competitors as the protocol wants cannot be drawn for everybody."""
    room = num_items - protocol.num_drawn - 1  # of a user's known items: the target and the drawn ones are others
    for user in np.flatnonzero(np.diff(known.offsets) > room):
        num_known = len(np.unique(known.ids[known.offsets[user] : known.offsets[user + 1]]))
        if num_known > room:
            raise ConfigError(
                f"protocol.num_negatives = {protocol.num_drawn}: the catalogue has {num_items} items and a user knows "
                f"{num_known} of them; lower it, or set protocol.candidates=full"
            )


class RankEvaluator:
    """Ranks targets among their competitors, block by block, and keeps the sums."""

    def __init__(self, protocol: Protocol, item_counts: NDArray[np.int64]) -> None:
        self.protocol = protocol
        self.tally = RankTally.empty(max(protocol.cutoffs), len(item_counts))
        self._key = stream_key(protocol.seed, "candidates", protocol.candidates)
        shares = np.cumsum(item_counts) / max(1, item_counts.sum())
        self._cumulative = shares if protocol.candidates == "popularity" else np.full(len(item_counts), -1.0)

    def take(
        self, users: NDArray[np.int64], scores_UV: NDArray[np.float32], targets_U: NDArray[np.int64], known: Known
    ) -> None:
        """One more block of users; the scores may be changed."""
        ranks = np.empty(len(users), np.int64)
        if self.protocol.num_drawn:
            drawn_ranks(scores_UV, targets_U, self._draw(users, targets_U, known), ranks)
            self.tally.add(ranks, targets_U, np.empty((0, 0), np.int64))
            return
        if self.protocol.filter_seen:
            hide_known(scores_UV, known)
        full_ranks(scores_UV, targets_U, ranks)
        lists = np.empty((len(users), min(len(self.tally.best_rank), self.tally.longest)), np.int64)
        take_top(scores_UV, lists)
        self.tally.add(ranks, targets_U, lists)

    def _draw(self, users: NDArray[np.int64], targets_U: NDArray[np.int64], known: Known) -> NDArray[np.int64]:
        refuse_too_few(self.protocol, len(self._cumulative), known)
        drawn = np.empty((len(users), self.protocol.num_drawn), np.int64)
        keys = np.array([stream_key(self._key, int(user)) for user in users], np.uint64)
        draw_candidates(keys, targets_U, known, self._cumulative, drawn)
        return drawn


@dataclass
class RankTally:
    """How often each rank occurred, and how high up each item ever stood in a list; adds up over processes."""

    num_at_rank: NDArray[np.int64]  # of ranks 1 … K; at 0: all that are lower, and targets that are no item
    best_rank: NDArray[np.int64]  # (V), 0: in no list
    num_users: int = 0
    # Targets that count as not found: those that no training event has, and known ones where these are removed.
    num_unknown: int = 0
    num_removed: int = 0

    @staticmethod
    def empty(longest: int, num_items: int) -> "RankTally":
        """Of no user."""
        return RankTally(np.zeros(longest + 1, np.int64), np.zeros(num_items, np.int64))

    @property
    def longest(self) -> int:
        """K."""
        return len(self.num_at_rank) - 1

    def add(self, ranks: NDArray[np.int64], targets: NDArray[np.int64], lists: NDArray[np.int64]) -> None:
        """Some users' ranks (0: none), the targets that have them, and lists of places if all items competed."""
        self.num_users += len(ranks)
        self.num_unknown += int((targets < 1).sum())
        self.num_removed += int(((ranks == 0) & (targets >= 1)).sum())
        self.num_at_rank += np.bincount(np.where(ranks > self.longest, 0, ranks), minlength=self.longest + 1)
        for place in range(lists.shape[1]):
            listed = lists[:, place][lists[:, place] >= 0]
            unseen_so_far = listed[(self.best_rank[listed] == 0) | (self.best_rank[listed] > place + 1)]
            self.best_rank[unseen_so_far] = place + 1

    def merge(self, other: "RankTally") -> None:
        """The users of another process as well."""
        self.num_at_rank += other.num_at_rank
        self.num_users += other.num_users
        self.num_unknown += other.num_unknown
        self.num_removed += other.num_removed
        never = np.iinfo(np.int64).max
        ours, theirs = (np.where(ranks == 0, never, ranks) for ranks in (self.best_rank, other.best_rank))
        nearest = np.minimum(ours, theirs)
        self.best_rank[:] = np.where(nearest == never, 0, nearest)

    def metrics(self, protocol: Protocol) -> dict[str, float]:
        """HR, NDCG and MRR at every cutoff, and the share of items in any list; names tell the protocol.

        Those of no user are no number.
        """
        gains = 1 / np.log2(np.arange(1, self.longest + 1) + 1)
        inverses = 1 / np.arange(1, self.longest + 1)
        named, users = dict[str, float](), self.num_users or math.nan
        for cutoff in protocol.cutoffs:
            hits = self.num_at_rank[1 : cutoff + 1]
            values = {"hr": hits.sum(), "ndcg": hits @ gains[:cutoff], "mrr": hits @ inverses[:cutoff]}
            named |= {f"{name}@{cutoff}{protocol.suffix}": float(value / users) for name, value in values.items()}
            if not protocol.num_drawn:
                listed = ((self.best_rank > 0) & (self.best_rank <= cutoff)).sum()
                named[f"coverage@{cutoff}{protocol.suffix}"] = float(listed / len(self.best_rank))
        return named

    def as_dict(self, protocol: Protocol) -> dict[str, Any]:
        """Plain numbers for JSON, the protocol beside them."""
        return {
            **{name: None if math.isnan(value) else value for name, value in self.metrics(protocol).items()},
            "num_users": self.num_users,
            "num_unknown_targets": self.num_unknown,
            "num_removed_targets": self.num_removed,
            "protocol": protocol.resolved(),
        }
