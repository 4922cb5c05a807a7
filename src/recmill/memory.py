"""The process's memory."""

import ctypes

import psutil

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


def available_bytes(num_procs: int = 1) -> int:
    """What one of so many processes of this machine may still fill."""
    return int(psutil.virtual_memory().available) // num_procs
