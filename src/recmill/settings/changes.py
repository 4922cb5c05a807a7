"""Which settings may change when a run goes on, and when it is evaluated."""

from pathlib import Path

from recmill.errors import ConfigError
from recmill.settings.families import AnyConfig
from recmill.settings.reflect import setting_keys
from recmill.settings.tree import Settings, Tree, flat_keys, value_at

# What may differ when a run goes on: how long it runs and what it tells, never what it computes.
# Rows that were read while bad ones ended the run are the same ones as while bad ones are skipped.
CHANGEABLE_ON_RESUME = (
    *("cadence.", "stop.", "sharding.", "store.", "world.", "device"),
    "model.layers",  # a name, as a record
    *("data.dir", "data.reader_threads", "data.prefetch_batches", "data.bad_rows", "data.verify", "data.access"),
    *("data.max_bad_frac", "data.keep_values", "data.max_unpacked_bytes"),
)
# What may differ when a run is evaluated: on what, and how; never the model.
CHANGEABLE_ON_EVALUATION = (
    "protocol.",
    "store.",
    "data.eval_batch",
    "data.max_{split}_",
    "data.bad_rows",
    "data.max_bad_frac",
    "data.max_unpacked_bytes",
    "threads",
)

# What may differ among the processes of one run: where each finds what all have, and how it goes about its share.
MAY_DIFFER_AMONG_PROCESSES = (
    *("world.", "threads", "device", "model.layers", "data.dir", "data.vocabulary", "data.verify", "data.access"),
    *("data.reader_threads", "data.prefetch_batches", "data.keep_values"),
)


def refuse_changes(before: AnyConfig, after: AnyConfig, run_dir: Path) -> None:
    """Complain about settings with which a run would become another one."""
    for key in setting_keys(type(before)):
        old, new = value_at(before, key), value_at(after, key)
        if old != new and not key.startswith(CHANGEABLE_ON_RESUME):
            raise ConfigError(f"{key} was {old} in {run_dir} and cannot become {new}: it would be another run")
    if before.resolved_schedule != after.resolved_schedule:
        raise ConfigError(
            f"stop.max_steps was {before.stop.max_steps} in {run_dir} and cannot become {after.stop.max_steps}: "
            f"schedule.change_fracs = {list(after.schedule.change_fracs)} are shares of it"
        )


def find_difference(saved: Settings, run: Settings) -> str | None:
    """In words, the first setting in which a saved state and its run are not the same run; None if there is none."""
    for key in setting_keys(type(saved)):
        old, new = value_at(saved, key), value_at(run, key) if type(run) is type(saved) else None
        if old != new and not key.startswith(CHANGEABLE_ON_RESUME):
            return f"{key} is {new} in the one and {old} in the other"
    return None


def common_settings(config: AnyConfig) -> dict[str, str]:
    """The settings that all processes of a run have to have in common, as text by key."""
    keys = (key for key in setting_keys(type(config)) if not key.startswith(MAY_DIFFER_AMONG_PROCESSES))
    return {key: str(value_at(config, key)) for key in keys}


def refuse_other_model(changes: Tree, split: str) -> None:
    """Complain about changes of how a run was trained, where its weights are only evaluated on a split."""
    allowed = tuple(key.format(split=split) for key in CHANGEABLE_ON_EVALUATION)
    for key in flat_keys(changes):
        if not key.startswith(allowed):
            raise ConfigError(
                f"{key}: a run is evaluated with the settings it was trained with; what may be set is "
                f"{', '.join(f'{key}…' if key[-1] in '._' else key for key in allowed)}"
            )
