"""A file that is written past the page cache.

Gigabytes that nobody will read soon cost a copy, the pages they go to and the throwing out of pages that others need;
written directly, the disk takes them from memory by itself. Where a file system cannot, they go the usual way.
"""

import errno
import fcntl
import mmap
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import xxhash

_BUFFER_BYTES = 8 << 20
_DIRECT: int = getattr(os, "O_DIRECT", 0)  # Linux's


class DirectFile:
    """Takes content in portions of any size; its checksum is taken on the way, and at the end it is on the disk."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            self._descriptor = os.open(path, flags | _DIRECT, 0o666)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._descriptor = os.open(path, flags, 0o666)
        self._buffer = np.frombuffer(mmap.mmap(-1, _BUFFER_BYTES), np.uint8)  # pages: direct writes need whole ones
        self._used = 0
        self._digest = xxhash.xxh3_128()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._leave_direct()  # the last portion need not fill a page
                self._empty()
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    @property
    def digest(self) -> str:
        """The checksum of what has been written, once the file is closed."""
        return self._digest.hexdigest()

    def write(self, content: np.ndarray) -> None:
        """Append bytes."""
        start = 0
        while start < len(content):
            taken = min(len(content) - start, _BUFFER_BYTES - self._used)
            np.copyto(self._buffer[self._used : self._used + taken], content[start : start + taken])
            self._used += taken
            start += taken
            if self._used == _BUFFER_BYTES:
                self._empty()

    def _empty(self) -> None:
        rest = self._buffer.data[: self._used]
        self._digest.update(rest)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                if error.errno != errno.EINVAL or not self._is_direct():
                    raise
                self._leave_direct()  # a file system that takes the flag and not the writes
        self._used = 0

    def _is_direct(self) -> bool:
        return bool(fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & _DIRECT)

    def _leave_direct(self) -> None:
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & ~_DIRECT)
