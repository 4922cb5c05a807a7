"""MLPerf's multi-hot days: NAME_dense.npy and NAME_labels.npy, and NAME_sparse_multi_hot.npz with an array per column.

The archive is not compressed, so that its arrays can be mapped. All sizes are known beforehand: rows are written to
their places in any order, and the headers, which hold checksums of the contents, last. Every member has the header that
`numpy.savez` writes, because TorchRec's loader counts on its length.
"""

import os
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.data.prepared.npy import (
    FileRows,
    NpyFile,
    NpyLayout,
    fetch_rows,
    npy_header,
    open_array,
    open_rows,
    read_header,
)
from recmill.data.prepared.stages import Record
from recmill.data.stream.multi_hot import MultiHotTables
from recmill.errors import DataError
from recmill.files import write_at
from recmill.regular import require_regular
from recmill.settings.data import Access
from recmill.verified import PREPARE_ANEW

_IDS = np.dtype("<i4")
_STEP_ROWS = 1 << 14  # widened at once: MLPerf's take 28 MB
_STEP_BYTES = 4 << 20
_ENCRYPTED = 1  # a flag of a zip member
_ARCHIVE_ERRORS = (zipfile.BadZipFile, struct.error, ValueError, EOFError, OSError, NotImplementedError, OverflowError)
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip member: the lengths of its name and of what stands behind it


def _archive_path(directory: Path, name: str) -> Path:
    return directory / f"{name}_sparse_multi_hot.npz"


class MultiHotFile:
    """The three files of one name, of a known length, written in any order by any thread; `finish` comes last."""

    def __init__(self, directory: Path, name: str, num_rows: int, layout: NpyLayout, tables: MultiHotTables) -> None:
        self._plain = NpyFile(directory, name, num_rows, layout, ("dense", "labels"))
        self._tables, self._path = tables, _archive_path(directory, name)
        self._members, self._starts, end = list[zipfile.ZipInfo](), list[int](), 0
        self._headers = [npy_header(_IDS, (num_rows, size)) for size in tables.rule.sizes]
        for i, (size, header) in enumerate(zip(tables.rule.sizes, self._headers, strict=True)):
            member = zipfile.ZipInfo(f"{i}.npy")
            member.header_offset, member.CRC = end, 0
            member.file_size = member.compress_size = len(header) + num_rows * size * _IDS.itemsize
            self._starts.append(end + len(member.FileHeader(zip64=True)) + len(header))
            end = self._starts[-1] + num_rows * size * _IDS.itemsize
            self._members.append(member)
        self._end = end
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        if os.fstat(self._file).st_size < end:
            os.ftruncate(self._file, end)

    def write(self, first_row: int, columns: Columns) -> None:
        """Put rows, which have one id for every column, where they belong."""
        self._plain.write(first_row, columns)
        for start in range(0, columns.num_rows, _STEP_ROWS):
            wide = self._tables.widen(columns.ids[start : start + _STEP_ROWS]).astype(_IDS)
            slot = 0
            for size, place in zip(self._tables.rule.sizes, self._starts, strict=True):
                content = wide[:, slot : slot + size].tobytes()
                write_at(self._file, content, place + (first_row + start) * size * _IDS.itemsize)
                slot += size

    def finish(self) -> Record:
        """Make an archive of what was written: reads all of it once."""
        for member, header, start in zip(self._members, self._headers, self._starts, strict=True):
            write_at(self._file, header, start - len(header))
            member.CRC = self._checksum(start - len(header), member.file_size)
            write_at(self._file, member.FileHeader(zip64=True), member.header_offset)
        with self._path.open("r+b") as file, zipfile.ZipFile(file, "w") as archive:
            # all members are in place; closing it writes the directory of the archive behind them
            archive.filelist[:], archive.start_dir = self._members, self._end
        return {}

    def _checksum(self, start: int, num_bytes: int) -> int:
        checksum = 0
        for at in range(start, start + num_bytes, _STEP_BYTES):
            checksum = zlib.crc32(os.pread(self._file, min(_STEP_BYTES, start + num_bytes - at), at), checksum)
        return checksum

    def close(self) -> None:
        """Let go of the files; whoever seals the directory sees to it that they are on the disk."""
        self._plain.close()
        os.close(self._file)


