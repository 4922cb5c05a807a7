"""Law *peers*: whatever becomes of a process of a run, the others end soon, with a message that names it.

Processes are forks of one interpreter in which torch is loaded, so that many small runs cost little. Each joins its
group, does its deed, and takes part in a collective.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import IO, Any, Literal, Self

import numpy as np

from recmill.errors import DataError, PeerFailed, RecmillError
from recmill.world import Group, joined, read_world

_HUNG_S = 40.0
COLLECTIVES = (
    *("add_up", "average", "stack", "start_stacking", "join_rows", "gather", "from_rank", "from_main", "together"),
    "wait_for_all",
)


@dataclass(frozen=True)
class Rank:
    """A process: what it is told, and what it does when all have met."""

    deed: Literal["none", "die", "stop", "sleep", "fail"] = "none"
    seconds: float = 0.0  # of a sleep; of a stop, after which it is continued, if it is not for ever
    collective: str = "add_up"
    timeout_s: float = 30.0
    num_runs: int = 1  # one after the other, in one process
    facts: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)  # of its environment


@dataclass(frozen=True)
class RankEnded:
    """How it ended: its status, minus a signal, or None if it hung; what it said; and after how many seconds."""

    status: int | None
    said: str
    seconds: float


class RankServer:
    """Starts runs of a few ranks; use it as a context."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.laws.ranks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, *ranks: Rank) -> list[RankEnded]:
        """One run."""
        return self.run_all([ranks])[0]

    def run_all(self, runs: Sequence[Sequence[Rank]]) -> list[list[RankEnded]]:
        """Several at the same time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = json.dumps([[asdict(rank) for rank in ranks] for ranks in runs])
        print(asked, file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        return [[RankEnded(**each) for each in ended] for ended in answer]


def free_port() -> int:
    """A port that nobody listens at just now."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


@dataclass
class _Fork:
    rank: Rank
    pid: int
    said: IO[bytes]
    began: float
    stopped_at: float | None = None
    ended: RankEnded | None = None


def _serve() -> None:
    import torch
    import torch.distributed  # loaded once, and shared by all forks

    torch.set_num_threads(1)
    for line in sys.stdin:
        runs = [
            [_fork(rank, number, len(ranks), port) for number, rank in enumerate(ranks)] for ranks, port in _ask(line)
        ]
        forks = [fork for run in runs for fork in run]
        while any(fork.ended is None for fork in forks):
            for fork in forks:
                _look_after(fork)
            time.sleep(0.01)
        print(json.dumps([[asdict(fork.ended) for fork in run if fork.ended] for run in runs]), flush=True)


def _ask(line: str) -> list[tuple[list[Rank], int]]:
    return [([Rank(**each) for each in ranks], free_port()) for ranks in json.loads(line)]


def _fork(rank: Rank, number: int, size: int, port: int) -> _Fork:
    said = tempfile.TemporaryFile()  # noqa: SIM115 it is read when the process has ended
    began = time.monotonic()
    pid = os.fork()
    if not pid:
        os.dup2(said.fileno(), 2)
        told = {"RANK": number, "WORLD_SIZE": size, "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in told.items()}, MASTER_ADDR="localhost")
        os.environ.update(rank.words)
        _be(rank)
    return _Fork(rank, pid, said, began)


def _look_after(fork: _Fork) -> None:
    """Note how a process has ended; continue one that has stopped, when its time is over."""
    if fork.ended is not None:
        return
    found, code = os.waitpid(fork.pid, os.WNOHANG | os.WUNTRACED)
    now = time.monotonic()
    if found and os.WIFSTOPPED(code):
        fork.stopped_at = now
    elif found or now - fork.began > _HUNG_S:
        if not found:
            os.kill(fork.pid, signal.SIGKILL)
            os.waitpid(fork.pid, 0)
        fork.said.seek(0)
        status = os.waitstatus_to_exitcode(code) if found else None
        fork.ended = RankEnded(status, fork.said.read().decode(), now - fork.began)
        fork.said.close()
    if fork.stopped_at and fork.rank.seconds and now - fork.stopped_at > fork.rank.seconds and fork.ended is None:
        os.kill(fork.pid, signal.SIGCONT)
        fork.stopped_at = None


def _be(rank: Rank) -> None:
    """Be that process; does not come back."""
    status = 70
    try:
        for _ in range(rank.num_runs):
            with joined(read_world(), timeout_s=rank.timeout_s, facts=rank.facts) as group:
                group.wait_for_all()
                group.reach("at work")
                _do(rank)
                use_collective(group, rank.collective)
        status = 0
    except RecmillError as error:
        status = error.exit_status
        if not isinstance(error, PeerFailed):
            print(f"recmill: {error}", file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _do(rank: Rank) -> None:
    if rank.deed == "die":
        time.sleep(0.2)  # the others have begun to wait
        os.kill(os.getpid(), signal.SIGKILL)
    if rank.deed == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank.deed == "sleep":
        time.sleep(rank.seconds)
    if rank.deed == "fail":
        raise DataError("a row is bad")


def use_collective(group: Group, name: str) -> None:
    """Take part in it; all come to the same."""
    import torch

    rank, ones = group.world.rank, np.ones(3)
    uses: dict[str, Callable[[], Any]] = {
        "add_up": lambda: group.add_up(ones),
        "average": lambda: group.average([torch.ones(3)]),
        "stack": lambda: group.stack(ones),
        "start_stacking": lambda: group.start_stacking(ones)(),
        "join_rows": lambda: group.join_rows(np.ones((rank + 1, 2))),
        "gather": lambda: group.gather(rank),
        "from_rank": lambda: group.from_rank(torch.ones(3), group.world.size - 1),
        "from_main": lambda: _hand_round(group),
        "together": lambda: _together(group),
        "wait_for_all": group.wait_for_all,
    }
    uses[name]()


def _hand_round(group: Group) -> None:
    group.from_main(group.world.rank)
    group.wait_for_all()  # who hands something round does not wait


def _together(group: Group) -> None:
    with group.together():
        pass


if __name__ == "__main__":
    _serve()
