"""Files that recmill has written, read with suspicion: regular, bounded, UTF-8, and of the shape that is expected.

What is wrong is rejected by the name of the file and of the field. Nothing waits for a pipe or reads a device.
"""

import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recmill.errors import RunError, UserError
from recmill.regular import other_kind

MAX_BYTES = 1 << 30  # of a text file of ours; the largest list the files of many shards
MAX_DEPTH = 32
SEAL = "checksum"  # of a JSON file of ours, over all else in it
_WAY_OUT = "restore it from a copy"


class MisfitError(ValueError):
    """A value is not what is expected; the words say where it is and what is wrong."""


def read_own_bytes(path: Path, *, max_bytes: int = MAX_BYTES, error: type[UserError] = RunError) -> bytes:
    """All of a regular file; anything else of that name is rejected at once."""
    try:
        # without O_NONBLOCK, a pipe that nobody writes to would be waited for
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        what = "is a link to nothing" if path.is_symlink() else "is missing"
        raise error(f"{path} {what}; {_WAY_OUT}") from None
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror or problem}; {_WAY_OUT}") from None
    try:
        facts = os.fstat(descriptor)
        if (kind := other_kind(facts)) is not None:
            raise error(f"{path} is {kind}, and a file is expected; {_WAY_OUT}")
        if facts.st_size > max_bytes:
            raise error(f"{path} is damaged: it has {facts.st_size:,} bytes, more than any file of its kind")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(facts.st_size)
    finally:
        os.close(descriptor)


def read_own_text(path: Path, *, error: type[UserError] = RunError) -> str:
    """The same as text."""
    content = read_own_bytes(path, error=error)
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise error(f"{path} is damaged: byte {problem.start:,} is not UTF-8; {_WAY_OUT}") from None


def read_own_json(
    path: Path, shape: "Shape", *, error: type[UserError] = RunError, way_out: str = _WAY_OUT, allow_nan: bool = False
) -> Any:
    """The content of a JSON file that has this shape and, if it is sealed, agrees with its checksum."""
    text = read_own_text(path, error=error)
    try:
        content = parse_json(text, allow_nan=allow_nan)
        _check_seal(content)
        shape.check(content, "")
    except MisfitError as problem:
        raise error(f"{path} is damaged: {problem}; {way_out}") from None
    return content


def read_own_toml(path: Path, *, error: type[UserError] = RunError) -> dict[str, Any]:
    """The nested content of a TOML file."""
    return parse_toml(read_own_text(path, error=error), path, error=error)


def parse_toml(text: str, path: Path, *, error: type[UserError] = RunError) -> dict[str, Any]:
    """The same of a text that was read from a path."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise error(f"{path} is damaged: it is not TOML: {_first_line(problem)}; {_WAY_OUT}") from None


def parse_json(text: str, *, allow_nan: bool = False) -> Any:
    """JSON without duplicate keys, numbers that are none, half characters and deep nesting."""
    refuse = None if allow_nan else _refuse_constant
    try:
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=refuse)
    except MisfitError:
        raise
    except RecursionError:
        raise MisfitError("it is nested too deeply") from None
    except ValueError as problem:
        raise MisfitError(f"it is not JSON: {_first_line(problem)}") from None
    _refuse_depth(content)
    return content


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a JSON file with a checksum over it, so that a flipped digit is noticed."""
    facts = unsealed(content)
    return {**facts, SEAL: _digest(facts)}


def unsealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content without the checksum."""
    return {key: value for key, value in content.items() if key != SEAL}


def _check_seal(content: Any) -> None:
    if isinstance(content, dict) and SEAL in content and content[SEAL] != _digest(unsealed(content)):
        raise MisfitError("it is not what its own checksum says")


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0][:200]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise MisfitError(f"{twice!r} is there twice")
    return found


def _refuse_constant(name: str) -> None:
    raise MisfitError(f"{name} is not a number")


def _refuse_depth(content: Any) -> None:
    level = [content]
    for _ in range(MAX_DEPTH):
        below = list[Any]()
        for each in level:
            if isinstance(each, dict):
                below += [*each, *each.values()]
            elif isinstance(each, list):
                below += each
            elif isinstance(each, str) and not each.isascii():
                _refuse_surrogates(each)
        if not below:
            return
        level = below
    raise MisfitError("it is nested too deeply")


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MisfitError(f"{ascii(text)[:80]} holds half a character") from None


@dataclass(frozen=True)
class Shape:
    """What a value has to be: a test, and words for it."""

    words: str
    fits: Callable[[Any], bool]

    def check(self, value: Any, where: str) -> None:
        """Complain about another value, by its place."""
        if not self.fits(value):
            raise MisfitError(f"{where or 'its content'} = {ascii(value)[:80]} is not {self.words}")


ANYTHING = Shape("anything", lambda _value: True)


@dataclass(frozen=True)
class OrNull(Shape):
    """The same, or null."""

    words: str = ""
    fits: Callable[[Any], bool] = bool
    of: Shape = ANYTHING

    def check(self, value: Any, where: str) -> None:
        """Complain about another value, by its place."""
        if value is not None:
            self.of.check(value, where)


@dataclass(frozen=True)
class ListOf(Shape):
    """Values of one shape in a list, of so many if that is known."""

    words: str = "a list"
    fits: Callable[[Any], bool] = field(default=lambda value: isinstance(value, list))
    of: Shape = ANYTHING
    length: int | None = None

    def check(self, value: Any, where: str) -> None:
        """Complain about another value, by its place."""
        super().check(value, where)
        if self.length is not None and len(value) != self.length:
            raise MisfitError(f"{where} has {len(value)} values, expected {self.length}")
        for place, each in enumerate(value):
            self.of.check(each, f"{where}[{place}]")


@dataclass(frozen=True)
class Table(Shape):
    """A JSON object: fields that it has, those that it may have, and what others are, if they are allowed."""

    words: str = "a table"
    fits: Callable[[Any], bool] = field(default=lambda value: isinstance(value, dict))
    fields: Mapping[str, Shape] = field(default_factory=dict)
    optional: Mapping[str, Shape] = field(default_factory=dict)
    others: Shape | None = None
    names: Shape | None = None

    def check(self, value: Any, where: str) -> None:
        """Complain about another value, by its place."""
        super().check(value, where)
        for name in self.fields.keys() - value.keys():
            raise MisfitError(f"{_inside(where, name)} is missing")
        for name, each in value.items():
            shape = self.fields.get(name) or self.optional.get(name) or self.others
            if shape is None:
                raise MisfitError(f"{_inside(where, name)} is not a field of such a file")
            if self.names is not None:
                self.names.check(name, f"a name in {where or 'it'}")
            shape.check(each, _inside(where, name))


def _inside(where: str, name: str) -> str:
    shown = name if name.isprintable() and len(name) < 200 else ascii(name)[:80]
    return f"{where}.{shown}" if where else shown


def whole(least: int = 0, most: int = (1 << 62)) -> Shape:
    """A whole number in a range."""
    words = f"a whole number from {least:,} to {most:,}"
    return Shape(words, lambda value: type(value) is int and least <= value <= most)


def number(least: float = -math.inf) -> Shape:
    """A finite number, at least so large."""
    words = "a finite number" + (f" of at least {least:g}" if math.isfinite(least) else "")
    return Shape(words, lambda value: type(value) in (int, float) and _is_finite(value) and value >= least)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def one_of(*choices: str) -> Shape:
    """One of some texts."""
    return Shape(f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices)


def is_inside(name: Any) -> bool:
    """Whether a text is the relative path of something inside a directory."""
    if not isinstance(name, str) or not name or "\0" in name or "\\" in name:
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))


TEXT = Shape("a text", lambda value: isinstance(value, str))
FLAG = Shape("true or false", lambda value: isinstance(value, bool))
INSIDE = Shape("the path of a file inside the directory", is_inside)
HEX = Shape("a checksum", lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{1,128}", value)))
