"""Sequence models as a task, in one process or over a group: windows, a step on each batch, ranks of what came next."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from recmill.data.batch import Position
from recmill.data.events.arrow import SEQUENCES
from recmill.data.events.prepare import PreparedSequences
from recmill.data.events.windows import WindowOrder, WindowStream, cut_windows, heldout_users
from recmill.files import stated_checksum
from recmill.memory import keep_freed_memory
from recmill.models.sequence.baselines import Markov, Popularity, Scorer
from recmill.models.sequence.co_occurrence import mix_neighbours
from recmill.models.sequence.encoder import first_item_vectors
from recmill.ranking import RankEvaluator
from recmill.settings.data import SplitName
from recmill.settings.run import ShardKind
from recmill.settings.sequences import SequenceConfig
from recmill.training.loop.global_batch import part_of
from recmill.training.loop.ledger import fingerprint_windows
from recmill.training.loop.limits import least_rows
from recmill.training.loop.local_steps import LocalSteps
from recmill.training.loop.signals import Signals
from recmill.training.sequence.evaluate import (
    SequenceEvaluation,
    choose_users,
    cut_blocks,
    rank_users,
    read_transitions,
)
from recmill.training.sequence.sharding import plan_items
from recmill.training.sequence.step import (
    DataIdentity,
    SequenceState,
    build_sequence_state,
    table_weights,
    take_sequence_step,
)
from recmill.training.threads import use_threads
from recmill.world import Group

DEFAULT_ROUNDS = 3
NEIGHBOUR_REACH = 2  # events


@dataclass
class SequenceTask:
    """A sequence model; of several processes, all call everything."""

    state: SequenceState
    prepared: PreparedSequences
    signals: Signals = field(default_factory=Signals)
    score_name = "ndcg@10"

    def __post_init__(self) -> None:
        self.score_name = self.config.protocol.score_name

    @property
    def config(self) -> SequenceConfig:
        """All settings."""
        return self.state.config

    settings = config

    @property
    def order(self) -> WindowOrder:
        """How windows are cut and put into batches."""
        data, epochs = self.config.data, self.config.stop.max_epochs or None
        task = self.state.model.task
        return WindowOrder(
            task, data.max_length, data.step_of_windows(task), data.global_batch, self.config.seed, epochs
        )

    @cached_property
    def rows_per_epoch(self) -> int:
        """How many windows there are to train on."""
        return len(cut_windows(self.prepared.sequences, self.order).starts)

    @contextmanager
    def open_steps(self, start: Position | None) -> Iterator[LocalSteps]:
        """Steps from a position on."""
        sequences, group = self.prepared.sequences, self.state.group
        part = part_of(group.world)
        with WindowStream(sequences, self.order, self.config.masking, start=start, part=part) as stream:
            take_step, least = partial(take_sequence_step, self.state), least_rows(self.config.data)
            yield LocalSteps(stream, take_step, fingerprint_windows, least, self.signals, group)

    def evaluate(self, split: SplitName) -> SequenceEvaluation:
        """Rank what came next for the users of a split."""
        with self.ready_to_score():
            return self.evaluate_scorer(self.state.model, split)

    @contextmanager
    def ready_to_score(self) -> Iterator[None]:
        """A body in which the weights are those that are evaluated, and every process has all item vectors at hand."""
        average, tables = self.state.average, self.state.tables
        with average.in_place() if average else nullcontext(), tables.gathered() if tables else nullcontext():
            yield

    def evaluate_scorer(self, scorer: Scorer, split: SplitName) -> SequenceEvaluation:
        """The same for any scorer: each process ranks for some of the users, and the counts are added up."""
        assert split != "train"
        data, sequences = self.config.data, self.prepared.sequences
        limit = data.max_validation_users if split == "validation" else data.max_test_users
        users = choose_users(sequences, split, limit)
        protocol, group = self.config.protocol, self.state.group
        blocks = cut_blocks(users, sequences.num_items, data.eval_batch)[group.world.rank :: group.world.size]
        with group.together():
            part = rank_users(scorer, sequences, split, RankEvaluator(protocol, self.prepared.item_counts), blocks)
        tally, *others = group.gather(part)
        for other in others:
            tally.merge(other)
        return SequenceEvaluation(split, protocol, tally, len(users) == len(heldout_users(sequences, split)))

    def compare(self, split: SplitName, weights: str) -> dict[str, Any]:
        """The baselines, and the facts of the data that all results are of."""
        names = ("preset", "rules", "users", "items", "events", "future_items")
        return {
            "baselines": self.evaluate_baselines(split, weights),
            "data": {name: self.prepared.manifest[name] for name in names},
        }

    def evaluate_baselines(self, split: SplitName, weights: str) -> dict[str, dict[str, Any]]:
        """What popularity and first-order transitions score under the same protocol, and the network without these.

        The network is that of the weights which the task holds, and says which they are.
        """
        model, item_counts = self.state.model, self.prepared.item_counts
        transitions = model.transitions if model.transition_weight else read_transitions(self.prepared.sequences)
        assert transitions is not None
        baselines: dict[str, Scorer] = {
            "popularity": Popularity(item_counts),
            "markov": Markov(transitions, item_counts),
        }
        measured = {name: self.evaluate_scorer(scorer, split).as_dict() for name, scorer in baselines.items()}
        if not model.transition_weight:
            return measured
        with self.ready_to_score():
            return {**measured, "network": {**self.evaluate_scorer(model.network, split).as_dict(), "weights": weights}}

    def log_values(self) -> dict[str, float]:
        """The learning rates."""
        rates = {"dense_lr": self.state.optimizer.param_groups[0]["lr"]}
        return {**rates, "table_lr": self.state.tables.lr} if self.state.tables else rates

    def is_finite(self) -> bool:
        """Whether every weight that this process holds is a number."""
        pieces = (piece.values for piece in table_weights(self.state))
        return all(bool(tensor.isfinite().all()) for tensor in chain(self.state.model.state_dict().values(), pieces))


def build_sequence_task(
    config: SequenceConfig,
    prepared: PreparedSequences,
    group: Group,
    kind: ShardKind | None,
    signals: Signals,
    *,
    is_new: bool = True,
) -> SequenceTask:
    """The task that the settings describe; `kind` is how TorchRec spreads the item vectors.

    What is not new is read from a file next, so that first values that take long are left out.
    """
    use_threads(config.threads)
    identity = DataIdentity(prepared.catalogue.items_hash, stated_checksum(prepared.manifest["files"][SEQUENCES]))
    num_items = prepared.sequences.num_items
    plan = plan_items(config, num_items, kind, group.world.size) if kind else None
    state = build_sequence_state(config, prepared.item_counts, identity, group, plan)
    if config.model.item_init == "co_occurrence" and is_new:
        state.model.set_item_vectors(vectors_of_neighbours(config, prepared))
    if config.model.transition_weight:
        state.model.transitions = read_transitions(prepared.sequences)
    keep_freed_memory()  # from here on: the item vectors, which stay, are better mapped
    return SequenceTask(state, prepared, signals)


def vectors_of_neighbours(config: SequenceConfig, prepared: PreparedSequences) -> Tensor:
    """The first item vectors (V + 2, D), alike for items that co-occur in training events."""
    model, sequences = config.model, prepared.sequences
    begin = first_item_vectors(model, sequences.num_items + 2, config.seed).numpy()
    events = (sequences.events, sequences.offsets, sequences.train_lengths)
    mixed = mix_neighbours(
        begin, *events, prepared.item_counts, rounds=model.item_rounds or DEFAULT_ROUNDS, reach=NEIGHBOUR_REACH
    )
    return torch.from_numpy(mixed).mul_(model.item_std * model.embedding_dim**0.5)
