"""TorchRec's three arrays per file: NAME_dense.npy float32, NAME_sparse.npy int32 or int64, NAME_labels.npy int32.

Rows that have weights have a fourth: NAME_weights.npy float32.
"""

import io
import mmap
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import NO_WEIGHTS, Columns
from recmill.errors import DataError
from recmill.files import write_at
from recmill.regular import require_regular
from recmill.settings.data import Access
from recmill.verified import PREPARE_ANEW

KINDS = ("dense", "sparse", "labels")
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_HEADER_ERRORS = (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError, TokenError)
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

    def __init__(self, directory: Path, name: str, layout: NpyLayout, access: Access = "mapped") -> None:
        self.path = directory / f"{name}_labels.npy"
        self.ids_path = directory / f"{name}_sparse.npy"
        self._access = access
        self._arrays = {kind: open_rows(directory, name, kind, layout, access) for kind in layout.kinds}
        self.num_rows = len(self._arrays["labels"])
        for kind, array in self._arrays.items():
            if len(array) != self.num_rows:
                path = directory / f"{name}_{kind}.npy"
                raise DataError(f"{path} has {len(array)} rows and {self.path.name} {self.num_rows}; prepare them anew")

    @staticmethod
    def files_of(name: str, layout: NpyLayout) -> list[str]:
        """The files in which the rows of a name are."""
        return [f"{name}_{kind}.npy" for kind in layout.kinds]

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


def open_rows(directory: Path, name: str, kind: str, layout: NpyLayout, access: Access) -> "NDArray[Any] | FileRows":
    """One of the arrays of a name, as the layout says that it is."""
    path = directory / f"{name}_{kind}.npy"
    require_regular(path, PREPARE_ANEW)
    with path.open("rb") as file:
        num_bytes = os.fstat(file.fileno()).st_size
        return open_array(
            path, *read_header(path, file, num_bytes, layout.dtype(kind), layout.shape(kind, 0)[1]), access
        )


def read_header(
    path: Path, file: BinaryIO, end: int, dtype: np.dtype[Any], width: int
) -> tuple[np.dtype[Any], tuple[int, int], int]:
    """The type, the shape and the first byte of an array that fills a file up to `end`; another one is rejected.

    Arrays of Python objects, which would run code when they are read, are never of the type that is expected.
    """
    try:
        read_shape = _HEADERS[np.lib.format.read_magic(file)]
        shape, is_fortran, found = read_shape(file)
    except (*_HEADER_ERRORS, EOFError, OSError) as error:
        raise DataError(f"{path} is not a complete array: {error}; {PREPARE_ANEW}") from None
    start = file.tell()
    if found != dtype or is_fortran or len(shape) != 2 or shape[1] != width or shape[0] < 0:
        raise DataError(
            f"{path} holds {found} of shape {shape}{' by columns' if is_fortran else ''}; rows of {width} {dtype} were "
            f"announced; {PREPARE_ANEW}"
        )
    if start + shape[0] * width * dtype.itemsize != end:
        raise DataError(f"{path} is not a complete array: it is not as long as its header says; {PREPARE_ANEW}")
    return found, (int(shape[0]), width), start


def open_array(
    path: Path, dtype: np.dtype[Any], shape: tuple[int, int], start: int, access: Access
) -> NDArray[Any] | FileRows:
    """The rows of an array that lies in a file from a byte on."""
    if access == "streamed":
        return FileRows(path, dtype, shape, start)
    if not shape[0] * shape[1]:
        return np.empty(shape, dtype)
    if access == "memory":
        return np.fromfile(path, dtype, shape[0] * shape[1], offset=start).reshape(shape)
    return np.memmap(path, dtype, "r", start, shape)
