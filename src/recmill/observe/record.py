"""Numbers over the steps of a run, in two forms: `metrics.jsonl` for programs, TensorBoard events for eyes."""

import json
import math
import os
import socket
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from recmill.errors import RunError
from recmill.files import write_atomic
from recmill.own_files import ANYTHING, TEXT, MisfitError, Table, number, parse_json, read_own_bytes, whole

METRICS = "metrics.jsonl"
Key = tuple[str, int, str | None]  # kind, step, split
_RECORD = Table(
    fields={"kind": TEXT, "step": whole(), "time": number()},
    optional={"split": TEXT, "loss": number()},
    others=ANYTHING,
)


class Recorder:
    """Appends records to a run directory; opened at a step, it forgets what an interrupted run noted behind it."""

    def __init__(self, run_dir: Path, *, at_step: int) -> None:
        path, events_dir = run_dir / METRICS, run_dir / "tensorboard"
        kept = _once(read_records(path), at_step) if os.path.lexists(path) else {}
        self._written = set(kept)
        if os.path.lexists(path):
            write_atomic(path, "".join(json.dumps(record) + "\n" for record in reversed(kept.values())))
        if os.path.lexists(events_dir) and not events_dir.is_dir():
            raise RunError(f"{events_dir} is no directory, and events are to be written there; remove it")
        has_events = events_dir.is_dir() and any(events_dir.iterdir())
        self._file = path.open("a", encoding="utf-8")
        self._events = EventFile(events_dir)
        if has_events:
            self._events.forget_from(at_step + 1)

    def write(self, kind: str, step: int, **values: Any) -> None:
        """One record: a JSON object on a line, and a curve for each of its numbers; what is there is not repeated.

        A run that was killed behind its last evaluation evaluates again, and finds the same.
        """
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **values}
        if _key_of(record) in self._written:
            return
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()
        self._written.add(_key_of(record))
        prefix = values.get("split", kind)
        self._events.add_scalars(step, {f"{prefix}/{name}": v for name, v in values.items() if _is_number(v)})

    def close(self) -> None:
        """Flush both."""
        self._file.close()
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class EventFile:
    """A new file of TensorBoard events.

    TensorBoard's own writer has a thread, which a full disk ends with a traceback while the run goes on.
    """

    def __init__(self, directory: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # heavy, and only runs need it
        from tensorboard.summary.writer.record_writer import RecordWriter

        directory.mkdir(parents=True, exist_ok=True)
        stem = f"events.out.tfevents.{int(time.time()):010}.{socket.gethostname()}.{os.getpid()}"
        number = next(i for i in count() if not (directory / f"{stem}.{i}").exists())
        self._writer = RecordWriter((directory / f"{stem}.{number}").open("xb"))
        self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def forget_from(self, step: int) -> None:
        """Have readers forget what earlier files say of this step and those behind it."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        start = SessionLog(status=SessionLog.START)
        self._add(Event(wall_time=time.time(), step=step, session_log=start))

    def add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """A point of each of these curves."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()])
        self._add(Event(wall_time=time.time(), step=step, summary=summary))

    def _add(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        """Have all in the file."""
        self._writer.close()


def read_records(path: Path) -> list[dict[str, Any]]:
    """All records of a metrics file; a last line that is being written, or that a kill has torn, is left out."""
    records = list[dict[str, Any]]()
    *lines, rest = read_own_bytes(path).split(b"\n")
    for place, line in enumerate(lines, start=1):
        try:
            record = parse_json(line.decode())
            _RECORD.check(record, "")
        except (MisfitError, UnicodeDecodeError) as error:
            if place == len(lines) and not rest:  # the machine lost its power while it was written
                break
            raise RunError(f"{path}, line {place}, is damaged: {error}; remove that line") from None
        records.append(record)
    return records


def _once(records: list[dict[str, Any]], step: int) -> dict[Key, dict[str, Any]]:
    """The records up to a step, each kind of a step and split once."""
    return {_key_of(record): record for record in reversed(records) if record["step"] <= step}


def _key_of(record: Mapping[str, Any]) -> Key:
    return record["kind"], record["step"], record.get("split")


def last_train_loss(run_dir: Path, step: int) -> float | None:
    """The loss of the newest training record up to a step; None if there is none."""
    path = run_dir / METRICS
    records = read_records(path) if os.path.lexists(path) else []
    losses = [record["loss"] for record in records if record["kind"] == "train" and record["step"] <= step]
    return float(losses[-1]) if losses else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
