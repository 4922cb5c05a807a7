"""A segment: a file of blocks of records that is only appended to, and at its end says which rows they are of.

The footer holds the row and the step of every record; the tail behind it the sizes and the footer's checksum. A file
without a valid tail was not finished, and nobody but the process that writes it reads it.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from recmill.embeddings.store.block_reader import aligned_bytes, open_direct
from recmill.embeddings.store.layout import Arena, RecordLayout, pack_records, seal_blocks
from recmill.errors import RunError
from recmill.files import write_at
from recmill.regular import other_kind

SUFFIX = ".rows"
_MAGIC = b"recmillR"
_VERSION = 1
_TAIL = struct.Struct("<8sIIIIQQQQ")  # magic, version, dim, state width, block bytes, records, number, key, checksum
_CHUNK_BLOCKS = 256
_WAY_OUT = "go on from an intact checkpoint, or start anew"


def name_of(number: int) -> str:
    """The file of a segment."""
    return f"segment-{number:010}{SUFFIX}"


def number_of(name: str) -> int:
    """The segment of a file."""
    return int(name.removeprefix("segment-").removesuffix(SUFFIX))


@dataclass(frozen=True)
class SegmentFile:
    """A finished segment, as a checkpoint lists it."""

    path: Path
    number: int
    num_records: int
    num_bytes: int
    digest: str  # of the whole file, as manifests have it; empty if nobody has taken it


@dataclass(frozen=True)
class Footer:
    """Which rows the records of a segment are of, and at which step each was written."""

    rows: NDArray[np.int64]
    steps: NDArray[np.int64]


class SegmentWriter:
    """Appends records; what does not fill a chunk stays in memory until the segment is finished."""

    def __init__(self, directory: Path, number: int, layout: RecordLayout, store_key: int, most_records: int) -> None:
        self.path = directory / name_of(number)
        self.number = number
        self._layout = layout
        self._store_key = store_key
        self._rows = np.empty(most_records, np.int64)
        self._steps = np.empty(most_records, np.int64)
        self.num_records = 0
        self.num_written = 0  # of these, how many can be read from the file
        self._bytes = aligned_bytes(_CHUNK_BLOCKS * layout.block_bytes)
        shape = (_CHUNK_BLOCKS, layout.block_bytes // 4)
        self.chunk: NDArray[np.float32] = self._bytes.view(np.float32).reshape(shape)  # records from num_written on
        self._digest = xxhash.xxh3_128()
        self.descriptor = open_direct(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._num_bytes = 0

    @property
    def room(self) -> int:
        """How many more records it takes."""
        return len(self._rows) - self.num_records

    def append(
        self,
        rows: NDArray[np.int64],
        steps: NDArray[np.int64],
        arena: Arena,
        slots: NDArray[np.int64],
    ) -> None:
        """Take the rows that lie in these slots."""
        self._rows[self.num_records : self.num_records + len(rows)] = rows
        self._steps[self.num_records : self.num_records + len(rows)] = steps
        per_chunk, done = _CHUNK_BLOCKS * self._layout.per_block, 0
        while done < len(rows):
            at = self.num_records - self.num_written
            count = min(len(rows) - done, per_chunk - at)
            pack_records(arena, slots[done : done + count], self.chunk, self._layout.per_block, at)
            self.num_records += count
            done += count
            if at + count == per_chunk:
                self._write_chunk()

    def _write_chunk(self) -> None:
        """Have the records in memory in the file, with their checksums."""
        num_blocks = self._layout.num_blocks(self.num_records - self.num_written)
        content = self._bytes[: num_blocks * self._layout.block_bytes]
        first_block = self.num_written // self._layout.per_block
        words = content.view(np.uint64).reshape(num_blocks, -1)
        seal_blocks(words, np.uint64(self._store_key), self.number, first_block)
        write_at(self.descriptor, content.data, self._num_bytes)
        self._digest.update(content.data)
        self._num_bytes += len(content)
        self.num_written = self.num_records
        self._bytes[:] = 0

    def finish(self) -> SegmentFile:
        """Write the rest and what says which rows these are, and have it all on the disk."""
        if self.num_records > self.num_written:
            self._write_chunk()
        end = _end_of_file(self._rows[: self.num_records], self._steps[: self.num_records], self)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)  # the end need not fill a page
        try:
            write_at(descriptor, end, self._num_bytes)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._digest.update(end)
        num_bytes = self._num_bytes + len(end)
        return SegmentFile(self.path, self.number, self.num_records, num_bytes, self._digest.hexdigest())

    def tail_numbers(self) -> tuple[int, int, int, int, int, int]:
        """What the tail says beside the checksum."""
        layout = self._layout
        sizes = (layout.dim, layout.state_width, layout.block_bytes)
        return (*sizes, self.num_records, self.number, self._store_key)


def _end_of_file(rows: NDArray[np.int64], steps: NDArray[np.int64], segment: SegmentWriter) -> bytes:
    footer = rows.tobytes() + steps.tobytes()
    numbers = segment.tail_numbers()
    head = _TAIL.pack(_MAGIC, _VERSION, *numbers, 0)
    checksum = xxhash.xxh3_64(footer + head).intdigest()
    return footer + _TAIL.pack(_MAGIC, _VERSION, *numbers, checksum)


def read_footer(path: Path, layout: RecordLayout, store_key: int | None) -> Footer:
    """Which rows a finished segment holds; one of another layout or store, or a damaged one, is rejected by name."""
    number, size = _number_in(path), _size_of(path)
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL.size))
        tail = file.read()
        if len(tail) != _TAIL.size or tail[: len(_MAGIC)] != _MAGIC:
            raise RunError(f"{path} is damaged: it was not finished, or is no file of rows; {_WAY_OUT}")
        _, version, dim, state_width, block_bytes, count, stated, key, checksum = _TAIL.unpack(tail)
        data_bytes = layout.num_blocks(count) * block_bytes
        expected = (_VERSION, layout.dim, layout.state_width, layout.block_bytes)
        if (version, dim, state_width, block_bytes) != expected:
            raise RunError(
                f"{path} holds rows of {dim} weights and {state_width} numbers of the optimizer, and this run has "
                f"{layout.dim} and {layout.state_width}; it is of another run"
            )
        if stated != number or size != data_bytes + 16 * count + _TAIL.size:
            raise RunError(f"{path} is damaged: its name or size is not what its last bytes say; {_WAY_OUT}")
        if store_key is not None and key != store_key:
            raise RunError(f"{path} belongs to another store than the other files beside it; {_WAY_OUT}")
        file.seek(data_bytes)
        footer = file.read(16 * count)
    head = tail[: -struct.calcsize("<Q")] + bytes(8)
    if xxhash.xxh3_64(footer + head).intdigest() != checksum:
        raise RunError(f"{path} is damaged at byte {data_bytes:,} or behind: the list of its rows; {_WAY_OUT}")
    numbers = np.frombuffer(footer, np.int64)
    return Footer(numbers[:count], numbers[count:])


def _size_of(path: Path) -> int:
    """Of a regular file; a pipe would be waited for."""
    try:
        facts = path.stat()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}; {_WAY_OUT}") from None
    if (kind := other_kind(facts)) is not None:
        raise RunError(f"{path} is {kind}, and a file of rows is expected; {_WAY_OUT}")
    return facts.st_size


def _number_in(path: Path) -> int:
    try:
        return number_of(path.name)
    except ValueError:
        raise RunError(f"{path} is no file of rows: their names are as {name_of(0)}") from None
