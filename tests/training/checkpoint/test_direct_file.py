"""Files written past the page cache hold what ordinary ones would, also where they cannot go past it."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recmill.files import checksum
from recmill.training.checkpoint import direct_file
from recmill.training.checkpoint.direct_file import DirectFile

BUFFER = 8192


@pytest.fixture(autouse=True)
def small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_file, "_BUFFER_BYTES", BUFFER)


def _write(path: Path, sizes: list[int]) -> bytes:
    portions = [np.random.default_rng(n).integers(0, 256, size, np.uint8) for n, size in enumerate(sizes)]
    with DirectFile(path) as file:
        for portion in portions:
            file.write(portion)
    assert file.digest == checksum(path)
    return b"".join(portion.tobytes() for portion in portions)


SIZES = [[], [0], [1], [BUFFER], [BUFFER - 1, 2], [3, BUFFER, 5 * BUFFER + 7, 0, 11], [1] * 40, [4 * BUFFER]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_portions_of_any_size_make_the_file(tmp_path: Path, sizes: list[int]) -> None:
    (tmp_path / "file").write_bytes(b"older and longer" * BUFFER)
    assert _write(tmp_path / "file", sizes) == (tmp_path / "file").read_bytes()


@pytest.mark.parametrize("refuses", ["open", "write"])
def test_a_file_system_without_direct_writes_is_written_the_usual_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    honest, refusals = getattr(os, refuses), list[int]()

    def reluctant(first: Any, second: Any, *rest: Any) -> int:
        flags = second if refuses == "open" else fcntl.fcntl(first, fcntl.F_GETFL)
        if flags & os.O_DIRECT:
            refusals.append(1)
            raise OSError(errno.EINVAL, "no direct writes here")
        return int(honest(first, second, *rest))

    monkeypatch.setattr(os, refuses, reluctant)
    assert _write(tmp_path / "file", [3 * BUFFER + 5]) == (tmp_path / "file").read_bytes()
    assert refusals == [1]


def test_writes_that_take_only_a_part_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: honest(descriptor, content[:1000]))
    assert _write(tmp_path / "file", [2 * BUFFER + 5]) == (tmp_path / "file").read_bytes()


def test_a_full_disk_is_told_and_the_file_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int, _content: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "write", full)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="no space left"):
        _write(tmp_path / "file", [2 * BUFFER])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
