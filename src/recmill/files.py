"""Files that are absent or complete: atomic writes, finished directories, free space, checksums."""

import ctypes
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import xxhash

from recmill.errors import DataError, RunError
from recmill.lock import locked_output
from recmill.own_files import ANYTHING, HEX, INSIDE, Table, read_own_json, whole

MANIFEST = "manifest.json"
CONFIG, RESULTS = "config.toml", "results.json"  # of a run directory: written first, and last
STDIN = "/dev/stdin"  # where rows come from that a command reads from a pipe
VALUES = "values.parquet"  # of a run or of prepared rows: texts of string categories by their hashes
STORE_DIR = "store"  # of a run whose tables are larger than memory, while it is trained
ROWS = "rows"  # of a run of the recipe auto: its prepared rows
_OWN_CHECKSUM = "manifest_sha256"
_HERE, _EXCHANGE = -100, 2  # of Linux' renameat2: paths count from the working directory; exchange names
_HASHES: dict[str, Any] = {"xxh3_128": xxhash.xxh3_128, "sha256": hashlib.sha256}  # the second one in older directories
CHECKSUM = "xxh3_128"  # ten times as fast, and what it guards against is accidents
_FILE = Table(optional={"bytes": whole(), "xxh3_128": HEX, "sha256": HEX}, others=ANYTHING)
# Whatever else a manifest says is for those who read that kind of directory.
_LISTING = Table(
    fields={"files": Table(others=_FILE, names=INSIDE)},
    optional={_OWN_CHECKSUM: HEX, "step": whole(), "run": HEX},
    others=ANYTHING,
)


