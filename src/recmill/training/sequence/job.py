"""Sequence models as a job: the prepared sequences they open, what they check, and where item vectors are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recmill.data.events.prepare import PreparedSequences, open_prepared_sequences
from recmill.errors import ConfigError
from recmill.files import has_manifest
from recmill.memory import limit_bytes
from recmill.settings.run import WarmStart
from recmill.settings.sequences import SequenceConfig
from recmill.training.device import require_torchrec
from recmill.training.loop.signals import Signals
from recmill.training.sequence.evaluate import refuse_unfit_protocol
from recmill.training.sequence.plan import refuse_large_run
from recmill.training.sequence.sharding import spread_kind
from recmill.training.sequence.task import SequenceTask, build_sequence_task
from recmill.verified import read_verified
from recmill.world import Group, World


class SequenceJob:
    """A run of a sequence model."""

    def __init__(self, config: SequenceConfig, build_layers: Callable[..., Any] | None = None) -> None:
        if build_layers is not None:
            raise ConfigError(
                f"model.kind = {config.model.kind} is a sequence model, and layers of one's own are for click models; "
                "leave out model=..."
            )
        self._config = config
        self._prepared: PreparedSequences | None = None

    def uses_torchrec(self, world: World) -> bool:
        """Whether TorchRec spreads the item vectors over processes."""
        kind = spread_kind(self._config, world.size)
        if kind is not None:
            require_torchrec(f"sharding of item = {kind}")
        return kind is not None

    def verify(self) -> None:
        """Compare the checksums of prepared files, as the settings say."""
        data = self._config.data
        if data.dir and has_manifest(Path(data.dir)):
            read_verified(Path(data.dir), data.verify)

    @contextmanager
    def opened(self, *, is_verified: bool = False) -> Iterator[None]:
        """A body in which the sequences are open."""
        data = self._config.data
        if not data.dir:
            raise ConfigError("data.dir is not set; give the directory of the prepared sequences with --data DIR")
        self._prepared = open_prepared_sequences(Path(data.dir), verify="never" if is_verified else data.verify)
        yield

    def refuse_unfit(self, world: World) -> None:
        """Complain about a protocol that the data has no room for, and batches too small for the processes."""
        assert self._prepared is not None
        batch = self._config.data.global_batch
        if world.size > batch:
            raise ConfigError(
                f"{world.size} processes share data.global_batch = {batch} windows, and each needs one; "
                "raise it or use fewer processes"
            )
        sequences = self._prepared.sequences
        refuse_unfit_protocol(self._config, sequences)
        num_trained = int(sequences.train_lengths.sum())
        refuse_large_run(
            self._config, sequences.num_items, num_trained, limit_bytes() // world.local_size, num_procs=world.size
        )

    def refuse_warm_start(self, settings: WarmStart) -> None:
        """Sequence models have no such setting."""
        raise ConfigError(f"warm_start.from_dir = {settings.from_dir} is for click models; leave it out")

    def keep_values(self, run_dir: Path) -> None:
        """Nothing: prepared sequences have the names of their items."""

    def build_task(self, group: Group, signals: Signals, *, is_new: bool, run_dir: Path | None = None) -> SequenceTask:
        """The model and its item vectors."""
        del run_dir  # they are in memory
        assert self._prepared is not None
        kind = spread_kind(self._config, group.world.size)
        return build_sequence_task(self._config, self._prepared, group, kind, signals, is_new=is_new)
