"""Where quotes are open in a file, from one fast pass over it: so that a line can be found from any byte.

Without an index every newline ends a line. That is so unless a newline stands inside quotes, which the pass finds out.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.kernel import count_lines
from recmill.data.text.quotes import NEWLINE, PARITY_BYTES, ScanState, is_inside, scan_quotes
from recmill.errors import DataError

_STEP_BYTES = 64 << 20
_CHUNK_BYTES = 2 << 20
_PIECES = 2  # scanned side by side


@dataclass(frozen=True)
class QuoteIndex:
    """Whether a quote is open at every so many bytes of a file."""

    buffer: NDArray[np.uint8]
    origin: int
    marks: NDArray[np.bool_]

    def is_inside(self, at: int) -> bool:
        """Whether a quote is open at a byte."""
        if at <= self.origin:
            return False
        mark = (at - self.origin) // PARITY_BYTES
        return bool(is_inside(self.buffer, self.origin + mark * PARITY_BYTES, at, bool(self.marks[mark])))


def _line_start(text: NDArray[np.uint8], at: int) -> int:
    """Behind the first newline from a byte on, or the end."""
    for start in range(at, len(text), 1 << 16):
        newlines = np.flatnonzero(text[start : start + (1 << 16)] == NEWLINE)
        if len(newlines):
            return start + int(newlines[0]) + 1
    return len(text)


def _read_quotes(descriptor: int, origin: int, start: int, stop: int, separator: np.uint8) -> ScanState | None:
    """What a pass finds, by plain reads, which cost less than pages mapped for one look; None if bytes are missing."""
    state, chunk, nothing = ScanState(), np.empty(_CHUNK_BYTES, np.uint8), np.zeros(0, np.bool_)
    for at in range(start, stop, _CHUNK_BYTES):
        num_bytes = min(_CHUNK_BYTES, stop - at)
        if os.preadv(descriptor, [chunk[:num_bytes].data], origin + at) != num_bytes:
            return None
        whole = num_bytes // 64 * 64
        chunk[num_bytes : whole + 64] = 0
        state = scan_quotes(chunk, 0, whole, separator, state, (at, nothing))
        if num_bytes > whole:
            state = scan_quotes(chunk[whole:], 0, num_bytes - whole, separator, state, (at + whole, nothing))
        if state.is_broken:
            break
    return ScanState(*state)


def _scan_mapped(
    text: NDArray[np.uint8],
    span: tuple[int, int],
    separator: np.uint8,
    marks: NDArray[np.bool_],
    use: Callable[[int, int, bool], None],
) -> ScanState:
    """What a pass over a part of the text finds; `marks` are filled if there is room for them."""
    start, stop = span
    state: ScanState = ScanState()
    is_long = len(text) > _STEP_BYTES
    whole = start + (stop - start) // 64 * 64
    for at in range(start, whole, _STEP_BYTES):
        end = min(at + _STEP_BYTES, whole)
        use(at, end, True)
        state = scan_quotes(text, at, end, separator, state, (0, marks))
        if is_long:  # a long file does not stay in memory for having been scanned
            use(at, end, False)
        if state.is_broken:
            return ScanState(*state)
    rest = np.zeros(64, np.uint8)
    rest[: stop - whole] = text[whole:stop]
    state = scan_quotes(rest, 0, stop - whole, separator, state, (whole, marks))
    return ScanState(*state)


def index_quotes(
    buffer: NDArray[np.uint8],
    separator: str,
    path: Path,
    *,
    origin: int,
    use: Callable[[int, int, bool], None],
    descriptor: int | None = None,
) -> QuoteIndex | None:
    """The index of a file whose text begins at `origin`; None if all newlines end lines.

    `use` is told of every range that is mapped before it is read and after; with a descriptor the first pass maps none.
    Newlines end lines too if a quote is open or out of place in a row before which there is no newline inside quotes:
    such a row is bad, and ends at its first newline. If there is one before, nobody can tell what a newline is behind
    the bad row, and the file is rejected.
    """
    text, byte = buffer[origin:], np.uint8(ord(separator))
    step = len(text) // _PIECES + 1
    borders = [0, *(_line_start(text, at) for at in range(step, len(text), step)), len(text)]

    def scan(start: int, stop: int, marks: NDArray[np.bool_]) -> ScanState:
        return _scan_mapped(
            text, (start, stop), byte, marks, lambda at, end, needed: use(origin + at, origin + end, needed)
        )

    def look(start: int, stop: int) -> ScanState:
        seen = None if descriptor is None else _read_quotes(descriptor, origin, start, stop, byte)
        return scan(start, stop, np.zeros(0, np.bool_)) if seen is None else seen

    with ThreadPoolExecutor(_PIECES) as pool:
        found = list(pool.map(look, borders[:-1], borders[1:]))
    # a piece begins behind a newline, which ends a line if no quote is open at the end of the piece before
    if not any(state.is_broken or state.is_inside or state.num_breaks for state in found):
        return None
    marks = np.zeros(len(text) // PARITY_BYTES + 1, np.bool_)
    state = scan(0, len(text), marks)
    if not state.is_broken and not state.is_inside:
        return QuoteIndex(buffer, origin, marks)
    if state.breaks_before:
        raise _open_quote(path, int(count_lines(text, 0, state.row_start)) + 1)
    return None


def _open_quote(path: Path, line: int) -> DataError:
    return DataError(
        f"{path}:{line}: a quote in the row that begins here never closes, or stands within a field; close it, or "
        "double it and quote the field (rows before it have line breaks inside quotes, so it cannot be skipped)"
    )
