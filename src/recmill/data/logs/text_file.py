"""A text file as bytes in memory, whatever it is packed in, and ranges of it that begin and end at line borders."""

import bz2
import gzip
import mmap
import os
import shutil
import sys
import tempfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from recmill.data.logs.quote_index import QuoteIndex, index_quotes
from recmill.data.text.kernel import count_lines
from recmill.data.text.quotes import NEWLINE, pass_rows
from recmill.errors import DataError
from recmill.files import require_free_space

COMPRESSED = (".gz", ".zst", ".bz2")
_COPY_BYTES = 1 << 20
_ZSTD_BYTES = 4 << 10  # four bytes may become 128 KiB, and all of a piece is in memory
_FAR_BYTES = 64 << 20
_MADV_POPULATE_READ = 22  # which Python's mmap does not name
_SAMPLE_BYTES = 1 << 20
_STEP_BYTES = 1 << 20
# AskedColumns for a byte of a file it has in memory, the system maps up to so much around it at once.
_MAPPED_AROUND_BYTES = 2 << 20


class Source:
    """The bytes of one file, mapped into memory; `.gz`, `.zst` and `.bz2` are unpacked once into a scratch file.

    The scratch file has no name from the moment it is open, so that nothing stays behind, however the process ends.
    It lies in the directory for temporary files (TMPDIR) and is as large as the unpacked text, which may have at most
    `max_unpacked_bytes`.
    """

    def __init__(self, path: Path, max_unpacked_bytes: int | None = None) -> None:
        self.path = path
        self.rows_start = 0  # whoever finds a header moves it
        self._breaks: QuoteIndex | None = None
        try:
            with open_plain(path, max_unpacked_bytes) as file:
                self.num_bytes = os.fstat(file.fileno()).st_size
                # an empty file cannot be mapped
                self._map = mmap.mmap(file.fileno(), self.num_bytes, prot=mmap.PROT_READ) if self.num_bytes else None
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
        self.buffer: NDArray[np.uint8] = np.frombuffer(self._map or b"", np.uint8)
        self.rows_stop = self.num_bytes  # whoever finds blank lines behind the last row moves it

    def find_breaks(self, separator: str) -> None:
        """Read the file once to see whether newlines stand inside quotes: from then on they end no line."""
        index = partial(
            index_quotes, self.buffer, separator, self.path, origin=self.rows_start, use=self._map_or_forget
        )
        if self.path.suffix in COMPRESSED:
            self._breaks = index()
            return
        with self.path.open("rb") as file:
            self._breaks = index(descriptor=file.fileno())

    def _map_or_forget(self, start: int, stop: int, is_needed: bool) -> None:
        """Map a range at once, which costs half of what single pages cost; or let go of it."""
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        if not is_needed:
            self.forget(start, stop)
        elif self._map is not None and sys.platform == "linux":
            with suppress(OSError):  # systems before 5.14 do not know it
                self._map.madvise(_MADV_POPULATE_READ, first, stop - first)

    @property
    def has_breaks(self) -> bool:
        """Whether there are newlines inside quotes, which end no line."""
        return self._breaks is not None

    def whole(self) -> "Segment":
        """All rows of the file."""
        return Segment(self, self.rows_start, self.rows_stop)

    def line_start(self, at: int) -> int:
        """The first line border at or behind a byte: where a line begins, or the end of the file."""
        if at <= 0 or self._map is None:
            return 0
        at = min(at, self.num_bytes)
        if self._breaks is not None:
            return self.pass_lines(at - 1, self.num_bytes, 1, is_inside=self._breaks.is_inside(at - 1))[0]
        newline = self._map.find(b"\n", at - 1)
        return newline + 1 if newline >= 0 else self.num_bytes

    def line_end(self, at: int) -> int:
        """Where the line that begins here ends: its newline, or the end of the file."""
        if self._breaks is not None:
            behind, found, _ = self.pass_lines(at, self.num_bytes, 1)
            return behind - found
        newline = self._map.find(b"\n", at) if self._map else -1
        return newline if newline >= 0 else self.num_bytes

    def last_line_start(self, start: int, stop: int) -> int:
        """Behind the last newline of a segment: `stop` itself unless the segment ends in an unfinished line."""
        if self._breaks is not None and stop > start and self.buffer[stop - 1] != NEWLINE:
            return self.pass_lines(start, stop, self.count_newlines(start, stop)[0])[0]
        newline = self._map.rfind(b"\n", start, stop) if self._map else -1
        return newline + 1 if newline >= 0 else start

    def pass_lines(self, start: int, stop: int, wanted: int, *, is_inside: bool = False) -> tuple[int, int, bool]:
        """Behind so many newlines that end a line, or `stop`; how many they are; and whether a quote is open there."""
        if self._breaks is None:
            found = int(count_lines(self.buffer, start, stop))
            if found < wanted:
                return stop, found, False
            newlines = np.flatnonzero(self.buffer[start:stop] == NEWLINE)
            return start + int(newlines[wanted - 1]) + 1, wanted, False
        at, found, is_inside = pass_rows(self.buffer, start, stop, wanted, is_inside)
        return int(at), int(found), is_inside

    def count_newlines(self, start: int, stop: int, *, is_inside: bool = False) -> tuple[int, bool]:
        """How many newlines of a range end a line, and whether a quote is open at its end."""
        if self._breaks is None:
            return int(count_lines(self.buffer, start, stop)), False
        return self.pass_lines(start, stop, stop - start + 1, is_inside=is_inside)[1:]

    def line_number(self, at: int) -> int:
        """The number, from 1, of the line that begins at a byte. Reads all before it: for error messages."""
        return self.count_newlines(0, at)[0] + 1

    def place(self, line: int) -> str:
        """A line, for messages: by its number in an editor, to which newlines inside quotes count."""
        if self._breaks is not None and line > 1:
            line = int(count_lines(self.buffer, 0, self.pass_lines(0, self.num_bytes, line - 1)[0])) + 1
        return f"{self.path}:{line}"

    def forget(self, start: int, stop: int) -> None:
        """Let go of the memory behind a range that will not be read again soon; if it is, the disk is asked anew."""
        first = max(0, start - _MAPPED_AROUND_BYTES) // mmap.PAGESIZE * mmap.PAGESIZE
        last = stop // mmap.PAGESIZE * mmap.PAGESIZE
        if self._map is not None and first < last:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def fetch(self, start: int, stop: int) -> None:
        """Ask the system to read a range from the disk, without waiting for it."""
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        if self._map is not None and first < stop:
            self._map.madvise(mmap.MADV_WILLNEED, first, stop - first)

    def close(self) -> None:
        """Let go of the memory; it is unmapped with the last array that looks into it."""
        self.buffer = np.empty(0, np.uint8)
        self._map = None


