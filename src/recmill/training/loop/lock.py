"""A run directory belongs to one run at a time."""

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
def locked(run_dir: Path) -> Iterator[None]:
    """Hold the directory for as long as the body runs; one that another process holds is rejected.

    The system lets go of a lock when its owner dies. What an owner on another host wrote and did not take back cannot
    be told from one that lives, unless this host sees its locks; it is rejected too, with the file to remove.
    """
    path = run_dir / LOCK
    with path.open("a+") as file:
        owner = _read_owner(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_taken = not path.exists() or not os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except OSError:
            is_taken = True
        if is_taken:  # held by its owner, or just given back by one: then another may already hold the next
            raise RunError(f"{run_dir} is in use by {owner or 'another process'}; wait for it or end it")
        if owner and not owner.endswith(f" on {socket.gethostname()}"):
            raise RunError(f"{run_dir} is in use by {owner}; if that one is gone, remove {path} and try again")
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
