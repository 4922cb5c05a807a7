"""Wires event files → filtered rows → vocabularies → sequences by user → held-out events → a prepared directory.

1. The files are cut into parts. `read`: each part is parsed and filtered, and what is kept written down.
2. `group`: users and items get codes in the order of their values; every event goes behind those of its user.
3. `filter`: each user's events are ordered; repeats, rare items and users too short or too long are dropped; the last
   events, or those behind a moment, are held out. Items that no training event has get no id.
4. The directory gets its manifest and, with that, its name.

Each part of a stage leaves a record when it is done; a killed run goes on from those, and ends with the same bytes.
"""

import platform
import shutil
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recmill.data.events import grouping, interactions
from recmill.data.events.arrow import ITEMS, SEQUENCES, Catalogue, open_sequences, write_items, write_sequences
from recmill.data.events.opening import open_parts
from recmill.data.events.schema import find_event_files
from recmill.data.events.windows import PAD, UNKNOWN, Sequences
from recmill.data.logs.bad_rows import refuse_many_bad
from recmill.data.logs.text_file import Segment
from recmill.data.prepared.checks import refuse_unlisted
from recmill.data.prepared.manifest import SEQUENCES_FORMAT, prepared_kind
from recmill.data.prepared.stages import OnProgress, Record, Stages, finished_before, say_nothing
from recmill.errors import DataError
from recmill.files import (
    MANIFEST,
    is_of_recmill,
    read_listing,
    remove_scratch,
    replace_dir,
    require_free_space,
    taken_dir,
    write_atomic,
    write_manifest,
)
from recmill.settings.data import MAX_BAD_FRAC, BadRowPolicy, Verify
from recmill.settings.events import EventRules, EventSchema
from recmill.verified import PREPARE_ANEW, read_verified

_PART_BYTES = 16 << 20
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class EventJob:
    """What is to be prepared, and how."""

    data: Path
    out_dir: Path
    schemas: tuple[EventSchema, ...]  # variants; the files choose
    rules: EventRules
    preset: str
    jobs: int = 2
    bad_rows: BadRowPolicy = "fail"
    max_bad_frac: float = MAX_BAD_FRAC
    part_bytes: int = _PART_BYTES
    max_unpacked_bytes: int | None = None
    on_progress: OnProgress = field(default=say_nothing, repr=False, compare=False)

    @property
    def work_dir(self) -> Path:
        """Where a run that is not finished keeps what it has."""
        return self.out_dir.with_name(f".{self.out_dir.name}.preparing")


def prepare_events(job: EventJob, *, overwrite: bool = False) -> Record:
    """Do it; the manifest of the finished directory."""
    paths = find_event_files(job.data)
    plan = partial(_plan_of, job, paths)
    if not overwrite and (manifest := finished_before(job.out_dir, job.work_dir, plan)) is not None:
        return manifest
    with taken_dir(job.out_dir, overwrite=overwrite, is_ours=is_of_recmill, inputs=paths):
        return _prepare(job, paths, overwrite=overwrite)


def _prepare(job: EventJob, paths: tuple[Path, ...], *, overwrite: bool) -> Record:
    require_free_space(job.out_dir.parent, 3 * sum(path.stat().st_size for path in paths), f"preparing {job.out_dir}")
    preparation = _Preparation(job, paths, overwrite=overwrite)
    try:
        return preparation.run()
    except DataError:  # what is to be done about it, to the files or the rules, makes the work so far another's
        shutil.rmtree(job.work_dir, ignore_errors=True)
        raise


def _open(job: EventJob, paths: tuple[Path, ...]) -> tuple[EventSchema, list[Any]]:
    return open_parts(paths, job.schemas, job.part_bytes, job.max_unpacked_bytes)


def _plan_of(job: EventJob, paths: tuple[Path, ...], schema: EventSchema | None = None) -> Record:
    """What is done to which files; the schema that they fit is looked for, if it is not given."""
    found = _open(job, paths)[0] if schema is None else schema
    return {
        "preset": job.preset,
        "schema": found.model_dump(mode="json", exclude_none=True),
        "rules": job.rules.resolved(),
        "bad_rows": job.bad_rows,
        "part_bytes": job.part_bytes,
        "sources": {str(path.resolve()): [path.stat().st_size, path.stat().st_mtime_ns] for path in paths},
    }


class _Preparation:
    """One run through all stages."""

    def __init__(self, job: EventJob, paths: tuple[Path, ...], *, overwrite: bool) -> None:
        self._job = job
        self._schema, self._parts = _open(job, paths)
        self._roles = interactions.roles_of(self._schema, job.rules)
        self._plan = _plan_of(job, paths, self._schema)
        self._stages = Stages(job.work_dir, self._plan, jobs=job.jobs, overwrite=overwrite, on_progress=job.on_progress)
        self._result_dir = self._stages.result_dir

    def run(self) -> Record:
        """All stages, and the manifest of the result."""
        job = self._job
        if not self._parts:
            raise DataError(f"{job.data} holds no event; there is nothing to prepare")
        reads = self._stages.run("read", [1] * len(self._parts), self._read)
        num_read, num_kept = (sum(record[name] for record in reads) for name in ("read", "kept"))
        num_bad = sum(record["skipped"] for record in reads)
        first = (told for record in reads for told in record["bad"])
        refuse_many_bad(num_bad, num_read + num_bad, job.max_bad_frac, first)
        if not num_kept:
            why = "no line is an event" if not num_read else f"the filters let none of {num_read:,} events through"
            raise DataError(f"{job.data}: {why}; there is nothing to prepare")
        (grouped,) = self._stages.run("group", [1], lambda _part: self._group())
        (facts,) = self._stages.run("filter", [1], lambda _part: self._filter(grouped))
        counts = {"read": num_read, "kept_rows": num_kept, "skipped_rows": num_bad}
        return self._seal({**counts, **facts})

    def _part_path(self, part: int) -> Path:
        return self._job.work_dir / f"events-{part:05d}.arrow"

    def _values_path(self, name: str) -> Path:
        return self._job.work_dir / f"{name}-values.arrow"

    def _read(self, part: int) -> Record:
        piece, bad_rows = self._parts[part], self._job.bad_rows
        if isinstance(piece, Segment):
            frame, bad = interactions.read_text(piece, self._schema, self._roles, bad_rows)
            piece.source.forget(piece.start, piece.stop)
        else:
            frame, bad = interactions.read_parquet(piece, self._schema, self._roles, bad_rows)
        kept = interactions.write_part(frame, self._job.rules, self._part_path(part))
        return {"read": frame.height, "kept": kept, "skipped": bad.num_bad, "bad": bad.first}

    def _array(self, name: str, dtype: str, length: int, *, fresh: bool) -> NDArray[Any]:
        """A mapped scratch array."""
        path = self._job.work_dir / f"{name}.bin"
        if fresh:
            with path.open("wb") as file:
                file.truncate(max(1, length * np.dtype(dtype).itemsize))
        return np.memmap(path, dtype, "r+", shape=(length,))

    def _group(self) -> Record:
        """All events by user, and within one as they came."""
        paths = [self._part_path(part) for part in range(len(self._parts))]
        users, items = (interactions.count_values(paths, name) for name in ("user", "item"))
        offsets = np.concatenate([[0], np.cumsum(users["count"].to_numpy(), dtype=np.int64)])
        np.save(self._job.work_dir / "offsets.npy", offsets)
        for name, values in (("user", users), ("item", items)):
            values.write_ipc(self._values_path(name))
        has_time = "time" in self._roles
        placed = self._array("placed", "int32", int(offsets[-1]), fresh=True)
        times = self._array("times", "int64", int(offsets[-1]), fresh=True) if has_time else None
        user_coder, item_coder = interactions.Coder(users["user"]), interactions.Coder(items["item"])
        cursors, time_cursors = offsets[:-1].copy(), offsets[:-1].copy()
        for path in paths:
            frame = interactions.read_part(path)
            user_codes = user_coder.encode(frame["user"])
            grouping.place_events(user_codes, item_coder.encode(frame["item"]), cursors, placed)
            if times is not None:
                grouping.place_times(user_codes, frame["time"].to_numpy(), time_cursors, times)
        moved = np.zeros(users.height, np.bool_)
        if times is not None:
            grouping.sort_by_time(offsets, placed, times, moved)
        elif self._job.rules.order == "item":
            grouping.sort_by_item(offsets, placed)
        return {
            "events": int(offsets[-1]),
            "users": users.height,
            "items": items.height,
            "reordered_users": int(moved.sum()),
        }

    def _filter(self, grouped: Record) -> Record:
        """Drop, hold out and number; writes the result."""
        rules, num_events, num_items = self._job.rules, grouped["events"], grouped["items"]
        offsets: NDArray[np.int64] = np.load(self._job.work_dir / "offsets.npy")
        items = self._array("placed", "int32", num_events, fresh=False)
        alive = np.ones(num_events, np.bool_)
        repeats = 0
        if rules.repeats != "keep":
            repeats = int(grouping.drop_repeats(offsets, items, num_items, rules.repeats == "last", alive))
        rounds, rare = self._drop_rare(offsets, items, num_items, alive)
        lengths = np.empty(grouped["users"], np.int64)
        grouping.count_lengths(offsets, alive, lengths)
        survivors = np.flatnonzero(lengths)
        if not len(survivors):
            raise DataError(
                f"no user of {grouped['users']:,} is left behind the filters (length {rules.min_length} to "
                f"{rules.max_length or 'any'}, items with {rules.min_item_count} events or more); loosen them"
            )
        kept = np.concatenate([[0], np.cumsum(lengths[survivors])])
        kept_items = self._array("kept", "int32", int(kept[-1]), fresh=True)
        grouping.compact(items, alive, kept_items)
        kept_times = None
        if "time" in self._roles:
            kept_times = self._array("kept-times", "int64", int(kept[-1]), fresh=True)
            grouping.compact(self._array("times", "int64", num_events, fresh=False), alive, kept_times)
        told = {
            "reordered_users": grouped["reordered_users"],
            "repeats": repeats,
            "rare_events": rare,
            "filter_rounds": rounds,
        }
        return {**told, **self._hold_out(kept, kept_items, kept_times, num_items, survivors)}

    def _drop_rare(
        self, offsets: NDArray[np.int64], items: NDArray[np.int32], num_items: int, alive: NDArray[np.bool_]
    ) -> tuple[int, int]:
        """How many rounds it took, and how many events were dropped."""
        rules, counts, rounds, total = self._job.rules, np.empty(num_items, np.int64), 0, 0
        limits = (rules.min_item_count, rules.min_length, rules.max_length or _NO_LIMIT)
        while True:
            grouping.count_alive(items, alive, counts)
            dropped = int(grouping.drop_rare(offsets, items, counts, limits, alive))
            rounds, total = rounds + 1, total + dropped
            if not rules.k_core or not dropped:
                return rounds, total

    def _hold_out(
        self,
        offsets: NDArray[np.int64],
        items: NDArray[np.int32],
        times: NDArray[np.int64] | None,
        num_items: int,
        survivors: NDArray[np.int64],
    ) -> Record:
        """Say which events are for what, give ids to the items of training events, and write it all down."""
        places, moments = self._choose_places(offsets, times)
        trained_counts, counts = np.zeros(num_items, np.int64), np.zeros(num_items, np.int64)
        grouping.count_trained(offsets, items, places.train_lengths, trained_counts)
        grouping.count_trained(offsets, items, np.diff(offsets).astype(np.int32), counts)
        trained = np.flatnonzero(trained_counts)
        numbers = np.full(num_items, UNKNOWN, np.int32)
        numbers[trained] = np.arange(PAD + 1, PAD + 1 + len(trained), dtype=np.int32)
        unknown = int(grouping.number_items(offsets, items, numbers, places))
        values = {name: interactions.read_part(self._values_path(name))[name] for name in ("user", "item")}
        users = interactions.chosen_values(values["user"], survivors)
        write_sequences(self._result_dir, users, offsets, items, places)
        write_items(self._result_dir, interactions.chosen_values(values["item"], trained), trained_counts[trained])
        has_target = (places.validation_at >= 0) | (places.test_at >= 0)
        return {
            "users": len(survivors),
            "items": len(trained),
            "events": len(items),
            "train_events": int(places.train_lengths.sum()),
            "validation_users": int((places.validation_at >= 0).sum()),
            "test_users": int((places.test_at >= 0).sum()),
            "untargeted_users": int(((places.train_lengths < np.diff(offsets)) & ~has_target).sum()),
            "future_items": int((counts > 0).sum()) - len(trained),
            "future_events": unknown,
            **moments,
        }

    def _choose_places(
        self, offsets: NDArray[np.int64], times: NDArray[np.int64] | None
    ) -> tuple[grouping.Places, dict[str, int]]:
        """What each user's events are for, and the moments of a split by time."""
        rules, places = self._job.rules, grouping.empty_places(len(offsets) - 1)
        if rules.split != "time":
            grouping.hold_out_last(offsets, rules.split == "leave_one_out", places)
            return places, {}
        assert times is not None
        shares = {"validation_from": rules.heldout_frac, "test_from": rules.last_frac}
        moments = {name: grouping.find_moment(times, round(len(times) * (1 - share))) for name, share in shares.items()}
        grouping.hold_out_later(offsets, times, moments["validation_from"], moments["test_from"], places)
        return places, moments

    def _seal(self, facts: Record) -> Record:
        job, directory = self._job, self._result_dir
        remove_scratch(directory)
        write_atomic(directory / "README.md", describe(facts, job.preset, job.rules))
        names = ("recmill", "numpy", "polars", "pyarrow")
        versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
        plan = {key: self._plan[key] for key in ("preset", "schema", "rules", "sources")}
        write_manifest(directory, format=SEQUENCES_FORMAT, **plan, **facts, versions=versions)
        replace_dir(directory, job.out_dir)
        shutil.rmtree(job.work_dir, ignore_errors=True)  # the result has its name, whatever becomes of the rest
        return read_listing(job.out_dir)


