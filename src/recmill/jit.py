"""The door to numba: compiled kernels are kept in a directory that changes its name with the source of any of them.

Numba itself looks only at the file of the function it loads. A kernel inlines kernels of other files, so after an
edit, or an update, to one of those it would run old machine code.
"""

import hashlib
import shutil
from pathlib import Path

import numba
from numba import njit, prange, uint32, uint64

__all__ = ["njit", "prange", "uint32", "uint64"]

PACKAGE = Path(__file__).resolve().parent
_PREFIX = "kernels-"


def source_key(package: Path) -> str:
    """A digest of all source files that use numba."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        if b"njit" in content:
            digest.update(str(path.relative_to(package)).encode() + content)
    return digest.hexdigest()[:16]


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
