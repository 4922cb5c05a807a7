"""Where a run computes: on the CPU or on CUDA, decided in one place for runs, plans and `recmill doctor`."""

from importlib.util import find_spec

from recmill.errors import ConfigError, MissingExtra
from recmill.settings.run import Device

INSTALL_SHARDED = "make install-full in a checkout, or pip install 'recmill[sharded]'"


def has_torchrec() -> bool:
    """Whether TorchRec is installed."""
    return find_spec("torchrec") is not None


def choose_gpus(device: Device, num_gpus: int, *, is_torchrec_there: bool) -> int:
    """How many of a host's GPUs a run uses, one for each process; 0: it is on the CPU.

    On CUDA the tables are TorchRec's, so that without it a GPU is of no use.
    """
    if device == "cpu":
        return 0
    if device == "auto":
        return num_gpus if is_torchrec_there else 0
    if not num_gpus:
        raise ConfigError("device = cuda, and torch sees no CUDA device here; set device=cpu, or leave it out")
    if not is_torchrec_there:
        raise MissingExtra(f"device = cuda needs TorchRec, which holds the tables there: {INSTALL_SHARDED}")
    return num_gpus


def require_torchrec(why: str) -> None:
    """Complain if TorchRec is not installed; `why` says what needs it."""
    if not has_torchrec():
        raise MissingExtra(f"{why} needs TorchRec, which is not installed: {INSTALL_SHARDED}")
