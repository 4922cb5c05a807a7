import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from recmill.errors import ConfigError
from recmill.launch.job import Job
from recmill.launch.mpi import FLAVOURS, Flavour, MpiOptions, ask_flavour, plan, submit
from tests.launch.golden import assert_golden, make_job
from tests.laws.launcher import WORKER, assert_all_met

VERSIONS = {
    "mpiexec (OpenRTE) 4.1.4": "openmpi",
    "mpiexec (Open MPI) 5.0.6": "openmpi",
    "HYDRA build details:\n    Version:  4.0.2": "mpich",
    "Intel(R) MPI Library for Linux* OS, Version 2021.9": "mpich",
}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_one_host_and_several(flavour: Flavour) -> None:
    assert_golden(f"{flavour}_one_host.txt", plan(make_job(OMP_NUM_THREADS="4"), MpiOptions(flavour)))
    assert_golden(f"{flavour}_two_hosts.txt", plan(make_job(nodes=2), MpiOptions(flavour, ("rack1", "rack2"), 4711)))


@pytest.mark.parametrize(
    ("nodes", "hosts", "complaint"),
    [
        (2, (), "--nodes 2 with mpi needs as many --hosts, and 0 are given; the first host is where"),
        (1, ("a", "b"), "--nodes 1 with mpi needs as many --hosts, and 2 are given"),
        (2, ("a", ""), "--hosts a,: write their names with one comma between two"),
    ],
)
def test_hosts_that_do_not_match_are_refused(nodes: int, hosts: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        plan(make_job(nodes=nodes), MpiOptions("mpich", hosts))


@pytest.mark.parametrize(("told", "flavour"), VERSIONS.items())
def test_mpiexec_says_whose_it_is(told: str, flavour: Flavour, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_mpiexec(told, monkeypatch, tmp_path)
    assert ask_flavour() == flavour


def put_mpiexec(told: str, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    (directory / "mpiexec").write_text(f"#!/bin/sh\necho '{told}'\n")
    (directory / "mpiexec").chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)


def test_an_unknown_mpiexec_and_none_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_mpiexec("Another MPI 1.0", monkeypatch, tmp_path)
    with pytest.raises(ConfigError, match=r"says 'Another MPI 1.0', which is neither .* --mpi openmpi or --mpi mpich"):
        ask_flavour()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="--on mpi needs mpiexec, which is not on PATH; install it, or say which"):
        ask_flavour()
    with pytest.raises(ConfigError, match=r"--on mpi needs mpiexec, .* --dry-run"):
        submit(plan(make_job(), MpiOptions("mpich")))


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec on PATH: apt-get install openmpi-bin, or mpich")
def test_processes_started_by_mpiexec_meet(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port = taken.getsockname()[1]
    job = Job("test", sys.executable, (str(WORKER), str(tmp_path)), procs=2, environment={"OMP_NUM_THREADS": "1"})
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    submission = plan(job, replace(MpiOptions(ask_flavour()), port=port))
    done = subprocess.run(submission.argv, env={**os.environ, **root}, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert [each["threads"] for each in assert_all_met(tmp_path, 2, done.stdout + done.stderr)] == ["1", "1"]
