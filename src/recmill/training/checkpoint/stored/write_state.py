"""A new saved state from an old one: files that stay, segments that are written anew, and a manifest last."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from recmill.embeddings.store.kind import StoreKind
from recmill.embeddings.store.log import Records, SegmentLog, link_or_copy
from recmill.embeddings.store.segment import SegmentFile, SegmentWriter
from recmill.files import CHECKSUM, write_listing
from recmill.training.checkpoint.reshard import identity_of
from recmill.training.checkpoint.saved_state import SavedState


class SegmentsWriter:
    """Appends records to segments in a directory, numbered from a first one on."""

    def __init__(self, directory: Path, kind: StoreKind, first_number: int) -> None:
        self._directory, self._kind, self._next_number = directory, kind, first_number
        sizes = SegmentLog(kind.layout, num_rows=kind.num_rows, store_key=kind.store_key)
        self._segment_records = sizes.segment_records
        sizes.close()
        self._open: SegmentWriter | None = None
        self.files = list[SegmentFile]()  # those that are finished

    def append(self, records: Records) -> None:
        """Take all of them."""
        done = 0
        while done < len(records.rows):
            writer = self._writer()
            part = slice(done, done + min(writer.room, len(records.rows) - done))
            writer.append(records.rows[part], records.steps[part], records.arena, records.slots[part])
            done = part.stop
            if not writer.room:
                self.finish()

    def _writer(self) -> SegmentWriter:
        if self._open is None:
            kind, number = self._kind, self._next_number
            self._open = SegmentWriter(self._directory, number, kind.layout, kind.store_key, self._segment_records)
            self._next_number += 1
        return self._open

    def finish(self) -> None:
        """Have all on the disk."""
        if self._open is not None:
            writer, self._open = self._open, None
            try:
                self.files.append(writer.finish())
            finally:
                os.close(writer.descriptor)

    def close(self) -> None:
        """Let go of what was not finished."""
        if self._open is not None:
            os.close(self._open.descriptor)
            self._open = None


def keep_files(state: SavedState, scratch: Path, left_out: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Link, or copy to another file system, the files of a state but some; what its manifest says of them."""
    kept = {name: facts for name, facts in state.manifest["files"].items() if name not in left_out}
    for name in kept:
        link_or_copy(state.directory / name, scratch / name)
    return kept


def finish_state(
    state: SavedState, scratch: Path, kept: dict[str, dict[str, Any]], written: Collection[SegmentFile]
) -> None:
    """Write the manifest of a state that is as another one, but for these segments."""
    listed = {file.path.name: {"bytes": file.num_bytes, CHECKSUM: file.digest} for file in written}
    write_listing(scratch, {**kept, **listed}, kind=state.kind, step=state.step, **identity_of(state.manifest))
