"""Blocks of rows with keys, sorted runs of them in scratch files, and the merge of many runs in bounded memory."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

_FRAME_BYTES = 256 << 10  # of a run, read at once
_MAX_RUNS = 128  # merged at once: each is an open file


class KeyedBlock(Protocol):
    """Neighbouring rows and their keys."""

    @property
    def keys(self) -> NDArray[np.float64]:
        """What the rows are sorted by; no NaN."""

    @property
    def num_bytes(self) -> int:
        """About how much memory the rows take."""

    def part(self, start: int, stop: int) -> Self:
        """Some of the rows."""

    def cut(self, num_bytes: int) -> Iterator[Self]:
        """All rows, in blocks of about so many bytes."""

    def pack(self) -> Sequence[Any]:
        """The rows without their keys, as buffers that may be written one behind another."""

    @classmethod
    def unpack(cls, keys: NDArray[np.float64], content: NDArray[np.uint8]) -> Self:
        """The block that was packed."""

    @classmethod
    def join(cls, blocks: Sequence[Self]) -> Self:
        """The rows of all blocks, in the order of their keys; rows of equal keys in the order they are given in."""


B = TypeVar("B", bound=KeyedBlock)


@dataclass(frozen=True)
class SortMemory:
    """How much memory sorting may fill, and where its scratch files go."""

    run_bytes: int
    scratch_dir: Path

    @property
    def frame_bytes(self) -> int:
        """How much of a run is read at once."""
        return max(_FRAME_BYTES, self.run_bytes // _MAX_RUNS)

    @property
    def num_runs(self) -> int:
        """How many runs are merged at once."""
        return min(_MAX_RUNS, max(2, self.run_bytes // self.frame_bytes))


def order_of(keys: NDArray[np.float64]) -> NDArray[np.intp] | None:
    """Where the rows of a sorted block come from; None if they are sorted."""
    return None if bool((keys[1:] >= keys[:-1]).all()) else np.argsort(keys, kind="stable")


def sort_blocks(blocks: Iterable[B], kind: type[B], room: SortMemory) -> Iterator[B]:
    """The rows of all blocks in the order of their keys."""
    runs = list[Callable[[], Iterator[B]]]()
    held, num_bytes = list[B](), 0
    for block in blocks:
        held.append(block)
        num_bytes += block.num_bytes
        if num_bytes >= room.run_bytes:
            runs.append(_write_run(kind.join(held).cut(room.frame_bytes), kind, room))
            held, num_bytes = [], 0
    if not runs:
        yield from [kind.join(held)] if held else []
        return
    if held:
        runs.append(_write_run(kind.join(held).cut(room.frame_bytes), kind, room))
        held = []
    while len(runs) > room.num_runs:
        groups = [runs[at : at + room.num_runs] for at in range(0, len(runs), room.num_runs)]
        runs = []
        while groups:  # what is merged is let go of, and its disk with it
            group = groups.pop(0)
            merged = merge([run() for run in group], kind)
            runs.append(_write_run((part for block in merged for part in block.cut(room.frame_bytes)), kind, room))
    yield from merge([run() for run in runs], kind)


def merge(runs: Sequence[Iterator[B]], kind: type[B]) -> Iterator[B]:
    """The rows of sorted runs in the order of their keys; of equal ones, those of earlier runs first."""
    fronts = [next(run, None) for run in runs]
    while any(front is not None for front in fronts):
        # the run whose block ends first: nothing that is not yet read comes before its last row
        ends = [(float(front.keys[-1]), i) for i, front in enumerate(fronts) if front is not None]
        bound, owner = min(ends)
        taken = list[B]()
        for i, front in enumerate(fronts):
            if front is None or front.keys[0] > bound:
                continue
            num_rows = int(np.searchsorted(front.keys, bound, "right" if i <= owner else "left"))
            if num_rows:
                taken.append(front.part(0, num_rows))
            is_spent = num_rows == len(front.keys)
            fronts[i] = next(runs[i], None) if is_spent else front.part(num_rows, len(front.keys))
        yield kind.join(taken)


def _write_run(blocks: Iterable[B], kind: type[B], room: SortMemory) -> Callable[[], Iterator[B]]:
    """Put sorted blocks into a file without a name; what reads them again, once."""
    file = tempfile.TemporaryFile(dir=room.scratch_dir)  # noqa: SIM115 closed with its last block
    for block in blocks:
        packed = [np.ascontiguousarray(block.keys).data.cast("B"), *block.pack()]
        sizes = [len(each) for each in packed]
        file.write(np.array([sizes[0], sum(sizes[1:])], np.int64).tobytes())
        for each in packed:
            file.write(each)
    return lambda: _read_run(file, kind)


def _read_run(file: IO[bytes], kind: type[B]) -> Iterator[B]:
    with file:
        file.seek(0)
        while head := file.read(16):
            key_bytes, content_bytes = np.frombuffer(head, np.int64).tolist()
            keys = np.frombuffer(file.read(key_bytes), np.float64)
            yield kind.unpack(keys, np.frombuffer(file.read(content_bytes), np.uint8))