@dataclass(frozen=True)
class Segment:
    """The lines of a source that begin in a range of bytes; both ends are line borders."""

    source: Source
    start: int
    stop: int

    @property
    def num_bytes(self) -> int:
        """The length of the range."""
        return self.stop - self.start

    @property
    def extent(self) -> int:
        """What a stream cuts into blocks: bytes, here."""
        return self.num_bytes

    def fetch(self) -> None:
        """Ask the system to read it from the disk, without waiting for it."""
        self.source.fetch(self.start, self.stop)

    def part(self, start: int, stop: int) -> "Segment":
        """The lines that begin in a part of this segment, given in bytes from its start."""
        source = self.source
        first = source.line_start(self.start + start) if start > 0 else self.start
        last = source.line_start(self.start + stop) if stop < self.num_bytes else self.stop
        return Segment(source, min(first, self.stop), min(last, self.stop))

    def cut(self, num_bytes: int) -> list["Segment"]:
        """All of it, in parts of so many bytes."""
        parts = list[Segment]()
        for at in range(0, self.num_bytes, num_bytes):
            parts.append(self.part(at, at + num_bytes))
            # the search for a line border has mapped what lies around it
            self.source.forget(self.start, parts[-1].stop)
        return parts

    def cut_at(self, num_rows: int) -> tuple["Segment", "Segment"]:
        """The first so many lines, and the rest."""
        middle = self._line_start(num_rows)
        return Segment(self.source, self.start, middle), Segment(self.source, middle, self.stop)

    def _line_start(self, num_lines: int) -> int:
        """Where the segment goes on behind its first so many lines."""
        at, source, is_inside, seen = self.start, self.source, False, 0
        while at < self.stop and seen < num_lines:
            end = min(at + _STEP_BYTES, self.stop)
            reached, found, is_inside = source.pass_lines(at, end, num_lines - seen, is_inside=is_inside)
            source.forget(at, end)
            at, seen = reached, seen + found
        return at  # an unfinished line is the last of them

    def count_rows(self) -> int:
        """How many lines it has, an unfinished last one included."""
        if self.num_bytes == 0:
            return 0
        source, lines, is_inside = self.source, 0, False
        for at in range(self.start, self.stop, _FAR_BYTES):
            end = min(at + _FAR_BYTES, self.stop)
            found, is_inside = source.count_newlines(at, end, is_inside=is_inside)
            lines += found
            if self.num_bytes > _FAR_BYTES:
                source.forget(at, end)  # a long file does not stay in memory for having been counted
        return lines + int(source.buffer[self.stop - 1] != NEWLINE)

    def estimate_rows(self) -> int:
        """About how many lines it has, from those in its first MiB."""
        sample_stop = min(self.start + _SAMPLE_BYTES, self.stop)
        if sample_stop == self.start:
            return 0
        lines, _ = self.source.count_newlines(self.start, sample_stop)
        return max(1, round(lines * self.num_bytes / (sample_stop - self.start)))


