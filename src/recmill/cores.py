"""The cores of a host, shared out among the processes of a run on it.

A process that exchanges something at every step wakes threads that wait for the network. The system puts them where
there is room for a moment, and moves those that compute out of their way and back; who keeps to cores of its own is
spared that.
"""

import json
import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/{}"


class Store(Protocol):
    """Where processes leave words for each other."""

    def set(self, key: str, value: str) -> None:
        """Leave a word."""

    def get(self, key: str) -> bytes:
        """A word, as soon as somebody has left it."""


def keep_to_own_cores(store: Store, local_rank: int, local_size: int) -> None:
    """Have this process, and the threads it will start, run on its share, unless a launcher has seen to that."""
    host, mine = socket.gethostname(), sorted(os.sched_getaffinity(0))
    store.set(f"cores_{host}_{local_rank}", json.dumps(mine))
    if all(json.loads(store.get(f"cores_{host}_{i}")) == mine for i in range(local_size)):
        os.sched_setaffinity(0, share_of(in_order_of_place(mine), local_rank, local_size))


def share_of(cores: Sequence[int], index: int, count: int) -> set[int]:
    """One of so many equal shares of neighbours; where there are fewer cores than shares, one core in turn."""
    if len(cores) < count:
        return {cores[index % len(cores)]}
    return set(cores[len(cores) * index // count : len(cores) * (index + 1) // count])


def in_order_of_place(cores: Iterable[int]) -> list[int]:
    """Socket by socket, those that are threads of one core beside each other."""
    return sorted(cores, key=lambda core: (_place(core, "physical_package_id"), _place(core, "core_id"), core))


def _place(core: int, what: str) -> int:
    try:
        return int(Path(_TOPOLOGY.format(core, what)).read_text())
    except (OSError, ValueError):  # not told: then the numbers of the cores are all there is
        return 0
