"""Runs commands of recmill in forks of one prepared process: cheap, and a crash or a hang ends the fork alone.

The server is a fresh interpreter in which everything is loaded and no thread has been started. It reads one JSON line
for each command and answers with one.
"""

import contextlib
import ctypes
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
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

TIMEOUT_S = 20.0
# What commands import late, and each fork would import anew: seconds for torch's compiler, which looks at every
# conversion of layers, and half a second for pandas, which Arrow looks for.
_LATE = (
    *("torch._dynamo", "torch.distributed", "pyarrow", "pyarrow.parquet", "pandas"),
    *("tensorboard.summary.writer.event_file_writer", "tensorboard.compat.proto.event_pb2"),
    *("tensorboard.compat.proto.summary_pb2", "recmill.training.click.job", "recmill.training.sequence.job"),
    *("recmill.training.checkpoint.saver", "recmill.serve.table_file", "recmill.serve.recommend"),
    *("recmill.data.prepared.prepare", "recmill.data.values.values_file", "recmill.cli.show"),
)


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status, minus the number of a signal, or None if it hung; and what it said."""

    status: int | None
    out: str
    err: str
    num_operations: int = 0  # on files below the directory of a fault

    @property
    def is_rejected(self) -> bool:
        """Whether it ended as after a mistake, and not by a signal, a traceback, an internal error or a hang."""
        return self.status == 2 and "Traceback" not in self.err and "internal error" not in self.err

    def describe(self) -> str:
        """For a person."""
        said = self.err.strip().splitlines()
        return f"status {self.status}: {' / '.join(said[-3:])[-400:]}"


@dataclass(frozen=True)
class Fault:
    """The n-th operation on files below a directory fails, writes half, or kills the process; see faults.c."""

    directory: str
    number: int = 0
    how: Literal["count", "fail", "short", "kill"] = "count"
    error: int = 0
    is_lasting: bool = False  # all later ones fail too, as on a full disk

    def arm(self) -> None:
        """From now on, in this process."""
        how = ("count", "fail", "short", "kill").index(self.how)
        library = ctypes.CDLL(None)
        library.faults_arm(self.directory.encode(), ctypes.c_long(self.number), how, self.error, int(self.is_lasting))


class ForkServer:
    """Commands in forks; use it as a context. With `preload` its forks can have faults."""

    def __init__(self, timeout_s: float = TIMEOUT_S, preload: Path | None = None) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "400",
            "NUMBA_THREADING_LAYER": "workqueue",
            "NUMBA_NUM_THREADS": "1",
        }
        if preload is not None:
            environment["LD_PRELOAD"] = str(preload)
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

    def run(self, *words: str | Path, fault: Fault | None = None) -> Ended:
        """A command of recmill with these words, in a fork."""
        return self._ask("fork" if fault is None else asdict(fault), words)

    def warm_up(self, *words: str | Path) -> None:
        """The same in the server itself, so that later forks have its kernels loaded."""
        ended = self._ask("here", words)
        if ended.status != 0:
            raise RuntimeError(f"{words}: {ended.describe()}")

    def _ask(self, where: str | dict[str, Any], words: Sequence[str | Path]) -> Ended:
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
    for name in _LATE:
        with contextlib.suppress(ImportError):  # not all are installed everywhere
            import_module(name)
    torch.set_num_threads(1)  # a pool of threads would not live on in a fork


def _serve(timeout_s: float) -> None:
    _load()
    for line in sys.stdin:
        where, *words = json.loads(line)
        fault = Fault(**where) if isinstance(where, dict) else None
        print(json.dumps(_run_here(words) if where == "here" else _run_forked(words, timeout_s, fault)), flush=True)


def _run_here(words: Sequence[str]) -> dict[str, Any]:
    from recmill.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(words))
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


def _run_forked(words: Sequence[str], timeout_s: float, fault: Fault | None) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as counted:
        child = os.fork()
        if not child:
            _become(words, (out.fileno(), err.fileno(), counted.fileno()), fault)
        status = _wait(child, time.monotonic() + timeout_s)
        texts = []
        for file in (out, err, counted):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return {"status": status, "out": texts[0], "err": texts[1], "num_operations": int(texts[2] or 0)}


def _become(words: Sequence[str], outputs: tuple[int, int, int], fault: Fault | None) -> None:
    """Be the command, in a fork; does not come back."""
    status = 70
    try:
        os.setsid()  # what it starts ends with it
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        sys.argv = ["recmill", *words]
        from recmill.cli.main import main

        if fault is not None:
            fault.arm()
        status = main(list(words))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 2
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if fault is not None:
            os.write(outputs[2], str(ctypes.CDLL(None).faults_seen()).encode())
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