def read_head(path: Path, num_bytes: int) -> bytes:
    """The whole lines among the first bytes of a file, unpacked no further than that."""
    try:
        with path.open("rb") as packed:
            file: Any = packed
            if path.suffix == ".gz":
                file = gzip.GzipFile(fileobj=packed)
            elif path.suffix == ".bz2":
                file = bz2.BZ2File(packed)
            elif path.suffix == ".zst":
                file = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
            head: bytes = file.read(num_bytes)
            is_cut = len(head) == num_bytes and file.read(1) != b""
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise DataError(f"{path} is damaged or cut short: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    if is_cut and b"\n" not in head:
        raise DataError(f"{path} has no newline in its first {num_bytes:,} bytes; is it a text file?")
    return head[: head.rfind(b"\n") + 1] if is_cut else head


def open_plain(path: Path, max_unpacked_bytes: int | None = None) -> IO[bytes]:
    """The file itself, or a nameless scratch copy of what it unpacks to: so many bytes, or what there is room for."""
    if path.suffix not in COMPRESSED:
        return path.open("rb")
    scratch_dir = Path(tempfile.gettempdir())
    require_free_space(scratch_dir, 3 * path.stat().st_size, f"unpacking {path}")
    room = unpacking_room(scratch_dir)
    limit = room if max_unpacked_bytes is None else min(room, max_unpacked_bytes)
    scratch = tempfile.TemporaryFile(dir=scratch_dir)  # noqa: SIM115 the caller closes it
    try:
        with path.open("rb") as packed:
            if path.stat().st_size == 0:
                raise EOFError("it has no bytes")
            _UNPACK[path.suffix](packed, _Limited(scratch, limit))  # type: ignore[arg-type]
        scratch.flush()
    except _TooLarge:
        scratch.close()
        if limit == max_unpacked_bytes:
            raise too_large(path, limit) from None
        raise DataError(
            f"{path} unpacks to more than {limit:,} bytes, all that {scratch_dir} has room for; unpack it where there "
            "is more, or let the variable TMPDIR name such a place"
        ) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        scratch.close()
        raise DataError(f"{path} is damaged or cut short: {error}") from None
    except BaseException:
        scratch.close()
        raise
    return scratch


def too_large(path: Path, max_unpacked_bytes: int) -> DataError:
    """The complaint about a file that unpacks to more than the settings allow."""
    return DataError(
        f"{path} unpacks to more than data.max_unpacked_bytes = {max_unpacked_bytes:,}; if the file is what it should "
        "be, allow more with --set data.max_unpacked_bytes=N (--max-unpacked-bytes N of verbs without --set)"
    )


def unpacking_room(scratch_dir: Path) -> int:
    """What any packed file may become: a few bytes can stand for a disk full of them, which others need too."""
    return shutil.disk_usage(scratch_dir).free * 9 // 10


class _TooLarge(Exception):
    """More was unpacked than is allowed."""


class _Limited:
    """A file that takes so many bytes and no more."""

    def __init__(self, file: IO[bytes], max_bytes: int) -> None:
        self._file, self._left = file, max_bytes

    def write(self, content: bytes) -> int:
        """Take some."""
        self._left -= len(content)
        if self._left < 0:
            raise _TooLarge
        return self._file.write(content)


def _unpack_gzip(packed: IO[bytes], out: IO[bytes]) -> None:
    with gzip.open(packed) as unpacked:
        shutil.copyfileobj(unpacked, out, _COPY_BYTES)


def _unpack_bzip2(packed: IO[bytes], out: IO[bytes]) -> None:
    try:
        with bz2.open(packed) as unpacked:
            shutil.copyfileobj(unpacked, out, _COPY_BYTES)
    except OSError as error:
        if error.errno is not None:  # the disk, and not the data
            raise
        raise EOFError(str(error)) from None


def _unpack_zstd(packed: IO[bytes], out: IO[bytes]) -> None:
    """Frame after frame by hand: the library's reader takes a file that was cut short for a complete one."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    is_open = False
    while data := packed.read(_ZSTD_BYTES):
        while data:
            out.write(frame.decompress(data))
            is_open, data = not frame.eof, frame.unused_data
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
    if is_open:
        raise EOFError("the last frame does not end")


_UNPACK = {".gz": _unpack_gzip, ".zst": _unpack_zstd, ".bz2": _unpack_bzip2}
