import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from recmill.errors import ConfigError
from recmill.launch.job import Job
from recmill.launch.torchrun import TorchrunOptions, exit_status, plan
from tests.launch.golden import assert_golden, make_job
from tests.laws.launcher import WORKER, assert_all_met

# A process that is the agent, as `recmill` is when it submits.
AGENT = """
import sys
from recmill.launch.job import Job
from recmill.launch.torchrun import TorchrunOptions, plan, submit
job = Job("test", sys.executable, tuple(sys.argv[2:]), procs=2, environment={"OMP_NUM_THREADS": "1"})
sys.exit(submit(plan(job, TorchrunOptions(max_restarts=int(sys.argv[1])))))
"""
WAITING = """
import os, pathlib, signal, sys, time
def told(number, frame):
    pathlib.Path(sys.argv[1], f"told_{os.environ['RANK']}").write_text(signal.Signals(number).name)
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, told)
pathlib.Path(sys.argv[1], f"ready_{os.environ['RANK']}").touch()
time.sleep(100)
"""


def test_one_host_and_several() -> None:
    assert_golden("torchrun_one_host.txt", plan(make_job(OMP_NUM_THREADS="4"), TorchrunOptions(max_restarts=2)))
    assert_golden("torchrun_two_hosts.txt", plan(make_job(nodes=2), TorchrunOptions("rack1", 4711)))


@pytest.mark.parametrize(
    ("nodes", "options", "complaint"),
    [
        (2, {}, "--nodes 2 with torchrun: name one of the hosts with --address HOST"),
        (1, {"address": "rack1"}, "--address rack1 is for several hosts"),
        (1, {"port": 4711}, "--port 4711 is for several hosts"),
        (2, {"address": "rack1", "port": 65536}, "--port 65536: ports are from 1 to 65535"),
        (1, {"max_restarts": -1}, "--max-restarts -1"),
    ],
)
def test_options_that_would_do_nothing_or_wrong(nodes: int, options: dict[str, int], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        plan(make_job(nodes=nodes), TorchrunOptions(**options))  # type: ignore[arg-type]


def run_agent(*words: str | Path, max_restarts: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AGENT, str(max_restarts), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


def test_the_printed_line_is_what_a_shell_can_run(tmp_path: Path) -> None:
    job = Job("test", sys.executable, (str(WORKER), str(tmp_path)), procs=2, environment={"OMP_NUM_THREADS": "1"})
    done = subprocess.run(str(plan(job, TorchrunOptions())), shell=True, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert [each["threads"] for each in assert_all_met(tmp_path, 2)] == ["1", "1"]


def test_a_killed_process_is_started_again_with_the_others(tmp_path: Path) -> None:
    done = run_agent(WORKER, tmp_path, tmp_path / "mark", max_restarts=1)
    assert done.returncode == 0, done.stderr
    assert_all_met(tmp_path, 2)


def test_the_status_of_a_process_that_fails_is_the_agents(tmp_path: Path) -> None:
    program = tmp_path / "fails.py"
    program.write_text("import os, sys, time\nif os.environ['RANK'] == '0': time.sleep(100)\nsys.exit(2)\n")
    done = run_agent(program)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "failed (exitcode: 2) local_rank: 1" in done.stderr


def test_a_death_by_a_signal_has_the_status_a_shell_gives_it() -> None:
    assert [exit_status(code) for code in (0, 3, -9, -signal.SIGTERM)] == [0, 3, 137, 143]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1], ids=lambda number: number.name)
def test_what_the_agent_is_told_reaches_its_processes(number: signal.Signals, tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text(WAITING)
    command = [sys.executable, "-c", AGENT, "0", str(program), str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as agent:
        assert agent.stderr is not None
        while not all((tmp_path / f"ready_{rank}").exists() for rank in (0, 1)):
            assert agent.poll() is None, agent.stderr.read()
            time.sleep(0.05)
        agent.send_signal(number)
        complaints = agent.stderr.read()
    assert agent.returncode == 128 + number
    assert [(tmp_path / f"told_{rank}").read_text() for rank in (0, 1)] == [number.name] * 2
    assert complaints == ""


JOINED = """
import os, pathlib, sys, time
from recmill.world import joined, read_world
with joined(read_world()):
    pathlib.Path(sys.argv[1], f"ready_{os.environ['RANK']}").write_text(str(os.getpid()))
    time.sleep(100)
"""


def test_processes_do_not_outlive_an_agent_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text(JOINED)
    with subprocess.Popen([sys.executable, "-c", AGENT, "0", str(program), str(tmp_path)]) as agent:
        ready = [tmp_path / "ready_0", tmp_path / "ready_1"]
        while not all(path.exists() and path.read_text() for path in ready):
            assert agent.poll() is None
            time.sleep(0.05)
        agent.kill()
    for path in ready:
        assert psutil.wait_procs([p for p in psutil.process_iter() if p.pid == int(path.read_text())], 20)[1] == []
