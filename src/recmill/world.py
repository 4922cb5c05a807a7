"""Who this process is among those of its run: read from the environment once, here only.

torchrun's words are the common tongue. Slurm's, Open MPI's and PMI's are translated into them, so that `srun`,
`mpiexec` and `torchrun` start the same program in the same way.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recmill.errors import ConfigError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# How each launcher says rank, size, local rank and number of processes on this host; the first that is there counts.
_DIALECTS: tuple[tuple[str, tuple[str, str, str, str]], ...] = (
    ("torchrun", ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")),
    (
        "Open MPI",
        (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ),
    ),
    ("PMI", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")),
    ("Slurm", ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")),
)
DEFAULT_PORT = 29400
TIMEOUT_S = 300.0  # how long one process waits for another before it takes it for lost


@dataclass(frozen=True)
class World:
    """One process of `size`, and where the first of them listens."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    device: str = "cpu"
    address: str = "localhost"
    port: int = DEFAULT_PORT

    @property
    def is_main(self) -> bool:
        """Whether this is the one that talks."""
        return self.rank == 0


ALONE = World()


def read_world(environment: Mapping[str, str] | None = None, *, num_gpus: int = 0) -> World:
    """What the launcher has told this process; alone if there was none."""
    words = os.environ if environment is None else environment
    for launcher, names in _DIALECTS:
        rank_name, size_name, local_rank_name, local_size_name = names
        if rank_name in words and size_name in words and not _is_a_step_of_one(launcher, words):
            rank, size = _number(words, rank_name), _number(words, size_name)
            local_rank = _number(words, local_rank_name) if local_rank_name in words else rank
            local_size = _number(words, local_size_name) if local_size_name in words else size
            if not 0 <= rank < size:
                raise ConfigError(
                    f"{launcher} says {rank_name}={rank} and {size_name}={size}: a rank is below the size"
                )
            device = f"cuda:{local_rank}" if num_gpus else "cpu"
            port = _number(words, "MASTER_PORT") if "MASTER_PORT" in words else _port_of_job(words)
            return World(rank, size, local_rank, local_size, device, _address(words, size, local_size), port)
    return World(device="cuda:0" if num_gpus else "cpu")


def _is_a_step_of_one(launcher: str, words: Mapping[str, str]) -> bool:
    """Within an `sbatch` script, outside of `srun`, Slurm's words tell of the allocation and not of processes."""
    return launcher == "Slurm" and "SLURM_STEP_ID" not in words


def _number(words: Mapping[str, str], name: str) -> int:
    try:
        return int(words[name])
    except ValueError:
        raise ConfigError(f"the environment says {name}={words[name]!r}, which is not a number") from None


def _port_of_job(words: Mapping[str, str]) -> int:
    """The same for all processes of a job, and another for another job on the same host."""
    job = words.get("SLURM_JOB_ID", "0")
    return DEFAULT_PORT + (int(job) % 10_000 if job.isdigit() else 0)


def _address(words: Mapping[str, str], size: int, local_size: int) -> str:
    if address := words.get("MASTER_ADDR"):
        return address
    if nodes := words.get("SLURM_STEP_NODELIST", words.get("SLURM_JOB_NODELIST", "")):
        return _first_host(nodes)
    if local_size < size:
        raise ConfigError(
            "MASTER_ADDR is not set, and the processes of this run are on several hosts; "
            "have the launcher export the address of the first one"
        )
    return "localhost"


def _first_host(nodes: str) -> str:
    """Of Slurm's list of hosts: `a`, `a,b`, `rack[03-05,9]`, `rack[03-05]-x`."""
    if "[" not in nodes.split(",")[0]:
        return nodes.split(",")[0]
    stem, rest = nodes.split("[", 1)
    numbers, tail = rest.split("]", 1)
    return stem + numbers.split(",")[0].split("-")[0] + tail.split(",")[0]


class Group:
    """The processes of a run, to add up and to hand round; of one process it does nothing, and costs nothing."""

    def __init__(self, world: World = ALONE) -> None:
        self.world = world

    @property
    def process_group(self) -> "ProcessGroup | None":
        """The processes as torch knows them; None of one that is alone."""
        import torch.distributed as dist

        return dist.group.WORLD if dist.is_initialized() else None

    def add_up(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sums over all processes."""
        if self.world.size == 1:
            return values
        import torch
        import torch.distributed as dist

        total = torch.from_numpy(values.copy()).to(self._device)
        dist.all_reduce(total)
        return np.asarray(total.cpu().numpy())

    def gather(self, value: Any) -> list[Any]:
        """What each process has, in the order of their ranks."""
        if self.world.size == 1:
            return [value]
        import torch.distributed as dist

        gathered: list[Any] = [None] * self.world.size
        dist.all_gather_object(gathered, value)
        return gathered

    def from_main(self, value: Any) -> Any:
        """What the main process has."""
        if self.world.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def wait_for_all(self) -> None:
        """Return when all processes have come to this point."""
        self.add_up(np.zeros(1))

    @property
    def _device(self) -> str:
        return self.world.device


@contextmanager
def joined(world: World, *, timeout_s: float = TIMEOUT_S) -> Iterator[Group]:
    """The group of all processes, for as long as the body runs."""
    if world.size == 1:
        yield Group(world)
        return
    import torch
    import torch.distributed as dist

    if world.device != "cpu":
        torch.cuda.set_device(world.device)
    # TorchRec and torch ask the environment themselves
    os.environ.update(
        RANK=str(world.rank),
        WORLD_SIZE=str(world.size),
        LOCAL_RANK=str(world.local_rank),
        LOCAL_WORLD_SIZE=str(world.local_size),
        MASTER_ADDR=world.address,
        MASTER_PORT=str(world.port),
    )
    dist.init_process_group("gloo" if world.device == "cpu" else "nccl", timeout=timedelta(seconds=timeout_s))
    try:
        yield Group(world)
    finally:
        dist.destroy_process_group()
