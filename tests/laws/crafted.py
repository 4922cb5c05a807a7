"""Law *hostile* by chance: any value in any file becomes another that nobody would write, and all checksums are right.

A command then ends with status 2 and a message that names the directory, or has the same result. Where the content of
an array was altered, or what a manifest says of data to train on, it may be other data, and have another result; but
no signal, traceback or hang.
"""

import json
import random
import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recmill.files import CHECKSUM, MANIFEST, checksum, write_listing
from recmill.own_files import SEAL, sealed, unsealed
from tests.laws.damage import Kind, _complaint, _used
from tests.laws.forks import Ended, ForkServer

_NUMBERS: Sequence[Any] = (-1, -(2**63), 2**31, 2**63, 2**70, 10**400, 1.5, 1e308, float("nan"), float("inf"), True)
_TEXTS: Sequence[Any] = ("", "x" * 5000, "../secret", "/etc/hostname", "\ud800", "nul\0", "a/../../secret", "7", "-1")
_OTHERS: Sequence[Any] = (None, [], {}, [[]], {"x": 1}, [None] * 1000)
_Path = tuple[str | int, ...]


def _paths(content: Any, at: _Path = ()) -> Iterator[_Path]:
    """All places in nested data."""
    yield at
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, below in items:
        yield from _paths(below, (*at, key))


def _hostile(rng: random.Random) -> Any:
    if rng.random() < 0.05:
        nested: Any = []
        for _ in range(300):
            nested = [nested]
        return nested
    return rng.choice(rng.choice((_NUMBERS, _TEXTS, _OTHERS)))


def _altered(content: Any, rng: random.Random) -> tuple[Any, str]:
    """Nested data with one lie, and what it is."""
    path = rng.choice([path for path in _paths(content) if path])
    place = content
    for key in path[:-1]:
        place = place[key]
    name, key = "/".join(map(str, path)), path[-1]
    sort = rng.choice(("replaced", "replaced", "replaced", "deleted", "renamed", "more"))
    if sort == "replaced":
        place[key] = _hostile(rng)
        return content, f"{name} = {ascii(place[key])[:60]}"
    if sort == "deleted":
        del place[key]
    elif isinstance(place, dict):
        place[rng.choice(_TEXTS)] = place.pop(key) if sort == "renamed" else _hostile(rng)
    else:
        place.append(_hostile(rng))
    return content, f"{name} {sort}"


def _lie_in_json(path: Path, rng: random.Random) -> str:
    content = json.loads(path.read_text())
    was_sealed = isinstance(content, dict) and SEAL in content
    content, told = _altered(unsealed(content) if was_sealed else content, rng)
    path.write_text(json.dumps(sealed(content) if was_sealed else content))
    return told


def _lie_in_header(path: Path, rng: random.Random) -> str:
    """Of a file of tensors."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header, told = _altered(json.loads(content[8 : 8 + size]), rng)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])
    return f"header {told}"


def _flip(path: Path, rng: random.Random) -> str:
    content = bytearray(path.read_bytes())
    if not content:
        path.write_bytes(b"x")
        return "no longer empty"
    for _ in range(rng.choice((1, 1, 8))):
        place = rng.choice((rng.randrange(len(content)), min(rng.randrange(200), len(content) - 1)))
        content[place] = rng.randrange(256)
    path.write_bytes(content)
    return "bytes altered"


def _lie_in_manifest(directory: Path, rng: random.Random) -> str:
    facts = json.loads((directory / MANIFEST).read_text())
    facts.pop("manifest_sha256", None)
    facts, told = _altered(facts, rng)
    files = facts.pop("files", {})
    write_listing(directory, files, **{key: value for key, value in facts.items() if key.isidentifier()})
    return told


def _reseal(directory: Path, path: Path) -> None:
    """State the right size and checksum of a file, where a manifest lists it."""
    facts = json.loads((directory / MANIFEST).read_text())
    facts.pop("manifest_sha256", None)
    files = facts.pop("files")
    if (name := path.relative_to(directory).as_posix()) in files:
        files[name] = {"bytes": path.stat().st_size, CHECKSUM: checksum(path)}
        write_listing(directory, files, **facts)


def craft(harmed: Path, rng: random.Random, *, is_input: bool) -> tuple[str, bool]:
    """Tell a lie in a directory; what it is, and whether it may be data as good as any."""
    path = rng.choice(sorted(each for each in harmed.rglob("*") if each.is_file() and not each.name.startswith(".")))
    home = next((parent for parent in path.parents if (parent / MANIFEST).is_file()), None)
    name, is_data = path.relative_to(harmed).as_posix(), False
    if path.name == MANIFEST:
        return f"{name}: {_lie_in_manifest(path.parent, rng)}", is_input
    if path.suffix == ".json":
        told = _lie_in_json(path, rng)
    elif path.suffix == ".safetensors" and rng.random() < 0.7:
        told = _lie_in_header(path, rng)
    else:
        told, is_data = _flip(path, rng), True
    if home is not None and home.is_relative_to(harmed):
        _reseal(home, path)
    return f"{name}: {told}", is_data


def find_believed(kind: Kind, server: ForkServer, scratch: Path, seeds: Sequence[int]) -> list[str]:
    """The lies that ended a command otherwise than allowed, of as many as there are seeds."""
    intact = [_used(use, kind.example, server, scratch)[1] for use in kind.uses]
    found, secret = list[str](), scratch / "secret"
    is_input = all(use.words[0] == "train" and "--resume" not in use.words for use in kind.uses)
    for seed in seeds:
        rng, harmed = random.Random(seed), scratch / "harmed"
        shutil.copytree(kind.example, harmed, symlinks=True)
        secret.write_text("secret")
        told, is_data = craft(harmed, rng, is_input=is_input)
        place = rng.randrange(len(kind.uses))
        ended, result = _used(kind.uses[place], harmed, server, scratch, in_place=True)
        complaint = _of_data(ended) if is_data else _complaint(ended, result, intact[place])
        if not complaint and [path.name for path in scratch.iterdir() if path.name not in ("harmed", "secret")]:
            complaint = "something was written elsewhere"
        if complaint:
            found.append(f"{kind.name}, seed {seed}, {kind.uses[place].words[0]}: {told}: {complaint}")
        shutil.rmtree(harmed)
    return found


def _of_data(ended: Ended) -> str:
    return "" if ended.status == 0 or ended.is_rejected else ended.describe()
