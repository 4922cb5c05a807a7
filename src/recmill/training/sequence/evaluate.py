"""A sequence model evaluated on events it was not trained on, and the baselines beside it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recmill.data.events.windows import Heldout, Sequences, heldout_users, read_histories
from recmill.errors import ConfigError
from recmill.models.sequence.baselines import Scorer
from recmill.models.sequence.transitions import Transitions, count_transitions
from recmill.ranking import Known, RankEvaluator, RankTally, is_at_ten, refuse_too_few
from recmill.seeds import rng
from recmill.settings.data import SplitName
from recmill.settings.protocol import Protocol
from recmill.settings.sequences import SequenceConfig

BLOCK_BYTES = 128 << 20  # of scores that exist at a time


@dataclass(frozen=True)
class SequenceEvaluation:
    """The metrics of a split under a protocol."""

    split: SplitName
    protocol: Protocol
    tally: RankTally
    is_whole: bool = True  # False: a limit left users out

    @property
    def score(self) -> float | None:
        """NDCG@10, by which the best weights are chosen."""
        if not self.tally.num_users:
            return None
        return self.tally.metrics(self.protocol)[self.protocol.score_name]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {**self.tally.as_dict(self.protocol), "whole_split": self.is_whole}

    def describe(self) -> str:
        """The metrics in a line."""
        shown = {name: value for name, value in self.tally.metrics(self.protocol).items() if is_at_ten(name)}
        numbers = "  ".join(f"{name} {value:.5f}" for name, value in shown.items())
        only = "" if self.is_whole else "only "
        unknown = f", {self.tally.num_unknown:,} with an item never trained on" if self.tally.num_unknown else ""
        if self.tally.num_removed:
            unknown += f", {self.tally.num_removed:,} with one that is removed because they know it"
        return (
            f"{self.split:<10}  {numbers}  ({self.protocol.describe()}; {only}{self.tally.num_users:,} users{unknown})"
        )


def choose_users(sequences: Sequences, split: Heldout, limit: int) -> NDArray[np.int64]:
    """The users of a split, or so many of them, always the same."""
    users = heldout_users(sequences, split)
    if limit and limit < len(users):
        users = np.sort(rng(0, "users", split).choice(users, limit, replace=False))
    return users


def block_size(num_items: int, eval_batch: int) -> int:
    """How many users are scored at once: `eval_batch`, fewer where the catalogue is large."""
    return max(1, min(eval_batch, BLOCK_BYTES // (4 * num_items)))


def cut_blocks(users: NDArray[np.int64], num_items: int, eval_batch: int) -> list[NDArray[np.int64]]:
    """Users that are scored at once; whichever process scores a block, it has the same users and so the same scores."""
    block = block_size(num_items, eval_batch)
    return [users[start : start + block] for start in range(0, len(users), block)]


def rank_users(
    scorer: Scorer, sequences: Sequences, split: Heldout, sums: RankEvaluator, blocks: Iterable[NDArray[np.int64]]
) -> RankTally:
    """Rank what came next for each user; scores exist for one block of users at a time."""
    for users in blocks:
        some = read_histories(sequences, split, users)
        sums.take(some.users, scorer.score(some.ids, some.lengths), some.targets, Known.of(some.ids, some.lengths))
    return sums.tally


def refuse_unfit_protocol(config: SequenceConfig, sequences: Sequences) -> None:
    """Complain, before anything is trained, about a protocol that the data has no room for."""
    if config.stop.patience and not len(heldout_users(sequences, "validation")):
        raise ConfigError(
            f"stop.patience = {config.stop.patience} waits for a better validation, and no user of "
            f"{config.data.dir} has an event to validate on; set stop.patience=0 and stop.max_epochs or stop.max_steps"
        )
    if not config.protocol.num_drawn:
        return
    splits: tuple[Heldout, ...] = ("validation", "test")
    for split in splits:
        users = heldout_users(sequences, split)
        long_enough = sequences.target_places(split)[users] >= sequences.num_items - config.protocol.num_drawn
        some = read_histories(sequences, split, users[long_enough])
        refuse_too_few(config.protocol, sequences.num_items, Known.of(some.ids, some.lengths))


def read_transitions(sequences: Sequences) -> Transitions:
    """What followed what in training events."""
    return count_transitions(sequences.events, sequences.offsets, sequences.train_lengths, sequences.num_items)
