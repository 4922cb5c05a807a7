"""All rows of a store on disk: a log of segments, of which the last record of a row is the one that counts.

1. Rows that leave the cache are appended. A record's place, its segment and its number in there, is all that has to be
   known to read it again.
2. Finished segments never change, so that a checkpoint holds them by hard links.
3. A segment of which most records have been written again elsewhere is emptied: what still counts is appended anew.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.embeddings.store.block_reader import BlockReader, ShortReadError, aligned_bytes, open_direct
from recmill.embeddings.store.layout import Arena, RecordLayout, empty_arena, find_damaged, unpack_records
from recmill.embeddings.store.segment import SegmentFile, SegmentWriter, name_of, number_of, read_footer
from recmill.errors import FailureError, RunError

PLACE_SHIFT = 28  # bits of a place that number the record within its segment
_MOST_SEGMENTS = 256  # of full size: their descriptors stay open
_LEAST_SEGMENT_BYTES = 4 << 20
_MOST_SEGMENT_BYTES = 1 << 30
_MOST_DEAD = 0.5  # records that do not count any more, as a share of those that do, before segments are emptied
_FETCHED_BLOCKS = 1024  # that are read at a time
_READ_BLOCKS = 256  # of a segment that is being emptied

RowsAndPlaces = tuple[Path, NDArray[np.int64], NDArray[np.int64]]


@dataclass
class Traffic:
    """What has been read and written so far."""

    blocks_read: int = 0
    records_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_moved: int = 0  # from segments that were emptied


@dataclass(frozen=True)
class Records:
    """Rows in memory: which, since which step, and their numbers."""

    rows: NDArray[np.int64]
    steps: NDArray[np.int64]
    arena: Arena

    @property
    def slots(self) -> NDArray[np.int64]:
        """Where in those arrays they are: from the first on."""
        return np.arange(len(self.rows))


@dataclass
class _Emptying:
    """How far a segment has been emptied."""

    number: int
    rows: NDArray[np.int64]
    steps: NDArray[np.int64]
    next_record: int = 0


def no_wait() -> None:
    """What there is to wait for if nothing is under way."""


class SegmentLog:
    """The segments of one store in this process."""

    place_shift = PLACE_SHIFT

    def __init__(self, layout: RecordLayout, *, num_rows: int, store_key: int) -> None:
        self.layout = layout
        self.store_key = store_key
        wanted = min(
            max(num_rows * layout.record_bytes // (_MOST_SEGMENTS // 2), _LEAST_SEGMENT_BYTES), _MOST_SEGMENT_BYTES
        )
        self.segment_records = min(1 << PLACE_SHIFT, layout.per_block * -(-wanted // layout.block_bytes))
        self.traffic = Traffic()
        self.live = np.zeros(64, np.int64)  # by segment: records that count
        self._dir: Path | None = None
        self._open: SegmentWriter | None = None
        self._files: dict[int, SegmentFile] = {}
        self._descriptors: dict[int, int] = {}
        self._next_number = 0
        self._emptying: _Emptying | None = None
        self._reader = BlockReader(layout.block_bytes)
        self._thread = ThreadPoolExecutor(1, "recmill-store")

    def close(self) -> None:
        """Let go of all files, and remove those that are this process's alone."""
        self._thread.shutdown(wait=True)
        self.forget()
        self._reader.close()
        if self._dir is not None:
            with suppress(OSError):  # what others have put there stays
                self._dir.rmdir()

    def forget(self) -> None:
        """Be empty, as a new one; segments in the directory that is written to are gone."""
        if self._open:
            os.close(self._open.descriptor)
            self._open.path.unlink(missing_ok=True)
            self._open = None
        for number in list(self._files):
            self._drop(number)
        self.live[:] = 0
        self._emptying = None

    def write_into(self, directory: Path) -> None:
        """From now on rows may be appended, in this directory; what it holds of an earlier process is removed."""
        directory.mkdir(parents=True, exist_ok=True)
        own = {file.path for file in self._files.values()}
        for path in directory.glob(f"{name_of(0)[:8]}*"):
            if path not in own:
                path.unlink()
        self._dir = directory
        for number, file in list(self._files.items()):
            self._files[number] = replace(file, path=self._linked(file.path, directory / name_of(number)))

    @staticmethod
    def _linked(path: Path, target: Path) -> Path:
        if path != target:
            link_or_copy(path, target)
        return target

    @property
    def directory(self) -> Path | None:
        """Where rows are appended, if they may be."""
        return self._dir

    @property
    def can_write(self) -> bool:
        """Whether rows may be appended."""
        return self._dir is not None

    @property
    def num_records(self) -> int:
        """On disk or on their way there, whether they count or not."""
        return sum(file.num_records for file in self._files.values()) + (self._open.num_records if self._open else 0)

    @property
    def num_bytes(self) -> int:
        """Of all files, as large as they would be if the open one were finished."""
        block_bytes, open_records = self.layout.block_bytes, self._open.num_records if self._open else 0
        return sum(file.num_bytes for file in self._files.values()) + self.layout.num_blocks(open_records) * block_bytes

    def take_in(self, paths: Sequence[Path], digests: Mapping[str, str]) -> Iterator[RowsAndPlaces]:
        """Open finished segments where they lie: the rows of their records and their places, oldest first."""
        for path in sorted(paths, key=lambda path: number_of(path.name)):
            footer, number = read_footer(path, self.layout, self.store_key), number_of(path.name)
            digest = digests.get(path.name, "")
            self._files[number] = SegmentFile(path, number, len(footer.rows), path.stat().st_size, digest)
            self._descriptors[number] = open_direct(path, os.O_RDONLY)
            self._next_number = max(self._next_number, number + 1)
            self._grow_live()
            yield path, footer.rows, (number << PLACE_SHIFT) + np.arange(len(footer.rows))

    def note_living(self, places: NDArray[np.int64]) -> None:
        """Which records count, after segments were taken in."""
        numbers, counts = np.unique(places >> PLACE_SHIFT, return_counts=True)
        self.live[numbers] += counts

    def append(
        self,
        rows: NDArray[np.int64],
        steps: NDArray[np.int64],
        arena: Arena,
        slots: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Take rows that lie in these slots; their places."""
        places, done = np.empty(len(rows), np.int64), 0
        while done < len(rows):
            writer = self._writer()
            part = slice(done, done + min(writer.room, len(rows) - done))
            count, first = part.stop - part.start, writer.num_records
            with self._told(writer.path):
                writer.append(rows[part], steps[part], arena, slots[part])
            places[part] = (writer.number << PLACE_SHIFT) + np.arange(first, first + count)
            self.live[writer.number] += count
            self.traffic.bytes_written += count * self.layout.record_bytes
            done = part.stop
            if not writer.room:
                self._finish_open()
        return places

    def _writer(self) -> SegmentWriter:
        if self._open is None:
            assert self._dir is not None, "the log is not written to"
            with self._told(self._dir):
                self._open = SegmentWriter(
                    self._dir, self._next_number, self.layout, self.store_key, self.segment_records
                )
            self._next_number += 1
            self._grow_live()
        return self._open

    @contextmanager
    def _told(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FailureError(
                f"{path}: rows of embedding tables could not be written: {error.strerror or error}; make room, or give "
                "another store.dir, and go on with --resume"
            ) from None

    def _grow_live(self) -> None:
        while len(self.live) <= self._next_number:
            self.live = np.concatenate([self.live, np.zeros_like(self.live)])

    def _finish_open(self) -> None:
        if self._open is None:
            return
        writer, self._open = self._open, None
        with self._told(writer.path):
            self._files[writer.number] = writer.finish()
        self._descriptors[writer.number] = writer.descriptor

    def finished_files(self) -> list[SegmentFile]:
        """All segments, finished and on the disk: what a checkpoint is made of."""
        self._finish_open()
        return self.files

    def start_fetch(
        self,
        places: NDArray[np.int64],
        arena: Arena,
        slots: NDArray[np.int64],
    ) -> Callable[[], None]:
        """Have records copied into these slots; what is returned waits until they are there."""
        if self._open is not None:
            first = (self._open.number << PLACE_SHIFT) + self._open.num_written
            is_here = places >= first
            if is_here.any():
                self._unpack(self._open.chunk, places[is_here] - first, arena, slots[is_here])
                places, slots = places[~is_here], slots[~is_here]
        if not len(places):
            return no_wait
        order = np.argsort(places)
        places, slots = places[order], slots[order]
        numbers, records = places >> PLACE_SHIFT, places & ((1 << PLACE_SHIFT) - 1)
        blocks = records // self.layout.per_block
        is_first = np.concatenate([[True], (np.diff(numbers) != 0) | (np.diff(blocks) != 0)])
        wanted = _Blocks(numbers[is_first], blocks[is_first])
        block_of, record_of = np.cumsum(is_first) - 1, records % self.layout.per_block
        files = self._files_of(wanted.numbers)
        self.traffic.blocks_read += len(files)
        self.traffic.records_read += len(places)
        self.traffic.bytes_read += len(files) * self.layout.block_bytes

        def fetch() -> None:
            for first in range(0, len(files), _FETCHED_BLOCKS):
                part = slice(first, first + _FETCHED_BLOCKS)
                found = self._read(_Blocks(wanted.numbers[part], wanted.blocks[part]), files[part]).view(np.float32)
                start, end = np.searchsorted(block_of, (first, first + _FETCHED_BLOCKS))
                unpack_records(found, block_of[start:end] - first, record_of[start:end], arena, slots[start:end])

        under_way: Future[None] = self._thread.submit(fetch)
        return under_way.result

    def _files_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        distinct, inverse = np.unique(numbers, return_inverse=True)
        known = [
            self._open.descriptor if self._open and number == self._open.number else self._descriptors[number]
            for number in distinct.tolist()
        ]
        return np.array(known, np.int64)[inverse]

    def _read(self, wanted: "_Blocks", files: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Blocks as their checksums say."""
        try:
            found = self._reader.read(files, wanted.blocks * self.layout.block_bytes)
        except ShortReadError as error:
            raise self._damaged(wanted, error.request, str(error.strerror)) from None
        bad = find_damaged(found.view(np.uint64), np.uint64(self.store_key), wanted.numbers, wanted.blocks)
        if bad >= 0:
            raise self._damaged(wanted, bad, "its checksum differs")
        return found

    def _damaged(self, wanted: "_Blocks", which: int, why: str) -> RunError:
        number, offset = int(wanted.numbers[which]), int(wanted.blocks[which]) * self.layout.block_bytes
        path = self._files[number].path if number in self._files else name_of(number)
        return RunError(
            f"{path} is damaged: {why} for the block at byte {offset:,}; go on from an intact checkpoint with --resume "
            "(`recmill checkpoint verify RUN` tells which ones are), or start anew"
        )

    def _unpack(
        self,
        chunk: NDArray[np.float32],
        records: NDArray[np.int64],
        arena: Arena,
        slots: NDArray[np.int64],
    ) -> None:
        blocks, in_block = np.divmod(records, self.layout.per_block)
        unpack_records(chunk, blocks, in_block, arena, slots)

    @property
    def files(self) -> list[SegmentFile]:
        """The finished segments, oldest first."""
        return [self._files[number] for number in sorted(self._files)]

    def records_of(self, number: int) -> Iterator[tuple[Records, NDArray[np.int64]]]:
        """A finished segment and its places, a portion at a time; every block as its checksum says."""
        file = self._files[number]
        footer = read_footer(file.path, self.layout, self.store_key)
        for first in range(0, file.num_records, _READ_BLOCKS * self.layout.per_block):
            records = self._portion(number, footer.rows, footer.steps, first)
            yield records, (number << PLACE_SHIFT) + first + records.slots

    def _portion(self, number: int, rows: NDArray[np.int64], steps: NDArray[np.int64], first: int) -> Records:
        """Records of a finished segment from the first of a block on."""
        layout = self.layout
        count = min(_READ_BLOCKS * layout.per_block, len(rows) - first)
        blocks = first // layout.per_block + np.arange(layout.num_blocks(count))
        content = aligned_bytes(len(blocks) * layout.block_bytes)
        wanted = _Blocks(np.full(len(blocks), number), blocks)
        found = os.preadv(self._descriptors[number], [content.data], int(blocks[0]) * layout.block_bytes)
        if found != len(content):
            raise self._damaged(wanted, found // layout.block_bytes, f"{found} of {len(content)} bytes could be read")
        words = content.view(np.uint64).reshape(len(blocks), -1)
        bad = find_damaged(words, np.uint64(self.store_key), wanted.numbers, wanted.blocks)
        if bad >= 0:
            raise self._damaged(wanted, bad, "its checksum differs")
        records = np.arange(count)
        arena = empty_arena(count, layout)
        self._unpack(content.view(np.float32).reshape(len(blocks), -1), records, arena, records)
        return Records(rows[first : first + count], steps[first : first + count], arena)

    def next_to_move(self, *, all_of_them: bool = False) -> tuple[Records, NDArray[np.int64]] | None:
        """Records of the segment that is being emptied, and their places; None if none has to be.

        Whoever asks appends those that still count, and asks again.
        """
        if self._emptying is None and (number := self._choose_emptied(all_of_them)) is not None:
            footer = read_footer(self._files[number].path, self.layout, self.store_key)
            self._emptying = _Emptying(number, footer.rows, footer.steps)
        if (current := self._emptying) is None:
            return None
        if current.next_record >= len(current.rows) or not self.live[current.number]:
            self._drop(current.number)
            self._emptying = None
            return self.next_to_move(all_of_them=all_of_them)
        records = self._portion(current.number, current.rows, current.steps, current.next_record)
        places = (current.number << PLACE_SHIFT) + current.next_record + np.arange(len(records.rows))
        current.next_record += len(records.rows)
        return records, places

    def _choose_emptied(self, all_of_them: bool) -> int | None:
        """The finished segment with the fewest records that count, if too many on the disk do not."""
        if not self._files:
            return None
        number = min(self._files, key=lambda number: (self.live[number], number))
        num_living, num_dead = int(self.live.sum()), self.num_records - int(self.live.sum())
        if all_of_them:
            sparse = [n for n, file in self._files.items() if self.live[n] < file.num_records]
            return min(sparse, default=None)
        is_sparse = num_dead > _MOST_DEAD * num_living + 2 * self.segment_records
        are_many = len(self._files) > _MOST_SEGMENTS + 2 * num_living // self.segment_records
        return number if is_sparse or are_many else None

    def _drop(self, number: int) -> None:
        """A segment that nothing is read from any more, unless a reading is under way."""
        file, descriptor = self._files.pop(number), self._descriptors.pop(number)
        self.live[number] = 0
        if self._dir is not None and file.path.parent == self._dir:
            file.path.unlink(missing_ok=True)
        try:
            self._thread.submit(os.close, descriptor)
        except RuntimeError:  # the thread has ended: nothing is under way
            os.close(descriptor)


@dataclass(frozen=True)
class _Blocks:
    """Blocks by their segments and their numbers in there."""

    numbers: NDArray[np.int64]
    blocks: NDArray[np.int64]


def link_or_copy(source: Path, target: Path) -> None:
    """The same file under another name or, on another file system, a copy on the disk."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())
