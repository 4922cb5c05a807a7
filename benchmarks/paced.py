"""`recmill train` a few steps at a time: it tells how long they took, and stands still until it may go on.

The run is the product's own, from its words to its results. Only, before every slice of steps and behind the last one
each of its processes waits for a word on a socket, between two steps and so outside of the time that a step is said to
have taken. While it waits it is stopped with all of its threads: what reads ahead, writes a log or listens to the
network does that in the run's own turn, and has read no further ahead than in a run that is left alone. The agent that
has started several processes is not stopped: it sleeps, but for a glance at them every tenth of a second.

python -m benchmarks.paced SOCKET SLICE_STEPS PROCS train ... is what `PacedRun` starts.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psutil

if TYPE_CHECKING:
    from recmill.data.batch import Position
    from recmill.training.loop.task import StepResult, Steps, Task

CHECKOUT = Path(__file__).parents[1]
_GLANCE_S = 1.0  # how often to see whether a process that says nothing is still there
_MOMENT_S = 0.0005
_PR_SET_PDEATHSIG = 1  # of Linux' prctl.h


class Line:
    """One end of a socket, over which two processes tell each other plain data."""

    def __init__(self, end: socket.socket) -> None:
        # two files: one for both would forget what it has read ahead when it writes
        self._ear, self._mouth = end.makefile("r", encoding="utf-8"), end.makefile("w", encoding="utf-8")
        end.close()  # the files keep it open

    def tell(self, what: object) -> None:
        """Say it."""
        self._mouth.write(json.dumps(what) + "\n")
        self._mouth.flush()

    def hear(self) -> Any:
        """What the other end says; waits for it."""
        if not (said := self._ear.readline()):
            raise EOFError("the other end is gone")
        return json.loads(said)

    def close(self) -> None:
        """Say no more."""
        self._ear.close()
        with suppress(BrokenPipeError):  # what was said last, and nobody has heard
            self._mouth.close()


@dataclass
class PacedSteps:
    """Steps that wait for a word before every slice, and then tell the seconds and the loss of each since the last."""

    steps: "Steps"
    line: Line
    slice_steps: int
    _told: list[tuple[float, float]] = field(default_factory=list)

    @property
    def trailing_skipped(self) -> int:
        """How many bad rows were ignored behind the last batch."""
        return self.steps.trailing_skipped

    def take(self, step: int) -> "StepResult | None":
        """The step behind `step` finished ones."""
        if step % self.slice_steps == 0:
            self.pause()
        began = time.perf_counter()
        taken = self.steps.take(step)
        if taken is not None:
            self._told.append((time.perf_counter() - began, taken.loss))
        return taken

    def pause(self) -> None:
        """Tell of the slice, and wait."""
        self.line.tell(self._told)
        self._told = []
        self.line.hear()


@contextmanager
def open_paced(
    open_steps: "Callable[[Position | None], AbstractContextManager[Steps]]",
    line: Line,
    slice_steps: int,
    start: "Position | None",
) -> Iterator[PacedSteps]:
    """A task's steps, paced; they end with a pause, so that a run saves and evaluates in a turn of its own."""
    with open_steps(start) as steps:
        paced = PacedSteps(steps, line, slice_steps)
        yield paced
        paced.pause()


def pace_tasks(line: Line, slice_steps: int) -> None:
    """Have the tasks that this process will build take paced steps."""
    from recmill.training.click.job import ClickJob

    build_task = ClickJob.build_task

    def build_paced(self: ClickJob, *args: Any, **kwargs: Any) -> "Task":
        task: Any = build_task(self, *args, **kwargs)
        task.open_steps = partial(open_paced, task.open_steps, line, slice_steps)
        return task  # type: ignore[no-any-return]

    ClickJob.build_task = build_paced  # type: ignore[method-assign]


