"""How many threads layers and kernels have."""

import os

import numba
import torch


def use_threads(threads: int | None) -> int:
    """Give torch and our kernels the same number of threads, by default one for each core it has; returns it."""
    available = len(os.sched_getaffinity(0))
    chosen = min(threads or available, int(numba.config.NUMBA_NUM_THREADS))
    torch.set_num_threads(chosen)
    numba.set_num_threads(chosen)
    return chosen
