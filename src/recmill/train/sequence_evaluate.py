"""A sequence model judged on events it was not trained on, and the baselines beside it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recmill.data.sequences import Heldout, Sequences, heldout_users, read_histories
from recmill.data.split import SplitName
from recmill.models.baselines import Scorer
from recmill.models.transitions import Transitions, count_transitions
from recmill.ranking import Judge, Known, Protocol, Tally
from recmill.seeds import rng

BLOCK_BYTES = 128 << 20  # of scores that exist at a time


@dataclass(frozen=True)
class SequenceEvaluation:
    """The metrics of a split under a protocol."""

    split: SplitName
    protocol: Protocol
    tally: Tally
    is_whole: bool = True  # False: a limit left users out

    @property
    def score(self) -> float | None:
        """NDCG@10, by which the best weights are chosen."""
        if not self.tally.num_users:
            return None
        return self.tally.metrics(self.protocol)[f"ndcg@10{self.protocol.suffix}"]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {**self.tally.as_dict(self.protocol), "whole_split": self.is_whole}

    def describe(self) -> str:
        """The metrics in a line."""
        shown = {name: value for name, value in self.tally.metrics(self.protocol).items() if "@10" in name}
        numbers = "  ".join(f"{name} {value:.5f}" for name, value in shown.items())
        only = "" if self.is_whole else "only "
        unknown = f", {self.tally.num_unknown:,} with an item never trained on" if self.tally.num_unknown else ""
        return (
            f"{self.split:<10}  {numbers}  ({self.protocol.describe()}; {only}{self.tally.num_users:,} users{unknown})"
        )


def count_items(sequences: Sequences) -> NDArray[np.int64]:
    """(V): how often each item occurs in training events."""
    counts = np.zeros(sequences.num_items + 1, np.int64)
    starts = sequences.offsets[:-1]
    step = 1 << 16  # users at a time: what is mapped need not be in memory at once
    for first in range(0, sequences.num_users, step):
        lengths = sequences.train_lengths[first : first + step].astype(np.int64)
        places = np.repeat(starts[first : first + step] - (np.cumsum(lengths) - lengths), lengths)
        counts += np.bincount(sequences.events[places + np.arange(len(places))], minlength=len(counts))
    return counts[1:]


def choose_users(sequences: Sequences, split: Heldout, limit: int) -> NDArray[np.int64]:
    """The users of a split, or so many of them, always the same."""
    users = heldout_users(sequences, split)
    if limit and limit < len(users):
        users = np.sort(rng(0, "users", split).choice(users, limit, replace=False))
    return users


def cut_blocks(users: NDArray[np.int64], num_items: int, eval_batch: int) -> list[NDArray[np.int64]]:
    """Users that are scored at once; whichever process scores a block, it has the same users and so the same scores."""
    block = max(1, min(eval_batch, BLOCK_BYTES // (4 * num_items)))
    return [users[start : start + block] for start in range(0, len(users), block)]


def judge(
    scorer: Scorer, sequences: Sequences, split: Heldout, judge: Judge, blocks: Iterable[NDArray[np.int64]]
) -> Tally:
    """Rank what came next for each user; scores exist for one block of users at a time."""
    for users in blocks:
        some = read_histories(sequences, split, users)
        known = Known(some.ids, np.concatenate([[0], np.cumsum(some.lengths)]))
        judge.take(some.users, scorer.score(some.ids, some.lengths), some.targets, known)
    return judge.tally


def read_transitions(sequences: Sequences) -> Transitions:
    """What followed what in training events."""
    return count_transitions(sequences.events, sequences.offsets, sequences.train_lengths, sequences.num_items)
