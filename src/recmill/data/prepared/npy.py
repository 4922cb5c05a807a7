"""TorchRec's three arrays per file: NAME_dense.npy float32, NAME_sparse.npy int32 or int64, NAME_labels.npy int32.

Rows that have weights have a fourth: NAME_weights.npy float32.
"""

import io
import mmap
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import NO_WEIGHTS, Columns
from recmill.errors import DataError
from recmill.files import write_at
from recmill.settings.data import Access

KINDS = ("dense", "sparse", "labels")
_IDS = {"int32": "<i4", "int64": "<i8"}


@dataclass(frozen=True)
class NpyLayout:
    """The widths of the arrays, and the type of ids."""

    num_dense: int
    num_slots: int
    ids_dtype: Literal["int32", "int64"] = "int32"
    has_weight: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The arrays of one name."""
        return (*KINDS, "weights") if self.has_weight else KINDS

    def shape(self, kind: str, num_rows: int) -> tuple[int, int]:
        """Of one of the arrays."""
        return num_rows, {"dense": self.num_dense, "sparse": self.num_slots, "labels": 1, "weights": 1}[kind]

    def dtype(self, kind: str) -> np.dtype[Any]:
        """Of one of the arrays."""
        return np.dtype({"dense": "<f4", "sparse": _IDS[self.ids_dtype], "labels": "<i4", "weights": "<f4"}[kind])

    @property
    def row_bytes(self) -> int:
        """How much a row takes in all files."""
        return sum(self.shape(kind, 1)[1] * self.dtype(kind).itemsize for kind in self.kinds)

    def to_json(self) -> dict[str, Any]:
        """Plain data for a manifest; rows without weights do not mention them."""
        return {key: value for key, value in asdict(self).items() if key != "has_weight" or value}


class NpyFile:
    """The files of one name, or some of them, of a known length, written in any order by any thread."""

    def __init__(self, directory: Path, name: str, num_rows: int, layout: NpyLayout, kinds: Sequence[str] = ()) -> None:
        self._layout = layout
        self._files = dict[str, int]()
        self._starts = dict[str, int]()
        for kind in kinds or layout.kinds:
            header = npy_header(layout.dtype(kind), layout.shape(kind, num_rows))
            num_bytes = len(header) + num_rows * self._row_bytes(kind)
            descriptor = os.open(directory / f"{name}_{kind}.npy", os.O_RDWR | os.O_CREAT, 0o644)
            if os.fstat(descriptor).st_size != num_bytes:
                os.ftruncate(descriptor, num_bytes)
                os.pwrite(descriptor, header, 0)
            self._files[kind], self._starts[kind] = descriptor, len(header)

    def write(self, first_row: int, columns: Columns) -> None:
        """Put rows where they belong."""
        arrays = {"dense": columns.dense, "sparse": columns.ids, "labels": columns.labels, "weights": columns.weights}
        for kind, descriptor in self._files.items():
            content = np.ascontiguousarray(arrays[kind], self._layout.dtype(kind))
            offset = self._starts[kind] + first_row * self._row_bytes(kind)
            write_at(descriptor, content.reshape(-1).view(np.uint8).data, offset)

    def close(self) -> None:
        """Let go of the files; whoever seals the directory sees to it that they are on the disk."""
        for descriptor in self._files.values():
            os.close(descriptor)

    def _row_bytes(self, kind: str) -> int:
        return self._layout.shape(kind, 1)[1] * self._layout.dtype(kind).itemsize


def npy_header(dtype: np.dtype[Any], shape: tuple[int, int]) -> bytes:
    """Version 1.0, which every reader of the format understands."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return out.getvalue()


class NpyTable:
    """The rows of one name, read back: mapped, held in memory, or read from the file each time."""

    def __init__(self, directory: Path, name: str, access: Access = "mapped", kinds: Sequence[str] = KINDS) -> None:
        self.path = directory / f"{name}_labels.npy"
        self._access = access
        self._arrays = {kind: open_array(directory / f"{name}_{kind}.npy", access) for kind in kinds}
        self.num_rows = len(self._arrays["labels"])
        for kind, array in self._arrays.items():
            if len(array) != self.num_rows:
                path = directory / f"{name}_{kind}.npy"
                raise DataError(f"{path} has {len(array)} rows and {self.path.name} {self.num_rows}; prepare them anew")

    def read(self, start: int, stop: int) -> Columns:
        """Some rows, as they were encoded."""
        dense, sparse, labels = (self._arrays[kind][start:stop] for kind in KINDS)
        return Columns(
            np.ascontiguousarray(dense, np.float32),
            np.ascontiguousarray(sparse, np.int64),
            np.ascontiguousarray(labels[:, 0], np.float32),
            self._read_weights(start, stop),
        )

    def _read_weights(self, start: int, stop: int) -> NDArray[np.float32]:
        weights = self._arrays.get("weights")
        return NO_WEIGHTS if weights is None else np.ascontiguousarray(weights[start:stop][:, 0], np.float32)

    def fetch(self, start: int, stop: int) -> None:
        """Ask the system to read some rows from the disk, without waiting for them."""
        for array in self._arrays.values():
            fetch_rows(array, start, stop)

    def close(self) -> None:
        """Let go of the memory; it is unmapped with the last array that looks into it."""
        self._arrays = {}


def fetch_rows(array: "NDArray[Any] | FileRows", start: int, stop: int) -> None:
    """Ask the system to read rows of a mapped array from the disk, without waiting for them; others have no need."""
    if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap) and array.size:
        in_map = array.offset % mmap.ALLOCATIONGRANULARITY
        first, last = in_map + start * array.strides[0], in_map + stop * array.strides[0]
        page = first // mmap.PAGESIZE * mmap.PAGESIZE
        if page < last:
            array.base.madvise(mmap.MADV_WILLNEED, page, last - page)


class FileRows:
    """Rows of an array that stays in its file from `start` on: only what is asked for is read."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> None:
        self._path, self._dtype, self.shape, self._start = path, dtype, shape, start

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(len(self))
        width = int(self.shape[1])
        offset = self._start + start * width * self._dtype.itemsize
        count = max(0, stop - start) * width
        return np.fromfile(self._path, self._dtype, count, offset=offset).reshape(-1, width)


def open_array(path: Path, access: Access) -> NDArray[Any] | FileRows:
    """The rows of an array file."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode=None if access == "memory" else "r")
    except FileNotFoundError:
        raise DataError(f"{path} is missing; prepare the data anew") from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} is not a complete array: {error}") from None
    if array.ndim != 2:
        raise DataError(f"{path} has {array.ndim} dimensions; rows of columns have 2")
    if access == "streamed":
        return FileRows(path, array.dtype, array.shape, path.stat().st_size - array.nbytes)
    return array
