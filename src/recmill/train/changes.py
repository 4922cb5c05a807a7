"""Which settings may change when a run goes on."""

from pathlib import Path

from recmill.config import setting_keys, value_at
from recmill.errors import ConfigError
from recmill.train.config import TrainConfig
from recmill.train.sequence_config import SequenceConfig

AnyConfig = TrainConfig | SequenceConfig
# What may differ when a run goes on: how long it runs and what it tells, never what it computes.
CHANGEABLE_ON_RESUME = ("cadence.", "stop.", "data.dir", "data.reader_threads", "data.prefetch_batches", "sharding.")


def refuse_changes(before: AnyConfig, after: AnyConfig, run_dir: Path) -> None:
    """Complain about settings with which a run would not be the one that it was."""
    for key in setting_keys(type(before)):
        old, new = value_at(before, key), value_at(after, key)
        if old != new and not key.startswith(CHANGEABLE_ON_RESUME):
            raise ConfigError(f"{key} was {old} in {run_dir} and cannot become {new}: it would be another run")
    if before.resolved_schedule != after.resolved_schedule:
        raise ConfigError(
            f"stop.max_steps was {before.stop.max_steps} in {run_dir} and cannot become {after.stop.max_steps}: "
            f"schedule.change_fracs = {list(after.schedule.change_fracs)} are shares of it"
        )
