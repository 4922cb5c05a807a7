"""Files that are what they seem: regular ones, in the directory that lists them. Nothing here waits, or leaves it."""

import os
import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from recmill.errors import DataError

_OTHER_KINDS: dict[str, Callable[[int], bool]] = {
    "a directory": stat.S_ISDIR,
    "a named pipe": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
}


def require_regular(path: Path, way_out: str = "put the file back") -> os.stat_result:
    """What the system knows of a regular file, links followed; anything else might be waited for, and is rejected."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise DataError(f"{path} is missing; {way_out}") from None
    except (OSError, ValueError) as error:  # a loop of links, or a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path} cannot be opened: {reason}; {way_out}") from None
    if (kind := other_kind(found)) is not None:
        raise DataError(f"{path} is {kind}, not a file; {way_out}")
    return found


def other_kind(found: os.stat_result) -> str | None:
    """What something is that is no regular file, in words; None of a regular file."""
    if stat.S_ISREG(found.st_mode):
        return None
    return next((name for name, is_it in _OTHER_KINDS.items() if is_it(found.st_mode)), "something else")


def inside(directory: Path, name: object, way_out: str = "put the file back") -> Path:
    """The path of a name that a list in the directory gives; one that leads out of the directory is rejected."""
    if not is_plain_name(name):
        raise DataError(f"{directory} lists {name!r}, which is no name of a file in it; {way_out}")
    path = directory / str(name)
    ways = (path, *path.parents[: len(PurePosixPath(str(name)).parts) - 1])
    if any(way.is_symlink() for way in ways):
        home = os.path.realpath(directory)
        if os.path.commonpath([home, os.path.realpath(path)]) != home:
            raise DataError(f"{path} is a link that leads out of {directory}; {way_out}")
    return path


def is_plain_name(name: object) -> bool:
    """Whether it is a relative path without `..` that a file can have."""
    if not isinstance(name, str) or not name or "\0" in name or len(name) > 1024:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:  # half of a character
        return False
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts
