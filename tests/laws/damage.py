"""Law *damage*: a file that was altered behind our back is noticed by name, or has no effect on the result.

A `Kind` is a sort of directory that recmill writes, with the commands that read it and what comes of them. A `Harm` is
done to one file of a copy. Afterwards each command either ends with status 2 and a message that names the file or its
directory, or has the same result as on the intact directory. Nothing else is allowed: no signal, traceback, hang,
internal error or other result.
"""

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recmill.embeddings.store.kind import STORE
from recmill.embeddings.store.segment import SUFFIX
from recmill.errors import RunError
from recmill.files import MANIFEST
from recmill.training.checkpoint.saved_rows import open_stored
from tests.laws.forks import Ended, ForkServer

# what differs between runs of the same command: times, process ids, paths
_NOT_RESULTS = {
    "environment.json",
    "metrics.jsonl",
    "tensorboard",
    "config.toml",
    "checkpoints",
    "best",
    "results.json",
}


@dataclass(frozen=True)
class Use:
    """A command that reads a directory: its words, with {dir} and {out} in them, and whether it writes into {dir}."""

    words: tuple[str, ...]
    out: str = "{out}"  # where its result is; "" if it prints it

    def run(self, server: ForkServer, directory: Path, out: Path) -> tuple[Ended, str]:
        """How it ended, and a digest of its result."""
        ended = server.run(*(word.format(dir=directory, out=out) for word in self.words))
        where = self.out.format(dir=directory, out=out)
        return ended, digest_of(Path(where)) if where else hashlib.sha256(ended.out.encode()).hexdigest()


@dataclass(frozen=True)
class Kind:
    """A sort of directory, an intact example, and what reads it."""

    name: str
    example: Path
    uses: tuple[Use, ...]
    other: Path  # one of the same shape that holds something else


def digest_of(path: Path) -> str:
    """Of a file, or of all files of a directory that are results; of files of rows, the rows."""
    found = hashlib.sha256()
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    stores = {each.parent for each in files if each.name == STORE}
    for each in files:
        parts = each.relative_to(path).parts
        if any(part in _NOT_RESULTS or part.startswith(".") for part in parts):
            continue
        if each.name == STORE:
            found.update(_rows_in(each.parent))
        elif each.parent not in stores or not (each.name == MANIFEST or each.suffix == SUFFIX):
            found.update(f"{'/'.join(parts)}\0".encode())
            found.update(each.read_bytes())
    return found.hexdigest()


def _rows_in(directory: Path) -> bytes:
    """All rows of a saved state; in which files they lie depends on when it was saved before."""
    try:
        stored = open_stored(directory)
        try:
            rows = stored.read(np.arange(stored.kind.num_rows))
        finally:
            stored.close()
    except (RunError, OSError) as error:
        return f"not to be read: {error}".encode()
    return rows.weights.tobytes() + rows.state.tobytes()


Harm = Callable[[Path, Kind, random.Random], str]


def flip(path: Path, _kind: Kind, rng: random.Random) -> str:
    """Another bit in one byte, at any place or near an end, where structure is."""
    content = bytearray(path.read_bytes())
    if not content:
        return truncate(path, _kind, rng)
    place = rng.choice([rng.randrange(len(content)), min(rng.randrange(256), len(content) - 1)])
    place = len(content) - 1 - place if rng.random() < 0.2 else place
    content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return f"byte {place} of {len(content)} flipped"


def scramble(path: Path, _kind: Kind, rng: random.Random) -> str:
    """A few bytes in a row become any others."""
    content = bytearray(path.read_bytes())
    start, length = rng.randrange(len(content) + 1), rng.choice([2, 8, 64])
    content[start : start + length] = rng.randbytes(length)
    path.write_bytes(content)
    return f"{length} bytes from {start} on replaced"


