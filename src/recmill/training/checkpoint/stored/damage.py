"""What is wrong with a saved state whose rows lie in files, to the byte: every checksum there is, compared."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recmill.embeddings.store.kind import STORE, StoreKind
from recmill.embeddings.store.layout import find_damaged
from recmill.embeddings.store.segment import SUFFIX, number_of, read_footer
from recmill.errors import RunError
from recmill.files import MANIFEST, find_damage, has_own_checksum, read_listing
from recmill.training.checkpoint.saved_rows import read_kind
from recmill.training.checkpoint.stored.open_store import stored_state

_BLOCKS_AT_ONCE = 256
_MOST_TOLD = 10  # damaged blocks of a file


def verify_store(path: Path) -> dict[str, Any]:
    """Plain data: the directory, what is wrong with it, and how much was looked at."""
    directory = stored_state(path).directory
    damage, counts = list[str](), {"segments": 0, "blocks": 0, "records": 0}
    manifest = read_listing(directory)
    damage += find_damage(directory, manifest)
    if not has_own_checksum(manifest):
        damage.append(f"{directory / MANIFEST} has no checksum of its own: it is damaged")
    if STORE not in manifest["files"]:
        damage.append(f"{directory / STORE} is not listed in {MANIFEST}")
    try:
        kind = read_kind(directory)
    except RunError as error:
        return {"path": str(directory), "intact": False, "damage": _distinct([*damage, str(error)]), **counts}
    listed = {name for name in manifest["files"] if name.endswith(SUFFIX)}
    strays = {each.name for each in directory.glob(f"*{SUFFIX}")} - listed
    damage += [f"{directory / name} is not listed in {MANIFEST}; it does not belong here" for name in sorted(strays)]
    for name in sorted(listed):
        if (directory / name).is_file():
            damage += _damage_of(directory / name, kind, counts)
    return {"path": str(directory), "intact": not damage, "damage": _distinct(damage), **counts}


def _distinct(complaints: list[str]) -> list[str]:
    return list(dict.fromkeys(complaints))


def _damage_of(path: Path, kind: StoreKind, counts: dict[str, int]) -> Iterator[str]:
    """What is wrong with a segment; what has been looked at is counted."""
    counts["segments"] += 1
    try:
        footer = read_footer(path, kind.layout, kind.store_key)
    except (RunError, OSError) as error:
        yield str(error)
        return
    outside = np.flatnonzero((footer.rows < 0) | (footer.rows >= kind.num_rows))
    if len(outside):
        at = kind.layout.num_blocks(len(footer.rows)) * kind.layout.block_bytes + 8 * int(outside[0])
        yield (
            f"{path} is damaged at byte {at:,}: it has row {footer.rows[outside[0]]:,}, and the tables have "
            f"{kind.num_rows:,} rows"
        )
    num_blocks = kind.layout.num_blocks(len(footer.rows))
    counts["blocks"] += num_blocks
    counts["records"] += len(footer.rows)
    bad = _damaged_blocks(path, num_blocks, kind)
    for block in bad[:_MOST_TOLD]:
        yield f"{path} is damaged: the checksum of the block at byte {block * kind.layout.block_bytes:,} differs"
    if len(bad) > _MOST_TOLD:
        yield f"{path} is damaged: {len(bad) - _MOST_TOLD:,} more blocks of {num_blocks:,} differ"


def _damaged_blocks(path: Path, num_blocks: int, kind: StoreKind) -> list[int]:
    """The numbers of the blocks of a segment that are not what their checksums say."""
    found, block_bytes, number = list[int](), kind.layout.block_bytes, number_of(path.name)
    with path.open("rb") as file:
        for first in range(0, num_blocks, _BLOCKS_AT_ONCE):
            count = min(_BLOCKS_AT_ONCE, num_blocks - first)
            words = np.frombuffer(file.read(count * block_bytes), np.uint64).reshape(count, -1)
            at = 0
            while at < count:
                places = first + np.arange(at, count)
                numbers = np.full(len(places), number)
                bad = find_damaged(words[at:], np.uint64(kind.store_key), numbers, places)
                if bad < 0:
                    break
                found.append(first + at + bad)
                at += bad + 1
    return found
