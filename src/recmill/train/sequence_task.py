"""Sequence models as a task: batches of windows, a step on each, and ranks of what came next."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recmill.data.batch import Position
from recmill.data.prepare_events import PreparedSequences, open_prepared_sequences
from recmill.data.sequences import Heldout, WindowOrder, WindowStream, cut_windows, heldout_users
from recmill.data.split import SplitName
from recmill.errors import ConfigError
from recmill.files import stated_checksum
from recmill.memory import keep_freed_memory
from recmill.models.baselines import Scorer
from recmill.ranking import Judge
from recmill.train.assemble import use_threads
from recmill.train.limits import least_rows
from recmill.train.local_steps import LocalSteps
from recmill.train.sequence_config import SequenceConfig
from recmill.train.sequence_evaluate import SequenceEvaluation, build_baselines, choose_users, judge
from recmill.train.sequence_step import SequenceParts, build_sequence_parts, take_sequence_step
from recmill.train.signals import Signals


@dataclass
class SequenceTask:
    """A sequence model in one process."""

    state: SequenceParts
    prepared: PreparedSequences
    signals: Signals = field(default_factory=Signals)
    score_name = "ndcg@10"

    def __post_init__(self) -> None:
        self.score_name = f"ndcg@10{self.config.protocol.suffix}"

    @property
    def config(self) -> SequenceConfig:
        """All settings."""
        return self.state.config

    settings = config

    @property
    def order(self) -> WindowOrder:
        """How windows are cut and dealt."""
        data, epochs = self.config.data, self.config.stop.max_epochs or None
        task = self.state.model.task
        return WindowOrder(task, data.max_length, data.window_step, data.global_batch, self.config.seed, epochs)

    @property
    def rows_per_epoch(self) -> int:
        """How many windows there are to train on."""
        return len(cut_windows(self.prepared.sequences, self.order).starts)

    @contextmanager
    def open_steps(self, start: Position | None) -> Iterator[LocalSteps]:
        """Steps from a position on."""
        with WindowStream(self.prepared.sequences, self.order, self.config.masking, start=start) as stream:
            take_step = partial(take_sequence_step, self.state)
            yield LocalSteps(stream, take_step, least_rows(self.config.data), self.signals)

    def evaluate(self, split: SplitName) -> SequenceEvaluation:
        """Rank what came next for the users of a split."""
        return self.judge(self.state.model, split)

    def judge(self, scorer: Scorer, split: SplitName) -> SequenceEvaluation:
        """The same for any scorer."""
        heldout: Heldout = "validation" if split == "validation" else "test"
        data, sequences = self.config.data, self.prepared.sequences
        limit = data.max_validation_users if heldout == "validation" else data.max_test_users
        users = choose_users(sequences, heldout, limit)
        protocol = self.config.protocol
        tally = judge(scorer, sequences, heldout, Judge(protocol, self.prepared.item_counts), users, data.eval_batch)
        return SequenceEvaluation(split, protocol, tally, len(users) == len(heldout_users(sequences, heldout)))

    def judge_baselines(self, split: SplitName) -> dict[str, dict[str, Any]]:
        """What popularity and first-order transitions score under the same protocol."""
        baselines = build_baselines(self.prepared.sequences, self.prepared.item_counts)
        return {name: self.judge(scorer, split).as_dict() for name, scorer in baselines.items()}

    def rates(self) -> dict[str, float]:
        """The learning rates."""
        rates = {"dense_lr": self.state.optimizer.param_groups[0]["lr"]}
        return {**rates, "table_lr": self.state.tables.lr} if self.state.tables else rates

    def is_finite(self) -> bool:
        """Whether every weight is a number."""
        layers = all(bool(torch.isfinite(tensor).all()) for tensor in self.state.model.state_dict().values())
        tables = self.state.tables
        return layers and (tables is None or bool(np.isfinite(tables.weights("item")).all()))


def open_sequence_task(config: SequenceConfig) -> SequenceTask:
    """The task that the settings describe, with first values."""
    if not config.data.dir:
        raise ConfigError("data.dir is not set; give the directory of the prepared sequences with --data DIR")
    use_threads(config.threads)
    prepared = open_prepared_sequences(Path(config.data.dir), verify=config.data.verify)
    catalogue = stated_checksum(prepared.manifest["files"]["items.arrow"])
    parts = build_sequence_parts(config, prepared.item_counts, catalogue)
    keep_freed_memory()  # from here on: the item vectors, which stay, are better mapped
    return SequenceTask(parts, prepared)
