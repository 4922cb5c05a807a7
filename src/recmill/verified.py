"""Checksums of finished directories, compared once: what was found intact on this machine is remembered by each user.

The memory is a file per directory under `$XDG_CACHE_HOME/recmill/verified`. It holds a hash for each file: of its path,
size, times, inode, device and the checksum that it was found to have. Whoever alters a file alters one of these. The
memory spares a comparison and says nothing else; without one, files are compared again.
"""

import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from recmill.errors import DataError, RunError
from recmill.files import MANIFEST, has_checksum, read_listing, refuse_altered, stated_checksum, write_atomic
from recmill.regular import inside, require_regular
from recmill.settings.data import Verify

PREPARE_ANEW = "prepare the data anew"
_MAX_RECORDS = 1000  # directories
_MAX_RECORD_BYTES = 64 << 20
# A file that has just been written may be written again without a sign of it: clocks of disks are coarse.
_SETTLED_NS = 2_000_000_000
_known_here = set[str]()  # for those who cannot write a cache


def read_verified(directory: Path, verify: Verify, *, under: str = "") -> dict[str, Any]:
    """The manifest of a prepared directory whose files are those it lists; `under`: only files in that folder.

    Names, kinds and sizes are compared each time, and checksums as `verify` says.
    """
    try:
        manifest = read_listing(directory)
        refuse_altered(directory, manifest)
    except RunError as error:
        raise DataError(f"{error}; {PREPARE_ANEW}") from None
    listed = {name: stated for name, stated in manifest["files"].items() if not under or name.startswith(f"{under}/")}
    checks = dict[Path, Callable[[], None]]()
    whats = dict[Path, str]()
    for name, stated in listed.items():
        path = inside(directory, name, PREPARE_ANEW)
        if require_regular(path, PREPARE_ANEW).st_size != stated.get("bytes"):
            raise DataError(f"{path} is not the file that {MANIFEST} lists: its size differs; {PREPARE_ANEW}")
        checks[path], whats[path] = _compare(path, stated), stated_checksum(stated)
    if verify != "never":
        check_once(directory, checks, whats, is_remembered=verify == "once")
    return manifest


def _compare(path: Path, stated: dict[str, Any]) -> Callable[[], None]:
    def compare() -> None:
        if not has_checksum(path, stated):
            raise DataError(f"{path} is not the file that {MANIFEST} lists: its checksum differs; {PREPARE_ANEW}")

    return compare


def check_once(
    directory: Path, checks: dict[Path, Callable[[], None]], whats: dict[Path, str], *, is_remembered: bool = True
) -> None:
    """Call the check of each file, in threads, unless that file is known to have passed the one that `whats` names."""
    before = {path: _key(path, whats[path]) for path in checks}
    known = _Record(directory) if is_remembered else None
    due = [path for path in checks if known is None or before[path] not in known.keys]
    if not due:
        return
    began_ns = time.time_ns()
    with ThreadPoolExecutor(min(16, 2 * len(os.sched_getaffinity(0)))) as pool:  # one waits for the disk, one hashes
        for _ in pool.map(lambda path: checks[path](), due):
            pass
    if known is not None:
        settled = (path for path in due if _changed_ns(path) < began_ns - _SETTLED_NS)
        known.add(before[path] for path in settled if _key(path, whats[path]) == before[path])


def _changed_ns(path: Path) -> int:
    found = path.stat()
    return max(found.st_mtime_ns, found.st_ctime_ns)


def _key(path: Path, what: str) -> str:
    """Of a file in its present state, and of what it is known for."""
    found = path.stat()
    times = (found.st_mtime_ns, found.st_ctime_ns)
    facts = (platform.node(), os.path.realpath(path), found.st_size, *times, found.st_ino, found.st_dev, what)
    return hashlib.sha256(repr(facts).encode(errors="backslashreplace")).hexdigest()[:32]


class _Record:
    """The keys that are remembered of a directory."""

    def __init__(self, directory: Path) -> None:
        home = _cache_dir()
        name = hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()[:32]
        self._path = home / name if home else None
        self.keys = _known_here | self._read()

    def _read(self) -> set[str]:
        with suppress(DataError, OSError, ValueError):
            if self._path and require_regular(self._path).st_size <= _MAX_RECORD_BYTES:
                return set(self._path.read_text().split())
        return set()

    def add(self, keys: Iterable[str]) -> None:
        """Remember some more; those of files that are no longer as they were go with the oldest records."""
        found = set(keys)
        _known_here.update(found)
        with suppress(OSError):
            if self._path and found:
                write_atomic(self._path, "\n".join(sorted(self._read() | found)), durable=False)
                _forget_oldest(self._path.parent)


def _cache_dir() -> Path | None:
    """The user's own; None if there is none, or if it is another's."""
    try:
        parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = parent / "recmill" / "verified"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = home.stat()
        return home if parent.is_absolute() and found.st_uid == os.getuid() and not found.st_mode & 0o022 else None
    except (OSError, RuntimeError, ValueError):
        return None


def _forget_oldest(home: Path) -> None:
    records = sorted(home.iterdir(), key=lambda path: path.lstat().st_mtime_ns)
    for path in records[:-_MAX_RECORDS]:
        path.unlink(missing_ok=True)
