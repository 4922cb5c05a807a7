"""Lines of text or JSON as blocks: read from sources with their keys, sorted, and written as they were."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.sorting.blocks import order_of
from recmill.data.logs.text_file import Segment, Source
from recmill.data.logs.time_order import KeyReader
from recmill.data.text.quotes import CARRIAGE_RETURN, NEWLINE, QUOTE
from recmill.jit import njit


@dataclass(frozen=True)
class LineBlock:
    """Whole lines, their ends included."""

    keys: NDArray[np.float64]
    sizes: NDArray[np.int64]  # bytes of each line
    text: NDArray[np.uint8]

    @property
    def num_bytes(self) -> int:
        """Of the text, and of what is kept of every line."""
        return len(self.text) + 48 * len(self.keys)

    def part(self, start: int, stop: int) -> Self:
        """Some of the lines."""
        first = int(self.sizes[:start].sum())
        sizes = self.sizes[start:stop]
        return type(self)(self.keys[start:stop], sizes, self.text[first : first + int(sizes.sum())])

    def cut(self, num_bytes: int) -> Iterator[Self]:
        """All lines, in blocks of about so many bytes."""
        ends = np.cumsum(self.sizes + 48)
        start = 0
        while start < len(ends):
            behind = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, behind + num_bytes)))
            yield self.part(start, stop)
            start = stop

    def pack(self) -> Sequence[Any]:
        """The number of lines need not be kept: there is a key for each."""
        return np.ascontiguousarray(self.sizes).data.cast("B"), self.text.data

    @classmethod
    def unpack(cls, keys: NDArray[np.float64], content: NDArray[np.uint8]) -> Self:
        """The block that was packed."""
        return cls(keys, content[: 8 * len(keys)].view(np.int64), content[8 * len(keys) :])

    @classmethod
    def join(cls, blocks: Sequence[Self]) -> Self:
        """The lines of all blocks in the order of their keys."""
        keys, sizes, text = (
            np.concatenate([getattr(block, name) for block in blocks]) if len(blocks) > 1 else getattr(blocks[0], name)
            for name in ("keys", "sizes", "text")
        )
        order = order_of(keys)
        if order is None:
            return cls(keys, sizes, text)
        arranged = np.empty(len(text), np.uint8)
        _arrange(text, np.cumsum(sizes) - sizes, sizes, order, arranged)
        return cls(keys[order], sizes[order], arranged)


@njit(nogil=True, cache=True)
def _arrange(
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    order: NDArray[np.intp],
    out: NDArray[np.uint8],
) -> None:
    """Copy lines one behind another, in an order."""
    to = 0
    for line in order:
        start, size = starts[line], sizes[line]
        for i in range(size):
            out[to + i] = text[start + i]
        to += size


@njit(nogil=True, cache=True)
def _line_sizes(text: NDArray[np.uint8], has_breaks: bool, sizes: NDArray[np.int64]) -> int:
    """Fill in how long each line is; how many there are. The last one has a newline, too."""
    start, num_lines, is_inside = 0, 0, False
    for at in range(len(text)):
        byte = text[at]
        if byte == QUOTE:
            is_inside = not is_inside
        elif byte == NEWLINE and not (has_breaks and is_inside):
            sizes[num_lines] = at + 1 - start
            start = at + 1
            num_lines += 1
    return num_lines


def read_blocks(paths: Iterable[Path], keys: KeyReader, num_bytes: int) -> Iterator[LineBlock]:
    """The lines of all files, in blocks of about so many bytes of text."""
    end = b"\n"
    for path in paths:
        with closing(keys.open(path)) as source:
            end = line_end_of(source, end)
            for segment in source.whole().cut(num_bytes):
                if segment.extent:
                    yield _block_of(segment, keys, end)
                    source.forget(segment.start, segment.stop)


def _block_of(segment: Segment, keys: KeyReader, end: bytes) -> LineBlock:
    source, found = segment.source, keys.read(segment)
    text = source.buffer[segment.start : segment.stop].copy()
    if text[-1] != NEWLINE:  # the last line of the file
        text = np.append(text, np.frombuffer(end, np.uint8))
    sizes = np.empty(len(found), np.int64)
    num_lines = int(_line_sizes(text, source.has_breaks, sizes))
    assert num_lines == len(found)
    return LineBlock(found, sizes, text)


def line_end_of(source: Source, otherwise: bytes = b"\n") -> bytes:
    """What ends the lines of a file, by its first one; a file may have a single line without an end."""
    end = source.line_end(0)
    if end >= source.num_bytes:
        return otherwise
    return b"\r\n" if end > 0 and source.buffer[end - 1] == CARRIAGE_RETURN else b"\n"


def header_of(paths: Iterable[Path], keys: KeyReader) -> bytes:
    """The first line of the first file that has one, without a byte order mark."""
    for path in paths:
        with closing(keys.open(path)) as source:
            if source.num_bytes:
                line: bytes = source.buffer[: source.rows_start].tobytes().removeprefix(b"\xef\xbb\xbf")
                return line if line.endswith(b"\n") else line + line_end_of(source)
    return b""


class LineFiles:
    """Files of whole lines: a new one when the present one is full."""

    def __init__(self, name_of: Callable[[int], Path], header: bytes, part_bytes: int) -> None:
        self.num_rows: list[int] = []  # of each file
        self._name_of, self._header, self._part_bytes = name_of, header, part_bytes
        self._file: IO[bytes] | None = None
        self._room = 0

    def write(self, block: LineBlock) -> None:
        """Add lines; a file has at most so many bytes, but for a single longer line."""
        at = 0
        while at < len(block.keys):
            fitting = int(np.searchsorted(np.cumsum(block.sizes[at:]), self._room, "right"))
            if fitting == 0:
                self._begin(int(block.sizes[at]))
                continue
            assert self._file is not None
            fitting_lines = block.part(at, at + fitting)
            self._file.write(fitting_lines.text.data)
            self._room -= len(fitting_lines.text)
            self.num_rows[-1] += fitting
            at += fitting

    def _begin(self, least_bytes: int) -> None:
        self.close()
        self._file = self._name_of(len(self.num_rows)).open("wb")
        self._file.write(self._header)
        self._room = max(least_bytes, self._part_bytes - len(self._header))
        self.num_rows.append(0)

    def close(self) -> None:
        """Finish the last file."""
        if self._file is not None:
            self._file.close()
