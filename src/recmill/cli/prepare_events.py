"""`recmill prepare --preset goodreads|movielens|user-item|events`: events to sequences by user."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.errors import ConfigError

if TYPE_CHECKING:
    from recmill.data.prepared.stages import OnProgress, Record

# Options of the other kind of preparation, with the values they have when they are not given.
_CLICK_OPTIONS: dict[str, Any] = {
    "min_count": None,
    "max_values": None,
    "modulo": None,
    "multi_hot": None,
    "multi_hot_distribution": None,
    "test_after": None,
    "test_days": None,
    "store": "npy",
    "seed": None,
    "memory": "2GiB",
}
_SETTINGS: dict[str, tuple[Any, str]] = {  # of [data]
    "max_bad_frac": (float, "a share, 0 to 1"),
    "max_unpacked_bytes": (int, "a number of bytes"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what only presets of events take; without a value, the preset's own."""
    group = parser.add_argument_group("sequences (presets goodreads, movielens, user-item, events)")
    group.add_argument("--order", choices=("time", "file", "item"), help="of a user's events; ties keep file order")
    group.add_argument("--min-length", type=int, metavar="N", help="users with fewer events are dropped")
    group.add_argument("--max-length", type=int, metavar="N", help="users with more events are dropped")
    group.add_argument("--min-item-count", type=int, metavar="N", help="items with fewer events are dropped")
    group.add_argument("--k-core", action="store_true", default=None, help="repeat that until nothing changes")
    group.add_argument("--only-read", action="store_true", default=None, help="events with is_read = 1")
    group.add_argument("--min-rating", type=float, metavar="R", help="events with this rating or a better one")
    group.add_argument("--repeats", choices=("keep", "first", "last"), help="of the same user and item")
    group.add_argument("--split", choices=("leave_one_out", "last", "time"), help="what is held out")
    group.add_argument("--validation-frac", type=float, metavar="X", help="of events, for --split time (0.1)")
    group.add_argument("--test-frac", type=float, metavar="X", help="of events, for --split time (0.1)")


def is_wanted(args: argparse.Namespace) -> bool:
    """Whether the preset is one of events; options of the other kind are rejected."""
    from recmill.data.encode.presets import find_preset
    from recmill.settings.events import EVENT_PRESETS, EventRules

    if args.preset in EVENT_PRESETS:
        for name, default in _CLICK_OPTIONS.items():
            if getattr(args, name) != default:
                raise ConfigError(f"{_option(name)} does nothing for --preset {args.preset}; leave it out")
        read_settings(args.assignments, args.preset)
        return True
    find_preset(args.preset)
    for name in EventRules.model_fields:
        if getattr(args, name) is not None:
            raise ConfigError(
                f"{_option(name)} does nothing for --preset {args.preset}; it is for {', '.join(EVENT_PRESETS)}"
            )
    return False


def read_settings(assignments: Sequence[str], preset: str) -> dict[str, Any]:
    """Those of the settings of [data] that matter for events, by their names there; others are rejected."""
    found = dict[str, Any]()
    for assignment in assignments:
        key, _, text = assignment.partition("=")
        name = key.strip().removeprefix("data.")
        if key.strip() != f"data.{name}" or name not in _SETTINGS:
            raise ConfigError(f"--set {key} does nothing for --preset {preset}; leave it out")
        kind, told = _SETTINGS[name]
        try:
            found[name] = kind(text)
        except ValueError:
            raise ConfigError(f"--set data.{name}={text}: it is {told}") from None
    return found


def _option(name: str) -> str:
    return {"store": "--format"}.get(name, "--" + name.replace("_", "-"))


def run(args: argparse.Namespace, on_progress: "OnProgress") -> "Record":
    """Prepare; the manifest."""
    from recmill.api.data import prepare_events
    from recmill.settings.events import EventRules

    return prepare_events(
        args.data,
        out=args.out,
        preset=args.preset,
        schema=None if args.schema == "criteo" else args.schema,  # the option's default, which is for click logs
        rules={name: getattr(args, name) for name in EventRules.model_fields if getattr(args, name) is not None},
        jobs=args.jobs,
        bad_rows=args.bad_rows,
        overwrite=args.overwrite,
        on_progress=on_progress,
        **read_settings(args.assignments, args.preset),
    )


def describe(manifest: "Record", out_dir: Path, seconds: float) -> str:
    """What was written."""
    stored = sum(file["bytes"] for file in manifest["files"].values())
    lines = [
        f"{out_dir}: {manifest['users']:,} users, {manifest['items']:,} items, {manifest['events']:,} events of "
        f"{manifest['read']:,} read, {stored / 2**20:,.1f} MiB, {manifest['read'] / seconds:,.0f} events/s",
        f"{manifest['train_events']:,} events to learn from, {manifest['validation_users']:,} users to validate and "
        f"{manifest['test_users']:,} to test on; "
        f"order {manifest['rules']['order']}, split {manifest['rules']['split']}",
        f"next: recmill train sasrec --data {out_dir} --run runs/{out_dir.name}"
        + ("" if manifest["validation_users"] else " --set stop.patience=0 --set stop.max_epochs=20"),
    ]
    if manifest["future_items"]:
        lines.append(
            f"{manifest['future_items']:,} items occur in held-out events only and have no id "
            f"({manifest['future_events']:,} events)"
        )
    if manifest["skipped_rows"]:
        lines.append(f"{manifest['skipped_rows']:,} bad lines ignored")
    return "\n".join(lines)
