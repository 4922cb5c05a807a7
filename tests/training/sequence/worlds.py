"""Tiny sequences of planted chains, settings for them, and their tasks."""

from pathlib import Path
from typing import Any

from recmill.data.events.prepare import EventJob, open_prepared_sequences, prepare_events
from recmill.data.synthetic.chains import EVENTS_FILE, ChainWorld, write_chains
from recmill.settings.events import EVENT_PRESETS
from recmill.settings.sequences import SequenceConfig
from recmill.settings.synthetic import ChainSpec
from recmill.settings.tree import from_tree, parse_assignments
from recmill.training.loop.signals import Signals
from recmill.training.sequence.task import SequenceTask, build_sequence_task
from recmill.world import Group

TINY = ("threads=1", "model.embedding_dim=8", "data.max_length=6", "data.global_batch=16", "dense.lr=0.01")


def make_world(directory: Path, **changes: Any) -> tuple[ChainWorld, Path]:
    spec = ChainSpec(**{"users": 200, "items": 60, "seed": 3, "min_length": 5, "max_length": 8, **changes})
    world, preset = write_chains(spec, directory / "world"), EVENT_PRESETS["events"]
    job = EventJob(directory / "world" / EVENTS_FILE, directory / "prepared", preset.schemas, preset.rules, preset.name)
    prepare_events(job)
    return world, directory / "prepared"


def resolve(data_dir: Path, *assignments: str) -> SequenceConfig:
    return from_tree(SequenceConfig, parse_assignments([f"data.dir={str(data_dir)!r}", *TINY, *assignments]))


def open_task(config: SequenceConfig, *, is_new: bool = True) -> SequenceTask:
    """In one process."""
    prepared = open_prepared_sequences(Path(config.data.dir))
    return build_sequence_task(config, prepared, Group(), None, Signals(), is_new=is_new)
