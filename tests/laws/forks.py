"""Runs commands of recmill in forks of one prepared process: cheap, and a crash or a hang ends the fork alone.

The server is a fresh interpreter in which everything is loaded and no thread has been started. It reads one JSON line
for each command and answers with one.
"""

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status, minus the number of a signal, or None if it hung; and what it said."""

    status: int | None
    out: str
    err: str

    @property
    def is_rejected(self) -> bool:
        """Whether it ended as after a mistake, and not by a signal, a traceback, an internal error or a hang."""
        return self.status == 2 and "Traceback" not in self.err and "internal error" not in self.err

    def describe(self) -> str:
        """For a person."""
        said = self.err.strip().splitlines()
        return f"status {self.status}: {' / '.join(said[-3:])[-400:]}"


class ForkServer:
    """Commands in forks; use it as a context."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "400",
            "NUMBA_THREADING_LAYER": "workqueue",
            "NUMBA_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(timeout_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, *words: str | Path) -> Ended:
        """A command of recmill with these words, in a fork."""
        return self._ask("fork", words)

    def warm_up(self, *words: str | Path) -> None:
        """The same in the server itself, so that later forks have its kernels loaded."""
        ended = self._ask("here", words)
        if ended.status != 0:
            raise RuntimeError(f"{words}: {ended.describe()}")

    def _ask(self, where: str, words: Sequence[str | Path]) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([where, *(str(word) for word in words)]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the server of forks ended with status {self._process.wait()}")
        return Ended(**json.loads(answer))


def _load() -> None:
    """What a command may need, so that forks share it."""
    import torch

    for name in ("cli.main", "api.evaluate", "api.predict", "api.audit", "serve.click_model", "training.job"):
        import_module(f"recmill.{name}")
    torch.set_num_threads(1)  # a pool of threads would not live on in a fork


def _serve(timeout_s: float) -> None:
    _load()
    for line in sys.stdin:
        where, *words = json.loads(line)
        print(json.dumps(_run_forked(words, timeout_s) if where == "fork" else _run_here(words)), flush=True)


def _run_here(words: Sequence[str]) -> dict[str, Any]:
    from recmill.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(words))
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


def _run_forked(words: Sequence[str], timeout_s: float) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            _become(words, out.fileno(), err.fileno())
        status = _wait(child, time.monotonic() + timeout_s)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return {"status": status, "out": texts[0], "err": texts[1]}


def _become(words: Sequence[str], out: int, err: int) -> None:
    """Be the command, in a fork; does not come back."""
    status = 70
    try:
        os.setsid()  # what it starts ends with it
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.argv = ["recmill", *words]
        from recmill.cli.main import main

        status = main(list(words))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 2
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(child: int, until: float) -> int | None:
    descriptor = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
    finally:
        os.close(descriptor)
    if not ready:
        os.killpg(child, signal.SIGKILL)
    _, code = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(code) if ready else None


if __name__ == "__main__":
    sys.path.pop(0)  # this directory: its `compare` and others are no modules for all
    _serve(float(sys.argv[1]))