def truncate(path: Path, _kind: Kind, rng: random.Random) -> str:
    """Shorter, or longer."""
    size = path.stat().st_size
    wanted = rng.choice([0, size // 2, max(0, size - 1), size + 1, size + 4096])
    os.truncate(path, wanted)
    return f"{size} bytes became {wanted}"


def delete(path: Path, _kind: Kind, _rng: random.Random) -> str:
    """No such file."""
    path.unlink()
    return "deleted"


def swap(path: Path, _kind: Kind, rng: random.Random) -> str:
    """The content of a neighbour, and the other way round."""
    others = [each for each in path.parent.iterdir() if each.is_file() and each != path]
    if not others:
        return delete(path, _kind, rng)
    other = rng.choice(sorted(others))
    mine, its = path.read_bytes(), other.read_bytes()
    path.write_bytes(its)
    other.write_bytes(mine)
    return f"swapped with {other.name}"


def replace_by_directory(path: Path, _kind: Kind, _rng: random.Random) -> str:
    """A directory of its name."""
    path.unlink()
    path.mkdir()
    return "replaced by a directory"


def replace_by_pipe(path: Path, _kind: Kind, _rng: random.Random) -> str:
    """A named pipe that nobody writes to."""
    path.unlink()
    os.mkfifo(path)
    return "replaced by a pipe"


def replace_by_link(path: Path, _kind: Kind, rng: random.Random) -> str:
    """A link to nothing, to itself, to an endless file, or to a directory."""
    path.unlink()
    target = rng.choice(["nowhere", path.name, "/dev/zero", "."])
    path.symlink_to(target)
    return f"replaced by a link to {target}"


def replace_by_other(path: Path, kind: Kind, rng: random.Random) -> str:
    """The file of the same name of another directory of this kind."""
    root = next(parent for parent in path.parents if parent.name == "harmed")
    other = kind.other / path.relative_to(root)
    if not other.is_file():
        return delete(path, kind, rng)
    shutil.copyfile(other, path)
    return "replaced by that of another one"


HARMS: Sequence[Harm] = (
    *(flip, flip, flip, flip, scramble, scramble, truncate, delete, swap),
    *(replace_by_directory, replace_by_pipe, replace_by_link, replace_by_other),
)


def find_violations(kind: Kind, server: ForkServer, scratch: Path, seeds: Sequence[int]) -> list[str]:
    """What went wrong in as many cases as there are seeds."""
    intact = [_used(use, kind.example, server, scratch)[1] for use in kind.uses]
    found = list[str]()
    for number, seed in enumerate(seeds):
        tell_progress(f"damage, {kind.name}: {number:,} of {len(seeds):,} cases, {len(found)} violations", number)
        rng = random.Random(seed)
        harmed = scratch / "harmed"
        shutil.copytree(kind.example, harmed, symlinks=True)
        path = rng.choice(sorted(each for each in harmed.rglob("*") if each.is_file()))
        what = rng.choice(HARMS)(path, kind, rng)
        place = rng.randrange(len(kind.uses))
        ended, result = _used(kind.uses[place], harmed, server, scratch, in_place=True)
        if complaint := _complaint(ended, result, intact[place]):
            name = path.relative_to(harmed)
            found.append(f"{kind.name}, seed {seed}, {kind.uses[place].words[0]}: {name} {what}: {complaint}")
        shutil.rmtree(harmed)
    return found


def tell_progress(line: str, number: int, every: int = 100) -> None:
    """Add a line now and then to the file that RECMILL_PROGRESS names: pytest keeps what is printed to itself."""
    if (place := os.environ.get("RECMILL_PROGRESS")) and number % every == 0:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def _used(use: Use, directory: Path, server: ForkServer, scratch: Path, *, in_place: bool = False) -> tuple[Ended, str]:
    """On the directory or, so that it stays as it is, on a copy."""
    where, out = scratch / "harmed", scratch / "out"
    if not in_place:
        shutil.copytree(directory, where, symlinks=True)
    try:
        ended, result = use.run(server, where, out)
        if not in_place and ended.status != 0:
            raise RuntimeError(f"{use.words} on an intact directory: {ended.describe()}")
        return ended, result
    finally:
        shutil.rmtree(out, ignore_errors=True)
        out.with_suffix(".csv").unlink(missing_ok=True)
        if not in_place:
            shutil.rmtree(where)


def _complaint(ended: Ended, result: str, intact: str) -> str:
    if ended.status == 0:
        return "" if result == intact else "another result, and status 0"
    if not ended.is_rejected:
        return ended.describe()
    return "" if "harmed" in ended.err else f"rejected without naming the file: {ended.describe()}"