def describe(facts: Record, preset: str, rules: EventRules) -> str:
    """A page for people."""
    told = ", ".join(f"{name} = {value}" for name, value in rules.model_dump(exclude_none=True).items())
    lines = [
        "# Prepared sequences",
        "",
        f"Preset `{preset}`: {told}.",
        "",
        f"{facts['users']:,} users, {facts['items']:,} items, {facts['events']:,} events, {facts['train_events']:,} of "
        f"them to learn from; {facts['validation_users']:,} users to validate and {facts['test_users']:,} to test on.",
        f"{facts['untargeted_users']:,} users have held-out events and nothing before them to predict these from; they "
        "are not evaluated.",
        f"{facts['future_items']:,} items occur in held-out events only ({facts['future_events']:,} events): they have "
        "no id, and who was to be recommended one counts as missed.",
        f"Events read: {facts['read']:,}; ignored as bad: {facts['skipped_rows']:,}; left by the filters of rows: "
        f"{facts['kept_rows']:,}; repeats dropped: {facts['repeats']:,}; dropped with rare items and users: "
        f"{facts['rare_events']:,}, in {facts['filter_rounds']} rounds.",
        "",
        "`sequences.arrow` has a row for each user: user, events (ids of items, 1 and more; −1 without an id), "
        "train_lengths, validation_at, test_at (places of the held-out events, −1 for none).",
        "`items.arrow` has the item of each id, from 1 on, and its number of training events.",
        "",
    ]
    return "\n".join(lines)


# what results tell of the data
_FACTS = ("preset", "rules", "users", "items", "events", "future_items")


@dataclass(frozen=True)
class PreparedSequences:
    """A prepared directory, opened: nothing is in memory before it is looked at."""

    sequences: Sequences
    item_counts: NDArray[np.int64]
    catalogue: Catalogue
    manifest: Record


def open_prepared_sequences(directory: Path, *, verify: Verify = "once") -> PreparedSequences:
    """What `prepare_events` wrote, or a complaint about the directory."""
    if prepared_kind(directory) != "sequences":
        raise DataError(
            f"{directory} holds no prepared sequences, or its {MANIFEST} is damaged; `recmill prepare --preset "
            "goodreads|movielens|user-item|events --data FILE --out DIR` writes some"
        )
    manifest = read_verified(directory, verify)
    refuse_unlisted((SEQUENCES, ITEMS), manifest["files"], directory)
    if missing := next((name for name in _FACTS if name not in manifest), None):
        raise DataError(f"{directory / MANIFEST} is damaged: it has no {missing}; {PREPARE_ANEW}")
    return PreparedSequences(*open_sequences(directory, verify), manifest)
