"""Which settings may change when a run goes on, and when it is judged."""

from collections.abc import Sequence
from pathlib import Path

from recmill.errors import ConfigError
from recmill.settings.clicks import TrainConfig
from recmill.settings.sequences import SequenceConfig
from recmill.settings.tree import setting_keys, value_at

AnyConfig = TrainConfig | SequenceConfig
# What may differ when a run goes on: how long it runs and what it tells, never what it computes.
CHANGEABLE_ON_RESUME = ("cadence.", "stop.", "data.dir", "data.reader_threads", "data.prefetch_batches", "sharding.")
# What may differ when a run is judged: whom, and how; never the model.
CHANGEABLE_ON_EVALUATION = ("protocol.", "data.eval_batch", "data.max_{split}_", "threads")


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


def refuse_other_model(assignments: Sequence[str], split: str) -> None:
    """Complain about `section.key=value`s that say how a run is trained, where it is only judged on a split."""
    allowed = tuple(key.format(split=split) for key in CHANGEABLE_ON_EVALUATION)
    for assignment in assignments:
        if not assignment.strip().startswith(allowed):
            raise ConfigError(
                f"--set {assignment}: a run is judged with the settings it was trained with; what may be set is "
                f"{', '.join(f'{key}…' if key[-1] in '._' else key for key in allowed)}"
            )
