"""Two hosts that are network namespaces of this machine: agents of torchrun meet, one process is killed, all recover.

python -m benchmarks.two_hosts [--procs P] [--kill-after S] [-- COMMAND ...], as root. COMMAND is what each process
runs, given to Python: `-m recmill train ...`, or a program of one's own; by default `benchmarks/all_reduce.py`.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from recmill.launch.job import Job
from recmill.launch.torchrun import TorchrunOptions, plan

ALL_REDUCE = Path(__file__).with_name("all_reduce.py")


@dataclass(frozen=True)
class Host:
    """A namespace with one network interface."""

    name: str
    interface: str
    address: str

    def command(self, *words: str) -> list[str]:
        """The words that run a command in there."""
        return ["ip", "netns", "exec", self.name, *words]


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """A pair joined by a cable; gone afterwards."""
    mark = os.getpid() % 10_000  # interfaces have short names
    first, second = (Host(f"rm{mark}h{i}", f"rm{mark}v{i}", f"10.77.0.{i + 1}") for i in range(2))
    with ExitStack() as undo:
        for host in (first, second):
            _run("ip", "netns", "add", host.name)
            undo.callback(_run, "ip", "netns", "delete", host.name)
        _run("ip", "link", "add", first.interface, "type", "veth", "peer", "name", second.interface)
        for host in (first, second):
            _run("ip", "link", "set", host.interface, "netns", host.name)
            _run(*host.command("ip", "addr", "add", f"{host.address}/24", "dev", host.interface))
            for interface in ("lo", host.interface):
                _run(*host.command("ip", "link", "set", interface, "up"))
        yield first, second


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def start_agent(host: Host, first: Host, options: argparse.Namespace, log_path: Path) -> subprocess.Popen[bytes]:
    """What `recmill launch --on torchrun` would run there, and what hosts without names need besides."""
    job = Job(f"two_hosts_{os.getpid()}", sys.executable, tuple(options.command), nodes=2, procs=options.procs)
    submission = plan(job, TorchrunOptions(first.address, max_restarts=options.max_restarts))
    python, minus_m, module, *words = submission.argv
    meeting = ["--local-addr", host.address, "--rdzv-conf", f"is_host={int(host is first)}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **submission.environment, "GLOO_SOCKET_IFNAME": host.interface}
    with log_path.open("wb") as log:
        return subprocess.Popen(
            host.command(python, minus_m, module, *meeting, *words), env=environment, stdout=log, stderr=log
        )


def processes_of(agent: subprocess.Popen[bytes]) -> list[int]:
    """The processes an agent has started."""
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
    return [int(pid) for pid in children.read_text().split()] if children.exists() else []


def kill_one(agent: subprocess.Popen[bytes], after_s: float, rng: random.Random) -> int:
    """Kill one of its processes, so many seconds after they have been started; which it was."""
    deadline = time.monotonic() + 120
    while not (pids := processes_of(agent)):
        if agent.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the second agent started no processes")
        time.sleep(0.1)
    time.sleep(after_s)
    victim = rng.choice(pids)
    os.kill(victim, signal.SIGKILL)
    return victim


def main(argv: Sequence[str] | None = None) -> int:
    """Meet, kill, recover; the status is 0 if both agents end well."""
    options = read_options(argv)
    log_dir = options.logs
    log_dir.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with two_hosts() as hosts, ExitStack() as stop:
        logs = [log_dir / f"host_{i}.log" for i in range(2)]
        agents = [start_agent(host, hosts[0], options, log) for host, log in zip(hosts, logs, strict=True)]
        for agent in agents:
            stop.callback(_end, agent)
        killed = kill_one(agents[1], options.kill_after, random.Random(options.seed)) if options.kill_after else None
        killed_s = time.monotonic() - began
        statuses = [agent.wait(timeout=options.timeout) for agent in agents]
    told = {
        "statuses": statuses,
        "killed": killed,
        "killed_after_s": round(killed_s, 1) if killed else None,
        "took_s": round(time.monotonic() - began, 1),
        "last_lines": [(log.read_text().strip().splitlines() or [""])[-1] for log in logs],
        "logs": [str(log) for log in logs],
    }
    print(json.dumps(told))
    return 0 if statuses == [0, 0] else 1


def _end(agent: subprocess.Popen[bytes]) -> None:
    if agent.poll() is None:
        agent.terminate()
        agent.wait()


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """What to run, and what to do to it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_hosts", description=__doc__)
    parser.add_argument("--procs", type=int, default=1, help="processes on each host (1)")
    parser.add_argument("--max-restarts", type=int, default=2, help="of the agents (2)")
    parser.add_argument(
        "--kill-after", type=float, default=6.0, metavar="S", help="kill a process of the second host (6)"
    )
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="for each agent to end (300)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of the process to kill (0)")
    parser.add_argument(
        "--logs", type=Path, default=Path("two_hosts"), metavar="DIR", help="for both hosts (two_hosts)"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="behind --: what Python is told in each process")
    options = parser.parse_args(argv)
    options.command = options.command[1:] if options.command[:1] == ["--"] else options.command
    options.command = options.command or [str(ALL_REDUCE), str(options.logs / "state.json")]
    return options


if __name__ == "__main__":
    sys.exit(main())
