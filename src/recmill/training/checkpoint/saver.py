"""The checkpoints of a run directory: copied, written while training goes on, kept, dropped and found again."""

import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from recmill.errors import FailureError, RunError
from recmill.files import read_listing
from recmill.memory import available_bytes
from recmill.run_stamp import RUN, read_run_id
from recmill.training.checkpoint.checkpoint import finish, give_up_part, read_checkpoint, read_progress, write_part
from recmill.training.checkpoint.identity import refuse_foreign_state, refuse_misplaced
from recmill.training.checkpoint.saved_rows import link_files
from recmill.training.checkpoint.snapshot import Patience, Room, Snapshot, State, checkpoint_snapshot, model_snapshot
from recmill.training.progress import Best, Progress
from recmill.world import Group

CHECKPOINTS = "checkpoints"
BEST = "best"


class Saver:
    """Puts states on disk, one at a time; what fails to be written is told, and the run goes on with what it has."""

    def __init__(self, run_dir: Path, group: Group, *, keep: int, score_name: str, tell: Callable[[str], None]) -> None:
        self._dir = run_dir
        self._group = group
        self._keep = keep
        self._score_name = score_name
        self._tell = tell
        self._token: str = group.from_main(uuid4().hex[:8])  # of this start of the run
        self._writer = ThreadPoolExecutor(1, "recmill-save")
        self._writing: Future[None] | None = None
        self._room = Room()
        self._patience = Patience(group.timeout_s)
        self._saved_step: int | None = None
        self._complaint = ""  # about the checkpoint that was tried last
        self.run_id = read_run_id(run_dir)  # empty of an older run, until it goes on

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._patience.run_failed()
        self._writer.shutdown(wait=True)

    def checkpoint_dirs(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return sorted((self._dir / CHECKPOINTS).glob("step_*"))

    def best_dir(self, best: Best) -> Path:
        """Where the weights of the best evaluation are kept."""
        return self._dir / BEST / f"step_{best.step:010}_{self._score_name}_{best.score:.5f}"

    def restore(self, state: State) -> Progress:
        """Fill the state from the newest intact checkpoint; zero progress if there is none."""
        if self._group.world.is_main:
            self._clear_torn()
        directories: list[Path] = self._group.from_main(self.checkpoint_dirs())
        for directory in reversed(directories):
            with self._group.together():  # nothing may go on from it, and nothing may replace it
                refuse_foreign_state(directory, self.run_id, state.config)
            progress = self._try(directory, state)
            if progress is not None:
                self._saved_step = progress.step
                self.run_id = self.run_id or str(read_listing(directory).get(RUN, ""))
                self._tell(f"resumed from {directory} ({progress.num_rows:,} rows trained)")
                return progress
        if directories:
            raise RunError(
                f"none of the {len(directories)} checkpoints in {self._dir / CHECKPOINTS} can be used: "
                f"{self._complaint}\nrestore one, or start anew with --overwrite or in another run directory"
            )
        return Progress()

    def _try(self, directory: Path, state: State) -> Progress | None:
        """The progress of a checkpoint that every process could read."""
        complaint, progress = None, None
        try:
            # its checksums are one process's work
            progress = read_checkpoint(directory, state, verify=self._group.world.is_main)
            refuse_misplaced(directory, progress.step)
        except RunError as error:
            complaint = str(error)
        complaints = [each for each in self._group.gather(complaint) if each]
        if complaints:
            self._complaint = complaints[0]
            self._tell(f"warning: {complaints[0]}; falling back on the checkpoint before it, if there is one")
            return None
        return progress

    def _clear_torn(self) -> None:
        """Remove what a killed process was writing."""
        for room in (self._dir / CHECKPOINTS, self._dir / BEST):
            for torn in room.glob(".step_*"):
                shutil.rmtree(torn, ignore_errors=True)

    def save(self, state: State, progress: Progress) -> None:
        """Copy the state, unless it is on disk or on its way there, and have it written."""
        if progress.step != self._saved_step:  # a directory of that name may be a damaged one
            self._start(checkpoint_snapshot(state, progress, self._group.world), self._step_dir(progress), progress)
            self._saved_step = progress.step

    def save_best(self, state: State, progress: Progress) -> None:
        """Copy the weights, which nobody has surpassed, and have them written."""
        assert progress.best
        self._start(model_snapshot(state, progress, self._group.world), self.best_dir(progress.best), progress)

    def write_model(self, state: State, progress: Progress, target: Path) -> None:
        """Have the weights on disk when this returns."""
        self._start(model_snapshot(state, progress, self._group.world), target, progress)
        complaints = [each for each in self._group.gather(self.wait()) if each]
        if complaints:
            raise FailureError(f"the weights could not be written into {target}: {complaints[0]}")

    def wait(self) -> str | None:
        """Until what is being written is on the disk; what went wrong, if something did."""
        if self._writing is None:
            return None
        try:
            self._writing.result()
        except (OSError, FailureError) as error:
            self._saved_step = None
            return str(error)
        finally:
            self._writing = None
        return None

    def _step_dir(self, progress: Progress) -> Path:
        return self._dir / CHECKPOINTS / f"step_{progress.step:010}"

    def _start(self, snapshot: Snapshot, target: Path, progress: Progress) -> None:
        if complaint := self.wait():
            self._tell(f"warning: a state could not be saved: {complaint}; the run goes on")
        scratch = target.with_name(f".{target.name}.{self._token}")
        link_files(snapshot.linked, scratch)
        has_room = self._room.num_bytes + available_bytes(self._group.world.local_size) > snapshot.num_bytes
        own = snapshot.copied(self._room) if has_room else snapshot
        self._writing = self._writer.submit(self._write, own, scratch, target, progress)
        if not has_room:  # then training waits, rather than that the system ends it
            wait([self._writing])

    def _write(self, snapshot: Snapshot, scratch: Path, target: Path, progress: Progress) -> None:
        snapshot = replace(snapshot, run_id=self.run_id, patience=self._patience)
        try:
            write_part(snapshot, scratch)
            if snapshot.world.is_main:
                finish(snapshot, scratch, target)
        except (OSError, FailureError) as error:
            give_up_part(snapshot, scratch, error)
            raise
        if snapshot.world.is_main:
            self._drop_old(progress)

    def _drop_old(self, progress: Progress) -> None:
        """Let go of checkpoints beyond those to keep, and of weights that are the best of none of those."""
        for old in self.checkpoint_dirs()[: -self._keep]:
            shutil.rmtree(old)
        bests = [progress.best]
        for directory in self.checkpoint_dirs():
            with suppress(OSError, RunError):  # a damaged one has no say
                bests.append(read_progress(directory).best)
        needed = {self.best_dir(best) for best in bests if best}
        for directory in set((self._dir / BEST).glob("step_*")) - needed:
            shutil.rmtree(directory)
