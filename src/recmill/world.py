"""Who this process is among those of its run: read from the environment once, here only.

torchrun's words are the common tongue. Slurm's, Open MPI's and PMI's are translated into them, so that `srun`,
`mpiexec` and `torchrun` start the same program in the same way.
"""

import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from recmill.cores import keep_to_own_cores
from recmill.errors import INTERRUPTED, ConfigError, PeerFailed, RecmillError
from recmill.peers import Facts, Peers, is_broken, meet

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

# How each launcher says rank, size, local rank and number of processes on this host. The first that says all four
# counts: `mpiexec` within an allocation starts its own servants by `srun`, whose words then tell of those, and
# torchrun may be started by either.
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
    ("MPICH", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")),
    # of the step, which `srun` starts: within an `sbatch` script, outside of it, there are only words of the allocation
    ("Slurm", ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")),
    ("PMI", ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE")),
)
DEFAULT_PORT = 29400
PORTS_OF_JOBS = 10_000  # a job of Slurm takes one of so many, by its number
_PR_SET_PDEATHSIG = 1  # of Linux' prctl.h
_SMALL_TENSOR = 1 << 18  # numbers: such tensors travel together, larger ones alone and without a copy
TIMEOUT_S = 300.0  # how long one process waits for another, unless world.timeout_s says otherwise


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
    attempt: int = 0  # how often torchrun has started the processes of a host before

    @property
    def is_main(self) -> bool:
        """Whether this is the one that talks."""
        return self.rank == 0


ALONE = World()


def read_world(environment: Mapping[str, str] | None = None, *, num_gpus: int = 0) -> World:
    """What the launcher has told this process; alone if there was none."""
    words = os.environ if environment is None else environment
    for launcher, names in _DIALECTS:
        if all(name in words for name in names):
            rank, size, local_rank = (_number(words, name) for name in names[:3])
            local_size = _tasks_here(words) if launcher == "Slurm" else _number(words, names[3])
            _refuse_impossible(words, names, (rank, size, local_rank, local_size), num_gpus)
            device = f"cuda:{local_rank}" if num_gpus else "cpu"
            address, attempt = _address(words, size, local_size), _attempt(words, size, local_size)
            return World(rank, size, local_rank, local_size, device, address, _port(words), attempt)
    for launcher, names in _DIALECTS:
        if names[0] in words and names[1] in words:  # or each of them would train the whole run by itself
            missing = [name for name in names if name not in words]
            raise ConfigError(
                f"{launcher} says {names[0]}={words[names[0]]} and {names[1]}={words[names[1]]}, but not "
                f"{' and '.join(missing)}; have it export {'them' if len(missing) > 1 else 'it'} too"
            )
    return World(device="cuda:0" if num_gpus else "cpu")


def _refuse_impossible(
    words: Mapping[str, str], names: tuple[str, str, str, str], numbers: tuple[int, int, int, int], num_gpus: int
) -> None:
    rank, size, local_rank, local_size = numbers
    said = ", ".join(f"{name}={words[name]}" for name in names)
    if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
        raise ConfigError(f"the environment says {said}: a rank is below its size, and no host has more than all")
    if 0 < num_gpus <= local_rank:
        raise ConfigError(f"the environment says {said}, and this host has {num_gpus} GPUs; start one process for each")


def _number(words: Mapping[str, str], name: str) -> int:
    try:
        return int(words[name])
    except ValueError:
        raise ConfigError(f"the environment says {name}={words[name]!r}, which is not a number") from None


def _tasks_here(words: Mapping[str, str]) -> int:
    """Of Slurm's list of tasks, host by host, such as `2(x3),1`: those of this host."""
    name = "SLURM_STEP_TASKS_PER_NODE"
    tasks: list[int] = []
    for part in words[name].split(","):
        if not (found := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)):
            raise ConfigError(f"the environment says {name}={words[name]!r}; 2(x3),1 is an example of such a list")
        tasks += [int(found[1])] * int(found[2] or 1)
    node = _number(words, "SLURM_NODEID") if "SLURM_NODEID" in words else 0
    if not 0 <= node < len(tasks):
        raise ConfigError(f"the environment says SLURM_NODEID={node} and {name}={words[name]}: there is no such host")
    return tasks[node]


def _port(words: Mapping[str, str]) -> int:
    """As told, or the same for all processes of a Slurm job and another for another job on the same host."""
    if "MASTER_PORT" in words:
        port = _number(words, "MASTER_PORT")
        if not 0 < port < 65536:
            raise ConfigError(f"the environment says MASTER_PORT={port}; ports are from 1 to 65535")
        return port
    job = words.get("SLURM_JOB_ID", "0")
    return DEFAULT_PORT + (int(job) % PORTS_OF_JOBS if job.isdigit() else 0)


def _address(words: Mapping[str, str], size: int, local_size: int) -> str:
    if address := words.get("MASTER_ADDR"):
        return address
    if local_size == size:
        return "localhost"
    if nodes := words.get("SLURM_STEP_NODELIST", words.get("SLURM_JOB_NODELIST", "")):
        return _first_host(nodes)
    raise ConfigError(
        "MASTER_ADDR is not set, and the processes of this run are on several hosts; "
        "have the launcher export the address of the first one"
    )


def _attempt(words: Mapping[str, str], size: int, local_size: int) -> int:
    """Of processes that are all on one host: the agents of several hosts count by themselves, and differ."""
    name = "TORCHELASTIC_RESTART_COUNT"
    return _number(words, name) if name in words and local_size == size else 0


def _first_host(nodes: str) -> str:
    """Of Slurm's list of hosts: `a`, `a,b`, `rack[03-05,9]`, `rack[03-05]-x[1,2]`."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    assert first is not None
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first[0])


class Group:
    """The processes of a run, to add up and to hand round; of one process it does nothing, and costs nothing."""

    def __init__(self, world: World = ALONE, peers: Peers | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.world = world
        self.timeout_s = timeout_s
        self._peers = peers

    def reach(self, stage: str) -> None:
        """Note what this process has come to, for a message of one that waits for it."""
        if self._peers:
            self._peers.stage = stage

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

    def average(self, tensors: "Sequence[Tensor]") -> None:
        """Put the mean over all processes in the place of what each has.

        The sums are made in an order that the sizes of the tensors decide, so that a run that is started again makes
        the same ones; torch's own data-parallel wrapper distributes its tensors anew after the first step.
        """
        if self.world.size == 1:
            return
        import torch
        import torch.distributed as dist

        small = [tensor for tensor in tensors if tensor.numel() < _SMALL_TENSOR]
        flat = [torch.cat([tensor.reshape(-1) for tensor in small])] if small else []
        for whole in (*flat, *(tensor for tensor in tensors if tensor.numel() >= _SMALL_TENSOR)):
            dist.all_reduce(whole)
            whole /= self.world.size
        start = 0
        for tensor in small:
            tensor.copy_(flat[0][start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()

    def stack(self, values: NDArray[Any]) -> NDArray[Any]:
        """What each process has, an array of the same shape, in the order of their ranks along a new first axis."""
        return self.start_stacking(values)()

    def start_stacking(self, values: NDArray[Any]) -> Callable[[], NDArray[Any]]:
        """The same on its way; what is returned waits for it."""
        if self.world.size == 1:
            return lambda: values[None]
        import torch
        import torch.distributed as dist

        mine = torch.from_numpy(np.ascontiguousarray(values)).to(self._device)
        rows = [torch.empty_like(mine) for _ in range(self.world.size)]
        coming = dist.all_gather(rows, mine, async_op=True)

        def finish() -> NDArray[Any]:
            coming.wait()
            return np.asarray(torch.stack(rows).cpu().numpy())

        return finish

    def join_rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """The rows of all processes, which may have different numbers of them, one behind the other."""
        if self.world.size == 1:
            return values
        counts = self.stack(np.array([len(values)])).ravel()
        if not counts.any():
            return values
        padded = np.zeros((counts.max(), *values.shape[1:]), values.dtype)
        padded[: len(values)] = values
        stacked = self.stack(padded)
        return np.concatenate([rows[:count] for rows, count in zip(stacked, counts, strict=True)])

    def gather(self, value: Any) -> list[Any]:
        """What each process has, in the order of their ranks."""
        if self.world.size == 1:
            return [value]
        import torch.distributed as dist

        gathered: list[Any] = [None] * self.world.size
        dist.all_gather_object(gathered, value)
        return gathered

    def from_rank(self, tensor: "Tensor", rank: int) -> "Tensor":
        """What one process has in a tensor of the same shape; all others' are filled with it."""
        if self.world.size > 1:
            import torch.distributed as dist

            dist.broadcast(tensor, src=rank)
        return tensor

    def from_main(self, value: Any) -> Any:
        """What the main process has."""
        if self.world.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """A body that all processes leave, or none: where one is in error, all are."""
        error: RecmillError | None = None
        try:
            yield
        except RecmillError as caught:
            error = caught
        statuses = [status for status in self.gather(error.exit_status if error else None) if status is not None]
        if error is not None:
            raise error
        if statuses:
            raise PeerFailed(statuses[0])

    def wait_for_all(self) -> None:
        """Return when all processes have come to this point."""
        self.add_up(np.zeros(1))

    @property
    def _device(self) -> str:
        return self.world.device


@contextmanager
def joined(
    world: World, *, is_sharded: bool = True, timeout_s: float = TIMEOUT_S, facts: Facts | None = None
) -> Iterator[Group]:
    """The group of all processes, for as long as the body runs; who is alone needs none, unless the tables do.

    All have to come with the same facts. Where one is lost all others end with an error that names it.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _end_with_parent()
    if world.size == 1 and not is_sharded:
        yield Group(world, timeout_s=timeout_s)
        return
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import HashStore

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
    peers = meet(world, facts or {}, timeout_s) if world.size > 1 else None
    store: Any = peers.store if peers else HashStore()  # who is alone has nobody to meet, and needs no port
    with _ending_together(peers):
        if peers:
            keep_to_own_cores(store, world.local_rank, world.local_size)  # before the first thread of another kind
        backend = "gloo" if world.device == "cpu" else "nccl"
        timeout = timedelta(seconds=timeout_s)
        dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=timeout)
        try:
            yield Group(world, peers, timeout_s)
        finally:
            dist.destroy_process_group()


@contextmanager
def _ending_together(peers: Peers | None) -> Iterator[None]:
    """A body of several processes: an error of one is known to the others, and a broken connection is explained."""
    try:
        yield
    except BaseException as error:
        if peers is None:
            raise
        if not is_broken(error):
            peers.end(INTERRUPTED if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_status", 1))
            raise
        with _without_sigterm():
            reason = peers.explain(error)
            peers.end(reason.exit_status)
        raise reason from error
    if peers:
        peers.end()


@contextmanager
def _without_sigterm() -> Iterator[None]:
    """A body that is not ended by who has started the processes and ends all when one has died; it takes seconds."""
    if threading.current_thread() is not threading.main_thread():  # only that one may
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def leave(status: int) -> NoReturn:
    """End this process; one of several at once, without the last acts of the libraries it has loaded.

    Where tables were spread, a thread of theirs may still be there when what it belongs to is taken down, and a process
    that has done all its work then ends as killed ("terminate called without an active exception").
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _end_with_parent() -> None:
    """Have the system kill this process when torchrun's agent is killed, or it would go on training unseen."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # Linux alone has it
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