class MultiHotTable:
    """The rows of one name, read back: mapped, held in memory, or read from the files each time."""

    def __init__(
        self, directory: Path, name: str, sizes: Sequence[int], layout: NpyLayout, access: Access = "mapped"
    ) -> None:
        self.path = self.ids_path = _archive_path(directory, name)
        self._dense, self._labels = (open_rows(directory, name, kind, layout, access) for kind in ("dense", "labels"))
        self._ids = _open_members(self.path, sizes, access)
        self.num_rows = len(self._labels)
        self._num_slots = sum(sizes)
        expected = [(self.num_rows, size) for size in sizes]
        if [array.shape for array in self._ids] != expected:
            found = ", ".join(str(array.shape) for array in self._ids[:3])
            raise DataError(
                f"{self.path} holds arrays {found}, …; {self.num_rows} rows of "
                f"{','.join(map(str, sizes))} ids were announced; prepare them anew"
            )
        if len(self._dense) != self.num_rows:
            raise DataError(
                f"{directory / name}_dense.npy has {len(self._dense)} rows and the labels {self.num_rows}; "
                f"{PREPARE_ANEW}"
            )

    @staticmethod
    def files_of(name: str) -> list[str]:
        """The files in which the rows of a name are."""
        return [f"{name}_dense.npy", f"{name}_labels.npy", f"{name}_sparse_multi_hot.npz"]

    def read(self, start: int, stop: int) -> Columns:
        """Some rows, as they were encoded."""
        labels = np.ascontiguousarray(self._labels[start:stop][:, 0], np.float32)
        ids = np.empty((len(labels), self._num_slots), np.int64)
        np.concatenate([array[start:stop] for array in self._ids], axis=1, out=ids)
        return Columns(np.ascontiguousarray(self._dense[start:stop], np.float32), ids, labels)

    def fetch(self, start: int, stop: int) -> None:
        """Ask the system to read some rows from the disk, without waiting for them."""
        for array in (self._dense, self._labels, *self._ids):
            fetch_rows(array, start, stop)

    def close(self) -> None:
        """Let go of the memory; it is unmapped with the last array that looks into it."""
        self._dense = self._labels = np.empty((0, 0))
        self._ids = []


def _open_members(path: Path, sizes: Sequence[int], access: Access) -> list[NDArray[Any] | FileRows]:
    """The arrays of an archive, 0.npy, 1.npy, …"""
    require_regular(path, PREPARE_ANEW)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        if [member.filename for member in members] != [f"{i}.npy" for i in range(len(sizes))]:
            raise ValueError(f"its members are {', '.join(member.filename for member in members[:3])}, …")
        return [_open_member(path, *pair, access) for pair in zip(members, sizes, strict=True)]
    except _ARCHIVE_ERRORS as error:
        raise DataError(f"{path} is not a complete archive of arrays: {error}; {PREPARE_ANEW}") from None


def _open_member(path: Path, member: zipfile.ZipInfo, size: int, access: Access) -> NDArray[Any] | FileRows:
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & _ENCRYPTED:
        raise ValueError(f"{member.filename} is compressed, and cannot be mapped")
    with path.open("rb") as file:
        file.seek(member.header_offset)
        name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        begin = file.seek(name_length + extra_length, os.SEEK_CUR)
        end = begin + member.file_size
        if member.compress_size != member.file_size or end > os.fstat(file.fileno()).st_size:
            raise ValueError(f"{member.filename} is longer than the archive")
        return open_array(path, *read_header(path, file, end, _IDS, size), access)
