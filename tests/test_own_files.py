import json
import os
from pathlib import Path
from typing import Any

import pytest

from recmill.errors import DataError, RunError
from recmill.own_files import (
    ANYTHING,
    FLAG,
    HEX,
    INSIDE,
    TEXT,
    ListOf,
    MisfitError,
    OrNull,
    Shape,
    Table,
    number,
    one_of,
    parse_json,
    read_own_bytes,
    read_own_json,
    read_own_text,
    read_own_toml,
    sealed,
    unsealed,
    whole,
)

POINT = Table(fields={"x": number(), "tags": ListOf(of=TEXT, length=2)}, optional={"note": OrNull(of=TEXT)})


def test_what_is_no_file_is_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    with pytest.raises(RunError, match=r"own\.json is missing"):
        read_own_bytes(path)
    os.mkfifo(path)
    with pytest.raises(RunError, match=r"own\.json is a named pipe, and a file is expected"):
        read_own_bytes(path)
    for target, words in {"nowhere": "a link to nothing", "/dev/zero": "a device", ".": "a directory"}.items():
        path.unlink()
        path.symlink_to(target)
        with pytest.raises(DataError, match=f"is {words}"):
            read_own_bytes(path, error=DataError)
    path.unlink()
    path.symlink_to(path.name)
    with pytest.raises(RunError, match="cannot be read: Too many levels"):
        read_own_bytes(path)


def test_sizes_and_characters_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_bytes(b"abc\xff")
    assert read_own_bytes(path) == b"abc\xff"
    with pytest.raises(RunError, match="it has 4 bytes, more than"):
        read_own_bytes(path, max_bytes=3)
    with pytest.raises(RunError, match="byte 3 is not UTF-8"):
        read_own_text(path)


def test_toml_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("a = [1]\n")
    assert read_own_toml(path) == {"a": [1]}
    for text in ("a = ", "a = 1\na = 2", "a = " + "[" * 5000):
        path.write_text(text)
        with pytest.raises(RunError, match=r"own\.toml is damaged: it is not TOML"):
            read_own_toml(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1", "not JSON"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ("[" * 40 + "]" * 40, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('["\\ud800"]', "half a character"),
        ('{"\\udfff": 1}', "half a character"),
        ("1" * 5000, "not JSON"),
    ],
)
def test_json_that_lies_is_rejected(text: str, words: str) -> None:
    with pytest.raises(MisfitError, match=words):
        parse_json(text)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], r"its content = \[\] is not a table"),
        ({"x": 1.0}, "tags is missing"),
        ({"x": True, "tags": ["a", "b"]}, "x = True is not a finite number"),
        ({"x": 1e999, "tags": ["a", "b"]}, "Infinity is not a number"),
        ({"x": 1, "tags": ["a"]}, "tags has 1 values, expected 2"),
        ({"x": 1, "tags": ["a", 2]}, r"tags\[1\] = 2 is not a text"),
        ({"x": 1, "tags": ["a", "b"], "more": 1}, "more is not a field of such a file"),
        ({"x": 1, "tags": ["a", "b"], "note": 3}, "note = 3 is not a text"),
    ],
)
def test_a_misfit_is_named_by_file_and_field(content: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match=rf"own\.json is damaged: {words}"):
        read_own_json(path, POINT)
    path.write_text(json.dumps({"x": 1, "tags": ["a", "b"], "note": None}))
    assert read_own_json(path, POINT)["x"] == 1


def test_shapes_know_their_values() -> None:
    fits: dict[Shape, tuple[list[Any], list[Any]]] = {
        whole(0, 5): ([0, 5], [-1, 6, 1.0, True, "1", None]),
        number(0): ([0, 1.5], [-0.1, float("nan"), float("inf"), False, 10**400]),
        one_of("a", "b"): (["a"], ["c", ["a"], None]),
        INSIDE: (["a", "a/b.json", "..a"], ["", "/a", "../a", "a/../b", "a//b", "./a", "a\0", "a\\b", 3]),
        HEX: (["00ff"], ["", "0G", "0" * 129, 3, "00\n"]),
        FLAG: ([True], [1, None]),
        ANYTHING: ([None], []),
    }
    for shape, (good, bad) in fits.items():
        for value in good:
            shape.check(value, "it")
        for value in bad:
            with pytest.raises(MisfitError, match="it = "):
                shape.check(value, "it")


def test_names_of_a_table_are_checked() -> None:
    files = Table(others=ANYTHING, names=INSIDE)
    files.check({"a": 1}, "files")
    with pytest.raises(MisfitError, match=r"a name in files = '\.\./a'"):
        files.check({"../a": 1}, "files")


def test_a_seal_notices_another_digit(tmp_path: Path) -> None:
    path, content = tmp_path / "own.json", sealed({"a": 1.25, "b": [None, "é"]})
    assert unsealed(content) == {"a": 1.25, "b": [None, "é"]}
    path.write_text(json.dumps(content, indent=1))
    assert read_own_json(path, Table(others=ANYTHING)) == content
    path.write_text(path.read_text().replace("1.25", "1.35"))
    with pytest.raises(RunError, match="not what its own checksum says"):
        read_own_json(path, Table(others=ANYTHING))
