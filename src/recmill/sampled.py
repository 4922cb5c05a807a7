"""What tells a file from another of the same name and size, without reading all of it."""

import hashlib
import random
from pathlib import Path

from recmill.regular import require_regular

_PAGE_BYTES = 4 << 10
_NUM_PAGES = 16  # with the first and the last: on a cold disk a tenth of a second
_WHOLE_BYTES = 1 << 20  # is read as quickly as some pages of it


def sampled_digest(path: Path) -> str:
    """The size of a file and a hash of its content: all of a small one, else its first, its last and some other pages.

    Which pages these are depends on the size alone, so that a file keeps its digest where it is moved to or renamed.
    """
    num_bytes = require_regular(path).st_size
    found = hashlib.sha256()
    with path.open("rb") as file:
        if num_bytes <= _WHOLE_BYTES:
            found.update(file.read(_WHOLE_BYTES))
        else:
            for start in _places(num_bytes):
                file.seek(start)
                found.update(file.read(_PAGE_BYTES))
    return f"{num_bytes}.{found.hexdigest()[:24]}"


def size_of(digest: str) -> int:
    """The size that is part of a digest."""
    return int(digest.partition(".")[0])


def _places(num_bytes: int) -> list[int]:
    """Where pages begin, in their order."""
    draw = random.Random(f"sampled pages/{num_bytes}")
    drawn = draw.sample(range(1, num_bytes // _PAGE_BYTES), _NUM_PAGES - 2)
    return [0, *sorted(page * _PAGE_BYTES for page in drawn), num_bytes - _PAGE_BYTES]
