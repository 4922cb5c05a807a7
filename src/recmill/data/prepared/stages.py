"""Work that can be killed and begun again: stages made of parts, each with a record that is written when it is done."""

import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

from recmill.errors import DataError
from recmill.files import has_manifest, read_listing, write_atomic

Record = dict[str, Any]
PLAN = "plan.json"


class OnProgress(Protocol):
    """Told how much of a stage is done, in the units that the stage's parts are weighed in."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show it."""


def say_nothing(stage: str, done: int, total: int) -> None:
    """For those who do not look."""


def was_finished(directory: Path, plan: Record) -> bool:
    """Whether this very work has given its result its name already, and was ended before it could clean up."""
    path = directory / PLAN
    return (
        path.is_file()
        and not (directory / "result").exists()
        and json.loads(path.read_text()) == json.loads(json.dumps(plan))
    )


def finished_before(out_dir: Path, work_dir: Path, plan: Callable[[], Record]) -> Record | None:
    """The manifest of a directory that this very work has finished; it was ended before it had cleaned up."""
    if not has_manifest(out_dir) or not was_finished(work_dir, plan()):
        return None
    shutil.rmtree(work_dir, ignore_errors=True)
    return read_listing(out_dir)


class Stages:
    """A directory of records; a part that has one is not done again."""

    def __init__(
        self,
        directory: Path,
        plan: Record,
        *,
        jobs: int,
        overwrite: bool = False,
        on_progress: OnProgress = say_nothing,
    ) -> None:
        self.directory = directory
        self.result_dir = directory / "result"
        self._jobs = jobs
        self._on_progress = on_progress
        path = directory / PLAN
        if path.exists() and json.loads(path.read_text()) != json.loads(json.dumps(plan)):
            if not overwrite:
                raise DataError(
                    f"{directory} holds work that was begun with other settings or on other files; "
                    "run the command it was begun with, or pass --overwrite to begin anew"
                )
            shutil.rmtree(directory)
        if path.exists() and not self.result_dir.is_dir():
            shutil.rmtree(directory)  # it was given its name, by a run that was killed before it had cleaned up
        self.result_dir.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(plan, indent=1))

    def run(self, stage: str, weights: Sequence[int], work: Callable[[int], Record]) -> list[Record]:
        """The records of all parts, in their order; those that are missing are made, several at a time."""
        records: list[Record | None] = [self._read(stage, part) for part in range(len(weights))]
        missing = [part for part, record in enumerate(records) if record is None]
        done, total = sum(weights) - sum(weights[part] for part in missing), sum(weights)
        self._on_progress(stage, done, total)

        def finish(part: int) -> None:
            nonlocal done
            record = work(part)
            write_atomic(self._path(stage, part), json.dumps(record), durable=False)
            records[part] = record
            done += weights[part]
            self._on_progress(stage, done, total)

        with ThreadPoolExecutor(self._jobs) as pool:
            futures = [pool.submit(finish, part) for part in missing]
            wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                future.cancel()
        # parts begin in their order: of several that failed, the first one's error is that of the first bad line
        for future in futures:
            if not future.cancelled():
                future.result()
        return [record for record in records if record is not None]

    def _path(self, stage: str, part: int) -> Path:
        return self.directory / f"{stage}-{part:05d}.json"

    def _read(self, stage: str, part: int) -> Record | None:
        path = self._path(stage, part)
        try:
            record: Record = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):  # a machine that lost its power may leave an empty file
            return None
        return record
