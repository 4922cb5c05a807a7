"""A directory that is written to belongs to one process at a time."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recmill.errors import RunError

LOCK = ".lock"


@contextmanager
def locked_output(out_dir: Path) -> Iterator[None]:
    """Hold a directory that is written beside its place and then given its name; the lock lies there too."""
    out_dir = out_dir.absolute()
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    with locked(out_dir, out_dir.with_name(f".{out_dir.name}{LOCK}")):
        yield


@contextmanager
def locked(directory: Path, path: Path | None = None) -> Iterator[None]:
    """Hold the directory for as long as the body runs; one that another process holds is rejected.

    The system lets go of a lock when its owner dies. What an owner on another host wrote and did not take back cannot
    be told from one that lives, unless this host sees its locks; it is rejected too, with the file to remove.
    """
    path = path or directory / LOCK
    with path.open("a+") as file:
        owner = _read_owner(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_taken = not path.exists() or not os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except OSError:
            is_taken = True
        if is_taken:  # held by its owner, or just given back by one: then another may already hold the next
            raise RunError(f"{directory} is in use by {owner or 'another process'}; wait for it or end it")
        if owner and not owner.endswith(f" on {socket.gethostname()}"):
            raise RunError(f"{directory} is in use by {owner}; if that one is gone, remove {path} and try again")
        file.truncate(0)
        file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        file.flush()
        try:
            yield
        finally:
            with suppress(OSError):  # a lock that stays is no obstacle, once nobody holds it
                path.unlink()


def _read_owner(path: Path) -> str | None:
    """Who wrote into the lock last, and did not take it back."""
    text = path.read_text()
    try:
        owner = json.loads(text) if text else None
        return f"process {owner['pid']} on {owner['host']}" if owner else None
    except (ValueError, KeyError, TypeError):
        return None
