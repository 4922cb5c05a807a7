"""Numbers over the steps of a run, in two forms: `metrics.jsonl` for programs, TensorBoard events for eyes."""

import json
import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from recmill.files import write_atomic

METRICS = "metrics.jsonl"


class Recorder:
    """Appends records to a run directory; opened at a step, it forgets what an interrupted run noted behind it."""

    def __init__(self, run_dir: Path, *, at_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # heavy, and only runs need it
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        path = run_dir / METRICS
        if path.exists():
            write_atomic(path, "".join(_records_up_to(path, at_step)))
        self._file = path.open("a", encoding="utf-8")
        self._events = EventFileWriter(str(run_dir / "tensorboard"))
        if at_step:
            start = SessionLog(status=SessionLog.START)
            self._events.add_event(Event(wall_time=time.time(), step=at_step, session_log=start))

    def write(self, kind: str, step: int, **values: Any) -> None:
        """One record: a JSON object on a line, and a curve for each of its numbers."""
        record = {"kind": kind, "step": step, "time": round(time.time(), 3), **values}
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()
        prefix = values.get("split", kind)
        self._add_scalars(step, {f"{prefix}/{name}": v for name, v in values.items() if _is_number(v)})

    def _add_scalars(self, step: int, scalars: dict[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()])
        self._events.add_event(Event(wall_time=time.time(), step=step, summary=summary))

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


def _records_up_to(path: Path, step: int) -> list[str]:
    """The lines of a metrics file that a run at this step has written; a torn last line is dropped."""
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break
        if record["step"] <= step:
            kept.append(line)
    return kept


def read_records(path: Path) -> list[dict[str, Any]]:
    """All records of a metrics file; a last line that is being written is left out."""
    records = list[dict[str, Any]]()
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def last_train_loss(run_dir: Path, step: int) -> float | None:
    """The loss of the newest training record up to a step; None if there is none."""
    path = run_dir / METRICS
    records: list[dict[str, Any]] = [json.loads(line) for line in _records_up_to(path, step)] if path.exists() else []
    losses = [float(record["loss"]) for record in records if record["kind"] == "train"]
    return losses[-1] if losses else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
