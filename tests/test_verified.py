"""Checksums are compared once for each state of a file, and again after any change; no cache is needed for it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from recmill import verified
from recmill.errors import DataError
from recmill.files import MANIFEST, has_checksum, write_manifest
from recmill.verified import read_verified


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files with a manifest, and a cache of its own that remembers files as soon as they are written."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verified, "_SETTLED_NS", -(10**12))
    monkeypatch.setattr(verified, "_known_here", set())
    made = tmp_path / "made"
    made.mkdir()
    for name in ("a", "b"):
        (made / name).write_text(name * 100)
    write_manifest(made, kind="any")
    return made


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files whose checksum was computed."""
    names = list[str]()

    def note(path: Path, stated: dict[str, object]) -> bool:
        names.append(path.name)
        return has_checksum(path, stated)

    monkeypatch.setattr(verified, "has_checksum", note)
    return names


def _in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "_known_here", set())


def test_once_always_and_never(directory: Path, compared: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read_verified(directory, "never")
    assert compared == []
    for _ in range(3):
        read_verified(directory, "once")
        _in_another_process(monkeypatch)
    assert sorted(compared) == ["a", "b"]
    read_verified(directory, "always")
    assert sorted(compared) == ["a", "a", "b", "b"]


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)


def _flip_and_keep_the_times(path: Path) -> None:
    before = path.stat()
    _flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("x" * 100)
    other.replace(path)


@pytest.mark.parametrize("change", [_flip, _flip_and_keep_the_times, _replace])
def test_a_changed_file_is_compared_again(directory: Path, change: Callable[[Path], None]) -> None:
    read_verified(directory, "once")
    change(directory / "b")
    for _ in range(2):  # what was found damaged is not remembered as intact
        with pytest.raises(DataError, match=r"b is not the file that manifest\.json lists: its checksum differs"):
            read_verified(directory, "once")
    read_verified(directory, "never")


def test_a_copy_is_another_directory(directory: Path, compared: list[str]) -> None:
    read_verified(directory, "once")
    directory.rename(directory.with_name("moved"))
    read_verified(directory.with_name("moved"), "once")
    assert len(compared) == 4


def test_a_file_that_has_just_been_written_is_not_remembered(
    directory: Path, compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "_SETTLED_NS", 10**12)
    read_verified(directory, "once")
    read_verified(directory, "once")
    assert len(compared) == 4


@pytest.mark.parametrize("spoil", ["file", "garbage", "pipe", "others"])
def test_without_a_cache_files_are_compared(
    directory: Path, compared: list[str], monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    home = directory.parent / "cache" / "recmill" / "verified"
    if spoil == "file":
        home.parent.parent.mkdir()
        home.parent.write_text("no directory")
    else:
        read_verified(directory, "once")
        (record,) = home.iterdir()
        record.unlink()
        if spoil == "garbage":
            record.write_bytes(b"\xff\0garbage")
        elif spoil == "pipe":
            os.mkfifo(record)
        else:
            home.chmod(0o777)  # anyone may have written it
        compared.clear()
    _in_another_process(monkeypatch)
    read_verified(directory, "once")
    assert sorted(compared) == ["a", "b"]
    read_verified(directory, "once")  # the process remembers
    assert sorted(compared) == ["a", "b"]


def test_the_cache_is_bounded(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "_MAX_RECORDS", 3)
    home = directory.parent / "cache" / "recmill" / "verified"
    home.mkdir(parents=True, mode=0o700)
    for i in range(5):
        (home / str(i)).write_text("x")
        os.utime(home / str(i), (i, i))
    read_verified(directory, "once")
    assert {"3", "4"} < {path.name for path in home.iterdir()}
    assert len(list(home.iterdir())) == 3


def test_the_manifest_is_compared_each_time(directory: Path) -> None:
    read_verified(directory, "once")
    path = directory / MANIFEST
    path.write_text(path.read_text().replace("any", "own"))
    with pytest.raises(DataError, match="it is not what its own checksum says; prepare the data anew"):
        read_verified(directory, "never")


def test_extra_files_are_not_read(directory: Path) -> None:
    os.mkfifo(directory / "pipe")
    (directory / "more").write_text("more")
    read_verified(directory, "always")
