"""MPI's `mpiexec` as a starter of processes; they talk to each other by gloo or NCCL as ever, not by MPI."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Literal, NoReturn, get_args

from recmill.errors import ConfigError
from recmill.launch.job import Job, Submission, refuse_no_port
from recmill.world import DEFAULT_PORT

Flavour = Literal["openmpi", "mpich"]
FLAVOURS: tuple[Flavour, ...] = get_args(Flavour)
# What `mpiexec --version` calls itself.
_SIGNS: dict[str, Flavour] = {"Open MPI": "openmpi", "OpenRTE": "openmpi", "HYDRA": "mpich", "Intel(R) MPI": "mpich"}


@dataclass(frozen=True)
class MpiOptions:
    """Whose mpiexec it is, and the hosts."""

    flavour: Flavour
    hosts: tuple[str, ...] = ()
    port: int = DEFAULT_PORT

    def __post_init__(self) -> None:
        refuse_no_port(self.port)
        if "" in self.hosts:
            raise ConfigError(f"--hosts {','.join(self.hosts)}: write their names with one comma between two")


def plan(job: Job, options: MpiOptions) -> Submission:
    """The line for that mpiexec."""
    if len(options.hosts) != job.nodes and (options.hosts or job.nodes > 1):
        raise ConfigError(
            f"--nodes {job.nodes} with mpi needs as many --hosts, and {len(options.hosts)} are given; "
            "the first host is where the processes meet"
        )
    hosts = options.hosts or ("localhost",)
    words = {"MASTER_ADDR": hosts[0], "MASTER_PORT": str(options.port), **job.environment}
    if options.flavour == "openmpi":
        places = ["--host", ",".join(f"{host}:{job.procs}" for host in hosts), "--map-by", f"ppr:{job.procs}:node"]
        # by default each process is bound to one core, and all of its threads with it
        exports = [word for name, text in words.items() for word in ("-x", f"{name}={text}")]
        return Submission(("mpiexec", "-n", str(job.num_procs), *places, "--bind-to", "none", *exports, *job.argv))
    places = ["-hosts", ",".join(hosts), "-ppn", str(job.procs)]
    exports = [word for name, text in words.items() for word in ("-genv", name, text)]
    return Submission(("mpiexec", "-n", str(job.num_procs), *places, *exports, *job.argv))


def ask_flavour() -> Flavour:
    """Whose mpiexec this machine has."""
    way_out = f"say which it will be with --mpi {' or --mpi '.join(FLAVOURS)}"
    if shutil.which("mpiexec") is None:
        raise ConfigError(f"--on mpi needs mpiexec, which is not on PATH; install it, or {way_out} to see the line")
    told = subprocess.run(["mpiexec", "--version"], capture_output=True, text=True)
    for sign, flavour in _SIGNS.items():
        if sign in told.stdout + told.stderr:
            return flavour
    first = (told.stdout + told.stderr).strip().partition("\n")[0]
    raise ConfigError(f"`mpiexec --version` says {first!r}, which is neither Open MPI nor MPICH; {way_out}")


def submit(submission: Submission) -> NoReturn:
    """Become mpiexec: what is sent to this process reaches it, and its status is ours."""
    if shutil.which(submission.argv[0]) is None:
        raise ConfigError("--on mpi needs mpiexec, which is not on PATH; install it, or see the line with --dry-run")
    os.execvp(submission.argv[0], submission.argv)
