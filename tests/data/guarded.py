"""Memory that ends where the bytes end: the page behind it may not be touched."""

import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

_PROT_NONE = 0
_PAGE = mmap.PAGESIZE


class GuardedMemory:
    """Room for bytes in front of a forbidden page; reading one byte too far ends the process with SIGSEGV."""

    def __init__(self, num_pages: int = 64) -> None:
        self._room = num_pages * _PAGE
        self._map = mmap.mmap(-1, self._room + _PAGE)
        self._bytes = np.frombuffer(self._map, np.uint8, self._room)
        libc = ctypes.CDLL(None, use_errno=True)
        guard = ctypes.c_void_p(self._bytes.ctypes.data + self._room)
        if libc.mprotect(guard, ctypes.c_size_t(_PAGE), _PROT_NONE) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def hold(self, content: bytes) -> NDArray[np.uint8]:
        """The content, flush against the forbidden page; valid until the next call."""
        assert len(content) <= self._room
        start = self._room - len(content)
        self._bytes[start:] = np.frombuffer(content, np.uint8)
        return self._bytes[start:]