class PacedRun:
    """A run seen from outside; it stands still except while one of these methods is called."""

    def __init__(self, words: Sequence[str], *, procs: int, slice_steps: int, log_path: Path) -> None:
        self.losses: list[float] = []  # of all steps so far
        self._socket_path, self._log_path, self._procs = log_path.with_suffix(".socket"), log_path, procs
        self._command = [sys.executable, "-m", "benchmarks.paced", str(self._socket_path), str(slice_steps)]
        self._command += [str(procs), *words]
        self._lines: list[Line] = []  # to its processes, the main one first
        self._processes: list[psutil.Process] = []
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        """Start it; it is ready for its first slice."""
        with self._closing, socket.socket(socket.AF_UNIX) as server:
            self._socket_path.unlink(missing_ok=True)
            server.bind(str(self._socket_path))
            server.listen(self._procs)
            server.settimeout(_GLANCE_S)
            with self._log_path.open("wb") as log:
                self._started = subprocess.Popen(
                    self._command, cwd=CHECKOUT, stdout=log, stderr=log, start_new_session=True
                )
            self._closing.callback(self._kill)
            self._meet([self._answer(server) for _ in range(self._procs)])
            self._rest()
            self._closing = self._closing.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def take_slice(self) -> float:
        """Let it take its next steps; the seconds they took by the clock of the main process."""
        self._go_on()
        return self._rest()

    def finish(self) -> None:
        """Let it save, evaluate and end, behind its last slice."""
        self._go_on()
        if self._started.wait():
            raise RuntimeError(self._complaint())

    def _answer(self, server: socket.socket) -> Line:
        """The line to the next process that calls."""
        while self._started.poll() is None:
            try:
                return Line(server.accept()[0])
            except TimeoutError:
                continue
        raise RuntimeError(self._complaint())

    def _meet(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._closing.callback(line.close)
        met = sorted((*self._hear(line), i) for i, line in enumerate(lines))
        self._lines = [lines[i] for _rank, _pid, i in met]
        self._processes = [psutil.Process(pid) for _rank, pid, _i in met]

    def _go_on(self) -> None:
        for process in self._processes:
            process.resume()
        for line in self._lines:
            line.tell("go on")

    def _rest(self) -> float:
        """Wait until all processes wait, and stop them; the seconds of the main one's steps."""
        slices = [self._hear(line) for line in self._lines]
        for process in self._processes:
            stop(process)
        self.losses += [loss for _seconds, loss in slices[0]]
        return sum(float(seconds) for seconds, _loss in slices[0])

    def _hear(self, line: Line) -> Any:
        try:
            return line.hear()
        except (EOFError, ConnectionError):
            self._started.wait()
            raise RuntimeError(self._complaint()) from None

    def _kill(self) -> None:
        """End what has not ended; the processes of an agent die with it."""
        self._started.kill()
        self._started.wait()

    def _complaint(self) -> str:
        said = self._log_path.read_text(encoding="utf-8", errors="replace")
        return f"{self._log_path.stem} ended with status {self._started.returncode}:\n{said[-2000:]}"


def stop(process: psutil.Process) -> None:
    """Return when it stands still, which is not yet so when it has been sent the signal, or has ended."""
    while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
        process.suspend()
        time.sleep(_MOMENT_S)


def main(argv: Sequence[str]) -> int:
    """Be a paced run, or the agent of its processes."""
    from recmill.cli.main import calm_threads
    from recmill.cli.main import main as recmill

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # who is stopped does not see that nobody is left
    calm_threads(os.environ)  # before torch is loaded, which `recmill` would do later
    (socket_path, slice_steps, procs), words = argv[:3], argv[3:]
    if int(procs) > 1:
        return start_processes(int(procs), ("-m", "benchmarks.paced", socket_path, slice_steps, "1", *words))
    from recmill.world import read_world

    end = socket.socket(socket.AF_UNIX)
    end.connect(socket_path)
    line = Line(end)
    line.tell([read_world().rank, os.getpid()])
    pace_tasks(line, int(slice_steps))
    return recmill(words)


def start_processes(procs: int, words: tuple[str, ...]) -> int:
    """What `recmill train --procs` does, with other words for each process."""
    from recmill.launch import torchrun
    from recmill.launch.job import Job, thread_words

    threads = thread_words(procs, len(os.sched_getaffinity(0)), os.environ)
    job = Job("paced", sys.executable, words, procs=procs, environment=threads)
    return torchrun.submit(torchrun.plan(job, torchrun.TorchrunOptions()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
