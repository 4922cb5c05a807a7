"""Reads many blocks from scattered places of files at once, past the page cache.

Linux' asynchronous reads take a thousand requests in one call of the system, from one thread; where they cannot be
had, threads read one block each. `liburing` would do as well, and is one more library.
"""

import ctypes
import errno
import mmap
import os
import platform
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

_DIRECT: int = getattr(os, "O_DIRECT", 0)
_DEPTH = 1024
_NUM_THREADS = 8
# io_setup, io_destroy, io_getevents, io_submit
_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_REQUEST = np.dtype(
    [
        *(("data", "u8"), ("key", "u4"), ("flags", "u4"), ("opcode", "u2"), ("priority", "i2"), ("file", "u4")),
        *(("buffer", "u8"), ("num_bytes", "u8"), ("offset", "i8"), ("unused", "u8"), ("more_flags", "u4")),
        ("event_file", "u4"),
    ]
)  # struct iocb of linux/aio_abi.h; opcode 0 is a read
_EVENT_WORDS = 4  # struct io_event: data, request, result, second result


class ShortReadError(OSError):
    """A block that is not there, or not all of it."""

    def __init__(self, request: int, problem: str) -> None:
        super().__init__(errno.EIO, problem)
        self.request = request


def open_direct(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor past the page cache, or through it where the file system knows no other way."""
    try:
        return os.open(path, flags | _DIRECT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags | os.O_CLOEXEC, 0o666)


def aligned_bytes(num_bytes: int) -> NDArray[np.uint8]:
    """Memory that begins with a page, as direct reads and writes need it."""
    return np.frombuffer(mmap.mmap(-1, max(1, num_bytes)), np.uint8)


class BlockReader:
    """Reads blocks of one size; call it from one thread at a time."""

    def __init__(self, block_bytes: int, *, asynchronous: bool = True) -> None:
        self._block_bytes = block_bytes
        self._buffer = aligned_bytes(64 * block_bytes)
        self._context = _open_context() if asynchronous else None
        self._threads = None if self._context else ThreadPoolExecutor(_NUM_THREADS, "recmill-store")

    def close(self) -> None:
        """Give back what the system holds for it."""
        if self._context:
            _call(1, ctypes.c_ulong(self._context))
            self._context = None
        if self._threads:
            self._threads.shutdown()

    def read(self, files: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The blocks at these offsets of these descriptors, (blocks, bytes); valid until the next call."""
        num_bytes = len(files) * self._block_bytes
        if len(self._buffer) < num_bytes:
            self._buffer = aligned_bytes(max(num_bytes, 2 * len(self._buffer)))
        blocks = self._buffer[:num_bytes].reshape(len(files), self._block_bytes)
        if self._context:
            self._read_asynchronously(files, offsets, blocks)
        elif self._threads:
            portions = np.array_split(np.arange(len(files)), _NUM_THREADS)
            list(self._threads.map(lambda portion: self._read_each(portion, files, offsets, blocks), portions))
        return blocks

    def _read_each(
        self,
        portion: NDArray[np.int64],
        files: NDArray[np.int64],
        offsets: NDArray[np.int64],
        blocks: NDArray[np.uint8],
    ) -> None:
        for i in portion.tolist():
            found = os.preadv(int(files[i]), [blocks[i].data], int(offsets[i]))
            if found != self._block_bytes:
                raise ShortReadError(i, f"{found} of {self._block_bytes} bytes could be read")

    def _read_asynchronously(
        self, files: NDArray[np.int64], offsets: NDArray[np.int64], blocks: NDArray[np.uint8]
    ) -> None:
        requests = np.zeros(len(files), _REQUEST)
        requests["data"] = np.arange(len(files))
        requests["file"], requests["offset"], requests["num_bytes"] = files, offsets, self._block_bytes
        requests["buffer"] = blocks.ctypes.data + self._block_bytes * np.arange(len(files), dtype=np.uint64)
        addresses = requests.ctypes.data + _REQUEST.itemsize * np.arange(len(files), dtype=np.uint64)
        events = np.empty((_DEPTH, _EVENT_WORDS), np.int64)
        context, num_sent, num_done = ctypes.c_ulong(self._context or 0), 0, 0
        problem: ShortReadError | None = None
        while num_done < num_sent or (num_sent < len(files) and problem is None):
            room = min(len(files) - num_sent, _DEPTH - (num_sent - num_done)) if problem is None else 0
            if room:
                pointer = ctypes.c_void_p(int(addresses.ctypes.data) + 8 * num_sent)
                num_sent += _call(3, context, ctypes.c_long(room), pointer)
            if num_done < num_sent:
                pointer = ctypes.c_void_p(int(events.ctypes.data))
                count = _call(2, context, ctypes.c_long(1), ctypes.c_long(_DEPTH), pointer, None)
                num_done += count
                if (events[:count, 2] != self._block_bytes).any():  # what is under way still fills the buffer
                    problem = problem or self._complaint(events[:count])
        if problem is not None:
            raise problem

    def _complaint(self, events: NDArray[np.int64]) -> ShortReadError:
        request, _, result, _ = events[events[:, 2] != self._block_bytes][0].tolist()
        why = os.strerror(-result) if result < 0 else f"{result} of {self._block_bytes} bytes could be read"
        return ShortReadError(request, why)


def _call(which: int, *words: object) -> int:
    """A call of the system, again if a signal came between; the interpreter is free meanwhile."""
    number = _CALLS[platform.machine()][which]
    while True:
        result = int(_LIBC.syscall(ctypes.c_long(number), *words))
        if result >= 0:
            return result
        code = ctypes.get_errno()
        if code not in (errno.EINTR, errno.EAGAIN):
            raise OSError(code, os.strerror(code))


def _open_context() -> int | None:
    if platform.machine() not in _CALLS or platform.system() != "Linux":
        return None
    context = ctypes.c_ulong(0)
    try:
        _call(0, ctypes.c_uint(_DEPTH), ctypes.byref(context))
    except OSError:  # a container may forbid it, or others may have taken all there are
        return None
    return context.value


_LIBC = ctypes.CDLL(None, use_errno=True)
