"""Rows from standard input, copied once into a file without a name that takes its place and can be read anywhere."""

import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from recmill.errors import ConfigError, DataError
from recmill.files import STDIN
from recmill.world import read_world

_COPY_BYTES = 1 << 20
_DESCRIPTOR = 0


def is_stdin(path: Path) -> bool:
    """Whether a path of a command line stands for standard input."""
    return str(path) in ("-", STDIN)


def given_path(path: Path, *, procs: int | None = None) -> Path:
    """A path of a command line; what comes through standard input is copied to a scratch file first."""
    if not is_stdin(path):
        return path
    if procs is not None or read_world().size > 1:
        raise ConfigError(
            f"--data {path}: several processes cannot read standard input; write the rows to a file that all of them "
            "can open, or train without --procs and without a launcher"
        )
    if not is_spooled():  # a command may name it twice
        _spool()
    return Path(STDIN)


def is_spooled() -> bool:
    """Whether standard input is such a file: of all that it may be, only that is a file without a name."""
    try:
        status = os.fstat(_DESCRIPTOR)
    except OSError:  # it is closed
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 0


def _spool() -> None:
    if sys.stdin is None or os.isatty(_DESCRIPTOR):
        raise DataError(
            "nothing comes through standard input; as in `zcat logs.csv.gz | recmill ... -`, or name a file"
        )
    scratch_dir = tempfile.gettempdir()
    with tempfile.TemporaryFile(dir=scratch_dir) as scratch:
        try:
            with open(_DESCRIPTOR, "rb", closefd=False) as given:
                shutil.copyfileobj(given, scratch, _COPY_BYTES)
            scratch.flush()
        except OSError as error:
            raise DataError(
                f"standard input cannot be copied to {scratch_dir}: {error.strerror or error}; "
                "the variable TMPDIR names another place"
            ) from None
        if scratch.tell() == 0:
            raise DataError("standard input is empty; is the command before the pipe right?")
        os.dup2(scratch.fileno(), _DESCRIPTOR)


def refuse_lost_input(path: Path) -> None:
    """Complain about a run whose rows came through standard input, if they are gone."""
    if str(path) == STDIN and not is_spooled():
        raise DataError(
            f"data.dir = {STDIN!r}: the rows came through standard input, and nobody has kept them; "
            "give them as a file with --data FILE"
        )
