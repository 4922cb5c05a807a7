"""Which rows were trained in which step: a fingerprint of every row, as proof that none was lost or taken twice."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.data.events.windows import SequenceBatch
from recmill.errors import RunError
from recmill.files import write_atomic
from recmill.jit import njit, uint64
from recmill.own_files import read_own_bytes
from recmill.seeds import mix64

LEDGER = "ledger"
_MAX_BYTES = 1 << 45
ENTRY = np.dtype([("step", np.int64), ("row", np.uint64)])


@njit(nogil=True, cache=True)
def _fingerprint(dense: NDArray[np.uint32], ids: NDArray[np.int64], labels: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Of each row's bits: rows that are equal in all columns have the same."""
    out = np.empty(len(labels), np.uint64)
    for row in range(len(labels)):
        mixed = mix64(uint64(labels[row]))
        for column in range(dense.shape[1]):
            mixed = mix64(mixed ^ uint64(dense[row, column]))
        for column in range(ids.shape[1]):
            mixed = mix64(mixed ^ uint64(ids[row, column]))
        out[row] = mixed
    return out


def fingerprint(columns: Columns) -> NDArray[np.uint64]:
    """One number for each row."""
    dense, labels = np.ascontiguousarray(columns.dense), np.ascontiguousarray(columns.labels)
    if len(columns.weights):  # beside the numbers, so that rows without weights have the prints they always had
        dense = np.column_stack([dense, columns.weights])
    return np.asarray(_fingerprint(dense.view(np.uint32), columns.ids, labels.view(np.uint32)))


@njit(nogil=True, cache=True)
def _fingerprint_windows(
    ids: NDArray[np.int64], targets: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    out = np.empty(len(lengths), np.uint64)
    event = 0
    for row in range(len(lengths)):
        mixed = mix64(uint64(lengths[row]))
        for _ in range(lengths[row]):
            mixed = mix64(mix64(mixed ^ uint64(ids[event])) ^ uint64(targets[event]))
            event += 1
        out[row] = mixed
    return out


def fingerprint_windows(batch: SequenceBatch) -> NDArray[np.uint64]:
    """One number for each window, by what is seen and what is to be guessed in it."""
    return np.asarray(_fingerprint_windows(batch.ids, batch.targets, batch.lengths))


class Ledger:
    """Adds a step's rows to the file of this process; what is written survives the process."""

    def __init__(self, run_dir: Path, rank: int) -> None:
        _make(run_dir / LEDGER)
        self._file = (run_dir / LEDGER / f"{rank:05}.bin").open("ab", buffering=0)

    def note(self, step: int, fingerprints: NDArray[np.uint64]) -> None:
        """One more step, the one that made `step`."""
        entries = np.empty(len(fingerprints), ENTRY)
        entries["step"], entries["row"] = step, fingerprints
        self._file.write(entries.tobytes())

    def close(self) -> None:
        """No more steps."""
        self._file.close()


def read_ledger(run_dir: Path) -> NDArray[np.void]:
    """The entries of all processes, by step and then by row."""
    parts = [_read(path) for path in sorted((run_dir / LEDGER).glob("*.bin"))]
    return np.sort(np.concatenate([np.empty(0, ENTRY), *parts]), order=("step", "row"))


def forget_behind(run_dir: Path, step: int) -> None:
    """Drop what was noted behind a step: a run that goes on from there will note it again."""
    for path in (run_dir / LEDGER).glob("*.bin"):
        entries = _read(path)
        kept = entries[entries["step"] <= step]
        if kept.nbytes != path.stat().st_size:
            write_atomic(path, kept.tobytes())


def _read(path: Path) -> NDArray[np.void]:
    """All whole entries of a file; a kill may have torn the last."""
    content = read_own_bytes(path, max_bytes=_MAX_BYTES)
    entries = np.frombuffer(content[: len(content) // ENTRY.itemsize * ENTRY.itemsize], ENTRY)
    steps = entries["step"]
    is_wrong = np.concatenate([steps[:1] < 1, steps[1:] < steps[:-1]])
    if is_wrong.any():
        place = int(is_wrong.argmax())
        raise RunError(
            f"{path} is damaged: entry {place:,} is of step {steps[place]:,}, which does not follow the one before it; "
            "restore it from a copy, or set cadence.keep_ledger=false"
        )
    return entries


def _make(directory: Path) -> None:
    if os.path.lexists(directory) and not directory.is_dir():
        raise RunError(f"{directory} is no directory, and the ledger is to be written there; remove it")
    directory.mkdir(exist_ok=True)
