import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from recmill.errors import ConfigError
from recmill.world import ALONE, Group, World, joined, read_world
from tests.laws.launcher import WORKER, assert_all_met

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "6",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "first",
    "MASTER_PORT": "4711",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
PALS = {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"}
# What `sbatch` tells its script, and what `srun` tells each process besides.
ALLOCATION = {
    "SLURM_JOB_ID": "20017",
    "SLURM_JOB_NODELIST": "rack[03-06]",
    "SLURM_NTASKS": "7",
    "SLURM_TASKS_PER_NODE": "2(x3),1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
}
SLURM = {
    **ALLOCATION,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "rack[03-06]",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
}


@pytest.mark.parametrize(
    ("words", "world"),
    [
        ({}, ALONE),
        (TORCHRUN, World(5, 6, 1, 2, "cpu", "first", 4711)),
        ({**OPEN_MPI, "MASTER_ADDR": "first"}, World(3, 4, 1, 2, "cpu", "first", 29400)),
        ({**MPICH, "MASTER_ADDR": "first"}, World(3, 4, 1, 2, "cpu", "first", 29400)),
        ({**PALS, "MASTER_ADDR": "first", "MASTER_PORT": "1"}, World(3, 4, 1, 2, "cpu", "first", 1)),
        (SLURM, World(5, 7, 1, 2, "cpu", "rack03", 29417)),
        (
            {**SLURM, "SLURM_PROCID": "6", "SLURM_LOCALID": "0", "SLURM_NODEID": "3"},
            World(6, 7, 0, 1, "cpu", "rack03", 29417),
        ),
        ({**SLURM, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "5"}, World(5, 7, 1, 2, "cpu", "10.0.0.1", 5)),
        (ALLOCATION, ALONE),
    ],
    ids=["none", "torchrun", "open mpi", "mpich", "pals", "slurm", "slurm, last host", "slurm, told where", "sbatch"],
)
def test_every_launcher_is_understood(words: dict[str, str], world: World) -> None:
    assert read_world(words) == world


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (TORCHRUN, SLURM),
        (TORCHRUN, OPEN_MPI),
        (OPEN_MPI, SLURM),  # within an allocation mpiexec starts its servants by srun, one on each host
        (MPICH, SLURM),
    ],
    ids=["torchrun in srun", "torchrun in mpiexec", "open mpi in slurm", "mpich in slurm"],
)
def test_of_nested_launchers_the_inner_one_counts(inner: dict[str, str], outer: dict[str, str]) -> None:
    told = {"MASTER_ADDR": "first", "MASTER_PORT": "4711"}
    assert read_world({**outer, **inner, **told}) == read_world({**inner, **told})


def test_of_srun_that_speaks_pmi_too_only_slurm_knows_the_hosts() -> None:
    assert read_world({**SLURM, "PMI_RANK": "5", "PMI_SIZE": "7"}) == read_world(SLURM)


def test_processes_of_one_host_need_no_address() -> None:
    words = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    assert read_world(words).address == "localhost"


def test_an_attempt_counts_where_one_agent_has_counted_all() -> None:
    again = {**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "3"}
    assert read_world(again).attempt == 0
    assert read_world({**again, "LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "6"}).attempt == 3


def test_every_process_of_a_host_has_a_gpu_of_its_own() -> None:
    assert read_world(TORCHRUN, num_gpus=2).device == "cuda:1"
    assert read_world({}, num_gpus=2).device == "cuda:0"
    with pytest.raises(ConfigError, match=r"LOCAL_RANK=1.*this host has 1 GPUs; start one process for each"):
        read_world(TORCHRUN, num_gpus=1)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("a", "a"),
        ("a,b", "a"),
        ("rack[03-05,9]", "rack03"),
        ("rack[9,03-05],other", "rack9"),
        ("login,rack[1-2]", "login"),
        ("rack[03-05]-x", "rack03-x"),
        ("rack[1-2]-x[07,09]", "rack1-x07"),
    ],
)
def test_the_first_of_slurms_hosts(nodes: str, first: str) -> None:
    assert read_world({**SLURM, "SLURM_STEP_NODELIST": nodes}).address == first


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({**TORCHRUN, "RANK": "first"}, "RANK='first', which is not a number"),
        ({**TORCHRUN, "RANK": "6"}, "RANK=6, WORLD_SIZE=6, .*: a rank is below its size"),
        ({**TORCHRUN, "RANK": "-1"}, "RANK=-1"),
        ({**TORCHRUN, "LOCAL_RANK": "2"}, "LOCAL_RANK=2, LOCAL_WORLD_SIZE=2"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "7"}, "no host has more than all"),
        ({**TORCHRUN, "MASTER_PORT": ""}, "MASTER_PORT='', which is not a number"),
        ({**TORCHRUN, "MASTER_PORT": "65536"}, "MASTER_PORT=65536; ports are from 1 to 65535"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "torchrun says RANK=0 and WORLD_SIZE=2, but not LOCAL_RANK and LOCAL_W"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI_RANK=0 and PMI_SIZE=2, but not MPI_LOCALRANKID"),
        ({**OPEN_MPI}, "MASTER_ADDR is not set, and the processes of this run are on several hosts; have the launcher"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "two"}, r"TASKS_PER_NODE='two'; 2\(x3\),1 is an example"),
        ({**SLURM, "SLURM_NODEID": "4"}, "SLURM_NODEID=4 .* there is no such host"),
    ],
)
def test_words_that_cannot_be_are_named(words: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_world(words)


def test_one_process_has_all_by_itself() -> None:
    with joined(ALONE) as group:
        assert group.add_up(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]
        assert group.gather("a") == ["a"]
        assert group.from_main("a") == "a"
        group.wait_for_all()
    assert Group().process_group is None


def test_two_processes_meet(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port = taken.getsockname()[1]
    pair = []
    for rank in ("0", "1"):
        words = {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": str(port)}
        pair.append(subprocess.Popen([sys.executable, str(WORKER), str(tmp_path)], env={**os.environ, **words}))
    assert [process.wait(timeout=100) for process in pair] == [0, 0]
    assert_all_met(tmp_path, 2)


@pytest.mark.parametrize(("size", "told"), [("1", "done\nlast act\n"), ("2", "done\n")])
def test_one_of_several_processes_leaves_without_the_last_acts_of_others(size: str, told: str) -> None:
    program = (
        "import atexit; from recmill.world import leave; atexit.register(print, 'last act'); print('done'); leave(3)"
    )
    environment = {**os.environ, "WORLD_SIZE": size}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (3, told, "")