def write_atomic(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace a file in one step: a reader, or a crash, sees the old content or the new one.

    Without `durable` that holds when the process is killed, and not when the machine loses its power.
    """
    with finished_file(path) as scratch, scratch.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        if durable:
            os.fsync(file.fileno())


@contextmanager
def finished_file(path: Path) -> Iterator[Path]:
    """Yield a scratch path whose file becomes `path` only if the body succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        raise RunError(f"{path} is a directory, and a file is to be written there; move it away or remove it")
    scratch = path.with_name(f".{path.name}.{uuid4().hex[:12]}")  # hosts that share a disk may have equal pids
    try:
        yield scratch
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def write_at(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    """Write all of it at a place of an open file; threads may write to one file at the same time."""
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


@contextmanager
def finished_dir(
    target: Path, *, overwrite: bool = False, is_ours: Callable[[Path], bool] | None = None
) -> Iterator[Path]:
    """Yield a scratch directory that becomes `target` only if the body succeeds; `is_ours`: see `refuse_occupied`."""
    with taken_dir(target, overwrite=overwrite, is_ours=is_ours):
        scratch = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
            replace_dir(scratch, target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise


@contextmanager
def taken_dir(
    target: Path,
    *,
    overwrite: bool = False,
    is_ours: Callable[[Path], bool] | None = None,
    inputs: Iterable[Path] = (),
) -> Iterator[None]:
    """Hold a directory that is to be written; one that is occupied, or that another process writes, is rejected."""
    inputs = list(inputs)
    refuse_occupied(target, overwrite=overwrite, is_ours=is_ours, inputs=inputs)
    with locked_output(target):
        # whoever held it a moment ago may have finished it
        refuse_occupied(target, overwrite=overwrite, is_ours=is_ours, inputs=inputs)
        yield


def replace_dir(finished: Path, target: Path) -> None:
    """Give a finished directory its name; what was there before is gone only when it stands."""
    if target.exists():
        old = target.with_name(f".{target.name}.{uuid4().hex[:12]}.old")
        if _exchange(finished, target):
            finished.rename(old)
        else:
            target.rename(old)
            try:
                finished.rename(target)
            except OSError:
                old.rename(target)
                raise
    else:
        finished.rename(target)
    # a run that was killed at this place before has left one behind too
    for replaced in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 12}.old"):
        shutil.rmtree(replaced, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """Give each of two directories the other's name in one step, where the system can: no kill finds neither."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    return call is not None and call(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0


def refuse_occupied(
    target: Path, *, overwrite: bool, is_ours: Callable[[Path], bool] | None = None, inputs: Iterable[Path] = ()
) -> None:
    """Complain if the directory holds what was not offered for replacement, is not ours to replace, or is read from."""
    if target.is_symlink():
        raise DataError(f"{target} is a link; name the directory itself, {target.resolve()}")
    if target.exists() and not target.is_dir():
        raise DataError(f"{target} is a file; a directory is to be written there")
    refuse_unwritable(target)
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not overwrite:
        raise DataError(f"{target} is not empty; choose another directory or pass --overwrite")
    if is_ours is not None and not is_ours(target):
        raise DataError(
            f"{target} is nothing that this command has written, and --overwrite will not replace it; "
            "choose another directory or remove it yourself"
        )
    for path in inputs:
        if path.resolve().is_relative_to(target.resolve()):
            raise DataError(f"{path} is read from, and --overwrite would replace {target}; choose another directory")


def refuse_unwritable(directory: Path) -> None:
    """Complain, before any work, about a directory that cannot be made or written to."""
    try:
        str(directory).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{str(directory)!a} is not UTF-8, in which names of files are kept; give another name"
        ) from None
    existing = next(d for d in (directory.resolve(), *directory.resolve().parents) if d.exists())
    if not existing.is_dir():
        raise DataError(f"{directory} cannot be made: {existing} is not a directory; choose another place")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise DataError(f"{directory} cannot be written: {existing}: {error.strerror}; choose another place") from None


def has_manifest(directory: Path) -> bool:
    """Whether a directory was finished: its manifest, which is written last, is there."""
    return (directory / MANIFEST).is_file()


def is_of_recmill(directory: Path) -> bool:
    """Whether a directory says of itself that recmill has written it, and may replace it."""
    try:
        return str(read_listing(directory).get("format", "")).startswith("recmill ")
    except RunError:
        return False


def require_free_space(directory: Path, needed_bytes: int, purpose: str) -> None:
    """Complain before writing what cannot fit."""
    existing = next(d for d in (directory.resolve(), *directory.resolve().parents) if d.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < needed_bytes:
        raise DataError(
            f"{purpose} needs about {needed_bytes / 2**30:.1f} GiB in {existing}, which has "
            f"{free_bytes / 2**30:.1f} GiB free; make room or choose another disk"
        )


def checksum(path: Path, kind: str = CHECKSUM) -> str:
    """Of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, _HASHES[kind]).hexdigest()


def remove_scratch(directory: Path) -> None:
    """Remove files that an attempt which was killed was writing: they have names that begin with a dot."""
    for path in sorted(directory.rglob(".*")):
        if path.is_file():
            path.unlink(missing_ok=True)


def _settle(path: Path) -> str:
    """Have a file's content on the disk; its checksum."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return checksum(path)


def write_manifest(directory: Path, **content: Any) -> None:
    """Record what the directory holds, sizes and checksums included; the last thing written into it.

    What it lists is on the disk before it is.
    """
    write_listing(directory, list_files(directory), **content)


def list_files(directory: Path) -> dict[str, dict[str, Any]]:
    """The size and checksum of every file in a directory, all on the disk."""
    paths = [path for path in sorted(directory.rglob("*")) if path.is_file() and path != directory / MANIFEST]
    with ThreadPoolExecutor(2 * len(os.sched_getaffinity(0))) as pool:  # while one waits for the disk, another hashes
        digests = list(pool.map(_settle, paths))
    return {
        str(path.relative_to(directory)): {"bytes": path.stat().st_size, CHECKSUM: digest}
        for path, digest in zip(paths, digests, strict=True)
    }


def write_listing(directory: Path, files: dict[str, dict[str, Any]], **content: Any) -> None:
    """The manifest of files that are known to be on the disk, with their sizes and checksums, and one of its own."""
    facts = {**content, "files": files}
    write_atomic(directory / MANIFEST, json.dumps({**facts, _OWN_CHECKSUM: _checksum(facts)}, indent=1))


def _checksum(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, indent=1).encode()).hexdigest()


def read_listing(directory: Path) -> dict[str, Any]:
    """The manifest of a directory, without a look at the files."""
    path = directory / MANIFEST
    if not path.is_file():
        what = f"its {MANIFEST} is no file" if os.path.lexists(path) else f"it has no {MANIFEST}"
        raise RunError(f"{directory} is not complete: {what}")
    manifest: dict[str, Any] = read_own_json(path, _LISTING)
    return manifest


def read_manifest(directory: Path, *, verify: bool = True) -> dict[str, Any]:
    """The manifest of a complete and intact directory; anything else is rejected by the name of what is wrong.

    Without `verify` only names and sizes are compared, and checksums are not.
    """
    manifest = read_listing(directory)
    if complaint := next(find_damage(directory, manifest, verify=verify), None):
        raise RunError(complaint)
    return manifest


def refuse_altered(directory: Path, manifest: dict[str, Any]) -> None:
    """Complain about a manifest that is not what its own checksum says; those of older versions have none."""
    facts = {key: value for key, value in manifest.items() if key != _OWN_CHECKSUM}
    try:
        is_altered = manifest.get(_OWN_CHECKSUM, _checksum(facts)) != _checksum(facts)
    except RecursionError:
        is_altered = True  # we nest no tables as deep as that
    if is_altered:
        raise RunError(f"{directory / MANIFEST} is damaged: it is not what its own checksum says")


def find_damage(directory: Path, manifest: dict[str, Any], *, verify: bool = True) -> Iterator[str]:
    """What is wrong with the files that a manifest lists, and with the manifest itself."""
    facts = {key: value for key, value in manifest.items() if key != _OWN_CHECKSUM}
    if verify and manifest.get(_OWN_CHECKSUM, _checksum(facts)) != _checksum(facts):
        yield f"{directory / MANIFEST} is damaged: it is not what its own checksum says"
        return  # nothing else that it says can be believed
    for name, stated in manifest["files"].items():
        file = directory / name
        if not file.is_file():
            yield f"{file} is missing, though {MANIFEST} lists it"
        elif file.stat().st_size != stated.get("bytes") or (verify and not has_checksum(file, stated)):
            yield f"{file} is not the file that {MANIFEST} lists: its size or checksum differs"


def stated_checksum(stated: dict[str, Any]) -> str:
    """Of a file that a manifest lists, of whichever kind it is."""
    return next((str(stated[kind]) for kind in _HASHES if kind in stated), "")


def has_checksum(file: Path, stated: dict[str, Any]) -> bool:
    """Whether a file is what a manifest states; one of which it states nothing is not."""
    kinds = _HASHES.keys() & stated.keys()
    return bool(kinds) and all(checksum(file, kind) == stated[kind] for kind in kinds)


def has_own_checksum(manifest: dict[str, Any]) -> bool:
    """Whether a manifest would notice that it has been altered itself."""
    return _OWN_CHECKSUM in manifest
