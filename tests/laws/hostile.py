"""Law *hostile*: a manifest that is intact and lies is rejected by name, and nothing outside of its directory is read.

Each lie is told in a manifest whose own checksum, and those of the files it alters, are right.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recmill.files import CHECKSUM, MANIFEST, checksum, write_listing

Manifest = dict[str, Any]
Lie = Callable[[Path, Manifest], None]


def tell(directory: Path, lie: Lie) -> None:
    """Have a lie told by a manifest that is intact, of files that are as it says."""
    manifest: Manifest = json.loads((directory / MANIFEST).read_text())
    del manifest["manifest_sha256"]
    lie(directory, manifest)
    files = manifest.pop("files", {})
    write_listing(directory, files, **manifest)


def told_of(directory: Path, manifest: Manifest, name: str, content: bytes) -> None:
    """Other content of a file, and its right size and checksum."""
    (directory / name).write_bytes(content)
    manifest["files"][name] = {"bytes": len(content), CHECKSUM: checksum(directory / name)}


def _set(*keys: str | int, value: object) -> Lie:
    def lie(_directory: Path, manifest: Manifest) -> None:
        place: Any = manifest
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return lie


def _lists(name: str) -> Lie:
    """A file of that name, with a right size and checksum if there is one."""

    def lie(directory: Path, manifest: Manifest) -> None:
        facts: dict[str, Any] = {"bytes": 6, CHECKSUM: "0" * 32}
        manifest["files"][name] = facts

    return lie


def _deep(_directory: Path, manifest: Manifest) -> None:
    nested: list[Any] = []
    for _ in range(300):
        nested = [nested]
    manifest["subsets"] = nested


_NUMBERS: tuple[object, ...] = (-1, 2**63, 2**70, 10**400, 1.5, True, None, "7", [], {}, float("nan"), float("inf"))
_NO_TABLES: tuple[object, ...] = (None, 7, "x", [], {}, [[]], {"x": 1})
_NAMES = ("../secret", "/etc/hostname", "a/../../secret", "\ud800", "nul\0", "", ".", "x" * 5000, "link", "pipe")


def lies_about_rows(first: str) -> Iterator[tuple[str, Lie]]:
    """Of prepared rows, whose first range is of a file or name `first`."""
    yield "deep", _deep
    for number in _NUMBERS:
        yield f"stop {number!r:.20}", _set("subsets", "train", 0, 2, value=number)
        yield f"start {number!r:.20}", _set("subsets", "train", 0, 1, value=number)
        yield f"slots {number!r:.20}", _set("layout", "num_slots", value=number)
        yield f"dense {number!r:.20}", _set("layout", "num_dense", value=number)
        yield f"table {number!r:.20}", _set("table_rows", 0, value=number)
        if number != {}:
            yield f"tables {number!r:.20}", _set("table_rows", value=number)
    for name in _NAMES:
        yield f"range of {name!r:.20}", _set("subsets", "train", 0, 0, value=name)
    for key in ("subsets", "layout", "schema", "encoding", "table_rows", "files", "store", "format"):
        for value in _NO_TABLES:
            yield f"{key} = {value}", _set(key, value=value)
    yield "a range twice", _set("subsets", "validation", value=[[first, 0, 1]])
    yield "a range reversed", _set("subsets", "train", 0, value=[first, 5, 2])


def lies_about_names() -> Iterator[tuple[str, Lie]]:
    """Of any prepared directory."""
    for name in _NAMES:
        yield f"file {name!r:.20}", _lists(name)


def set_traps(directory: Path) -> None:
    """A file beside the directory, a link to it from within, and a pipe that nobody writes to."""
    (directory.parent / "secret").write_text("secret")
    (directory / "link").symlink_to(directory.parent / "secret")
    os.mkfifo(directory / "pipe")


def npy_lies(directory: Path, name: str) -> Iterator[tuple[str, Lie]]:
    """Of the header of an array."""
    honest = (directory / name).read_bytes()
    header, body = honest[:128], honest[128:]
    changes = {
        "negative rows": (b"(500,", b"(-50,"),
        "more rows": (b"(500,", b"(900,"),
        "objects": (b"'<i4'", b"'|O' "),
        "another type": (b"'<i4'", b"'<f4'"),
        "by columns": (b"False", b"True "),
        "no shape": (b"'shape'", b"'shbpe'"),
        "no end": (b"}", b"{"),
        "deep": (header[10:], b"(" * 118),
    }
    for told, (before, after) in changes.items():
        yield told, _content(name, header.replace(before, after) + body)
    yield "an empty file", _content(name, b"")
    yield "a version of tomorrow", _content(name, b"\x93NUMPY\x09\x09" + honest[8:])


def _content(name: str, content: bytes) -> Lie:
    return lambda directory, manifest: told_of(directory, manifest, name, content)


def array_lies(directory: Path, name: str, dtype: str) -> Iterator[tuple[str, Lie]]:
    """Values of an array that are none: ids beyond their tables, labels other than 0 and 1."""
    honest = (directory / name).read_bytes()
    for value in (-1, -(2**31), 2**31 - 1):
        values = np.frombuffer(honest[128:], dtype).copy()
        values[:] = value
        yield f"all {value}", _content(name, honest[:128] + values.tobytes())
