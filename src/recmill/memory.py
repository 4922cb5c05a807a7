"""The process's memory."""

import ctypes
import resource
import sys
from pathlib import Path

import psutil

# of version 2 and 1, as a container sees them
_GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
# glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory for the next use instead of giving it back to the system.

    A training step allocates and frees the same activations as the one before, a reader the same columns. By default
    large ones are mapped anew each time, and the system clears every page again: about 900 page faults per step of the
    `small` recipe, 50 with this.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have no such switch
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def limit_bytes() -> int:
    """The most that a process can ever have: memory and swap of the machine, or the limit of its group, or its own."""
    most = min(int(psutil.virtual_memory().total + psutil.swap_memory().total), _address_space())
    for path in _GROUP_LIMITS:
        try:
            most = min(most, int(path.read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return most


def available_bytes(num_procs: int = 1) -> int:
    """What one of so many processes of this machine may still fill."""
    room = _address_space()
    own = room if room == sys.maxsize else max(0, room - int(psutil.Process().memory_info().vms))
    return min(int(psutil.virtual_memory().available) // num_procs, own)


def _address_space() -> int:
    """The limit of this process (`ulimit -v`)."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
