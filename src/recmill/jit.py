"""The door to numba: compiled kernels are kept in a directory that changes its name with the source of any of them.

Numba itself looks only at the file of the function it loads. A kernel inlines kernels of other files, so after an
edit, or an update, to one of those it would run old machine code. It tells kernels that a function has made for a
number or for another kernel apart by the pickles of these, which for a kernel are new ones in every process: none of
them would ever be found again. And it numbers its files by an index that every process reads, extends and writes
without asking the others: of two that compile at the same time one may later be given the machine code of the other.
"""

import hashlib
import os
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import prange, uint32, uint64
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from recmill.files import write_atomic

__all__ = ["njit", "prange", "uint32", "uint64"]

PACKAGE = Path(__file__).resolve().parent
_PREFIX = "kernels-"
_DIGEST_BYTES = 32


def njit(**options: Any) -> Any:
    """`numba.njit`, and kernels with `cache=True` are found again whatever they were made for."""

    def decorate(function: Callable[..., Any]) -> Any:
        kernel = numba.njit(**options)(function)
        if options.get("cache"):
            made_for, kept = variant_of(function), kernel._cache
            kept._index_key = lambda signature, codegen: (signature, codegen.magic_tuple(), made_for)
            stem, stamp = kept._impl.filename_base, kept._impl.locator.get_source_stamp()
            kept._cache_file = KernelFiles(Path(kept.cache_path), stem, stamp)
        return kernel

    return decorate


class KernelFiles:
    """A file for each variant and signature of a kernel, named after these: no process can mistake one for another."""

    def __init__(self, directory: Path, stem: str, stamp: object) -> None:
        self._directory = directory
        self._stem = stem
        self._source = (stamp, _source_key_here())

    def save(self, key: object, compiled: object) -> None:
        """Put a kernel in its file, in one step; where nothing can be written, it is compiled anew the next time."""
        content: bytes = dumps(compiled)
        with suppress(OSError):
            write_atomic(self._path(key), _digest(content) + content, durable=False)

    def load(self, key: object) -> Any:
        """The kernel; None if there is no file of it, half of one, or one that somebody else has put there."""
        try:
            with self._path(key).open("rb") as file:
                if os.fstat(file.fileno()).st_uid not in (0, os.geteuid()):
                    return None  # it is code, and would be run
                content = file.read()
        except OSError:
            return None
        digest, content = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        return pickle.loads(content) if digest == _digest(content) else None

    def _path(self, key: object) -> Path:
        name = hashlib.sha256(repr((key, self._source)).encode()).hexdigest()[:32]
        return self._directory / f"{self._stem}.{name}.nbc"


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def variant_of(function: Any) -> str:
    """The name of a function and what it has been made for: numbers, words, and kernels that may be variants too."""
    names = function.__code__.co_freevars
    values = [_described(cell.cell_contents, function) for cell in function.__closure__ or ()]
    made_for = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
    return f"{function.__module__}.{function.__qualname__}({made_for})"


def _described(value: Any, function: Any) -> str:
    if isinstance(value, Dispatcher):
        return variant_of(value.py_func)
    if isinstance(value, (bool, int, float, str, tuple)):
        return repr(value)
    raise TypeError(f"{function.__qualname__} is made for {value!r}: it cannot be told from its like in a cache")


def source_key(package: Path) -> str:
    """A digest of all source files that use numba."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        if b"njit" in content:
            digest.update(str(path.relative_to(package)).encode() + content)
    return digest.hexdigest()[:16]


@cache
def _source_key_here() -> str:
    return source_key(PACKAGE)


def use_fresh_cache(package: Path, parent: Path) -> Path:
    """Point numba at the directory for the source as it is, and let go of those for earlier versions."""
    directory = parent / f"{_PREFIX}{source_key(package)}"
    for stale in parent.glob(f"{_PREFIX}*"):
        if stale != directory:
            shutil.rmtree(stale, ignore_errors=True)
    numba.config.CACHE_DIR = str(directory)
    return directory


def _cache_parent() -> Path:
    """Beside the package's own compiled files, or in the home directory where that cannot be written."""
    beside = PACKAGE / "__pycache__"
    try:
        beside.mkdir(exist_ok=True)
        (beside / ".writable").touch()
    except OSError:
        return Path.home() / ".cache" / "recmill" / hashlib.sha256(bytes(PACKAGE)).hexdigest()[:16]
    return beside


if not numba.config.CACHE_DIR:  # the user's own choice, NUMBA_CACHE_DIR, comes first
    use_fresh_cache(PACKAGE, _cache_parent())

# A loop over a row of known length is unrolled before LLVM looks for vectors in loops: this looks for them afterwards.
numba.config.SLP_VECTORIZE = 1
