"""Text segments to encoded columns: parse and encode in one pass, a few hundred rows at a time."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns, empty_columns
from recmill.data.encode.encoder import RowEncoder, build_encoder, encode_rows
from recmill.data.encode.vocabulary import Vocabulary
from recmill.data.logs.bad_rows import SHOWN, BadPlace
from recmill.data.logs.raw_format import complain
from recmill.data.logs.text_file import Segment
from recmill.data.logs.text_format import Reject, RowSink, put_row, read_lines
from recmill.data.stream.block import Block, MarkedBlock
from recmill.data.text.fields import Workspace
from recmill.data.text.kernel import FULL, WORKSPACE_ROWS, Layout, count_lines, new_workspace, parse_rows
from recmill.data.text.layout import layout_of
from recmill.data.text.reference import BadRow, Row
from recmill.errors import BadRowError
from recmill.jit import njit
from recmill.settings.columns import Schema
from recmill.settings.data import BadRowPolicy
from recmill.settings.encoding import Encoding


class Plans(NamedTuple):
    """All that turns text into encoded columns."""

    layout: Layout
    encoder: RowEncoder


@njit(nogil=True, cache=True)
def _read_range(
    buffer: NDArray[np.uint8], start: int, stop: int, plans: Plans, work: Workspace, out: Columns, first_row: int
) -> tuple[int, int, int]:
    """Fill `out` from `first_row` on: the row reached, where the next line begins, and why it stopped there."""
    at, row, status = start, first_row, FULL
    while status == FULL:
        count, at, status = parse_rows(buffer, at, stop, plans.layout, work)
        encode_rows(work.raw, count, plans.encoder, out, row)
        row += count
    return row, at, status


@dataclass(frozen=True)
class TextReader:
    """Reads segments of text files; may be shared by threads."""

    schema: Schema
    encoding: Encoding
    table_rows: tuple[int, ...]
    bad_rows: BadRowPolicy = "fail"
    vocabulary: Vocabulary | None = None
    plans: Plans = field(init=False, repr=False)
    _widths: tuple[int, int, bool] = field(init=False, repr=False, compare=False)
    _of_thread: threading.local = field(init=False, repr=False, compare=False, default_factory=threading.local)

    def __post_init__(self) -> None:
        encoder = build_encoder(self.schema, self.encoding, self.table_rows, self.vocabulary)
        object.__setattr__(self, "plans", Plans(layout_of(self.schema), encoder))
        object.__setattr__(
            self, "_widths", (len(self.schema.dense_names), self.schema.num_slots, self.schema.has_weight)
        )

    def compile(self) -> None:
        """Have the kernels compiled, or loaded from their cache, now rather than while someone waits for rows."""
        nothing = np.frombuffer(b"", np.uint8)  # read-only, as the bytes of a mapped file are
        count_lines(nothing, 0, 0)
        _read_range(nothing, 0, 0, self.plans, self._workspace(1), self.room_for(0), 0)

    def room_for(self, num_rows: int) -> Columns:
        """Columns of this schema, not yet filled."""
        return empty_columns(num_rows, *self._widths)

    def read(self, segments: Sequence[Segment]) -> Block:
        """The rows of some segments, in their order."""
        room = self.room_for(sum(segment.count_rows() for segment in segments))
        row, num_skipped, first = 0, 0, list[BadPlace]()
        for segment in segments:
            row, skipped = self.read_into(segment, room, row, first)
            num_skipped += skipped
        return Block(room.rows(0, row), num_skipped, tuple(first))

    def read_into(
        self, segment: Segment, out: Columns, row: int, first: list[BadPlace] | None = None
    ) -> tuple[int, int]:
        """Fill `out` from `row` on; the row reached and the number of lines that were ignored, the first noted."""

        def reject(bad: BadRow, _line: int, at: int) -> None:
            if self.bad_rows == "fail":
                raise BadRowError(complain(segment.source, segment.source.line_number(at), bad))
            if first is not None and len(first) < SHOWN:
                first.append(BadPlace(segment.source, at, 0, bad))

        return self._read_lines(segment, out, row, reject)

    def read_marked(self, segment: Segment) -> MarkedBlock:
        """The rows of a segment, and all of its bad lines with their places and what is wrong with them."""
        room, bad = self.room_for(segment.count_rows()), list[tuple[int, str]]()
        row, num_bad = self._read_lines(segment, room, 0, lambda found, line, _at: bad.append((line, found.describe())))
        return MarkedBlock(room.rows(0, row), row + num_bad, tuple(bad))

    def _read_lines(self, segment: Segment, out: Columns, first_row: int, reject: Reject) -> tuple[int, int]:
        buffer, work = segment.source.buffer, self._workspace_of_thread()
        plans = Plans(self.plans.layout._replace(has_breaks=segment.source.has_breaks), self.plans.encoder)

        def fill(start: int, stop: int, row: int) -> tuple[int, int, int]:
            reached: tuple[int, int, int] = _read_range(buffer, start, stop, plans, work, out, row)
            return reached

        def put(found: Row, row: int) -> None:
            raw = self._workspace(1).raw
            put_row(found, raw, 0)
            encode_rows(raw, 1, plans.encoder, out, row)

        return read_lines(segment, self.schema, RowSink(fill, put, reject), first_row)

    def _workspace_of_thread(self) -> Workspace:
        """What every thread keeps from one segment to the next."""
        if not hasattr(self._of_thread, "workspace"):
            self._of_thread.workspace = self._workspace(WORKSPACE_ROWS, quoted=self.schema.quoted)
        workspace: Workspace = self._of_thread.workspace
        return workspace

    def _workspace(self, num_rows: int, *, quoted: bool = False) -> Workspace:
        num_dense, num_slots, has_weight = self._widths
        num_fields = len(self.schema.fields)
        return new_workspace(num_rows, num_dense, num_slots, num_fields, quoted=quoted, has_weight=has_weight)


def read_all(reader: TextReader, segments: Sequence[Segment], *, threads: int, chunk_bytes: int = 4 << 20) -> Block:
    """All rows of some segments in one piece of memory, parsed by several threads."""
    chunks = [chunk for segment in segments for chunk in segment.cut(chunk_bytes)]
    with ThreadPoolExecutor(threads) as pool:
        counts = list(pool.map(Segment.count_rows, chunks))
        first_rows = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).tolist()
        room = reader.room_for(first_rows[-1])
        ends = list(pool.map(lambda chunk, first: reader.read_into(chunk, room, first), chunks, first_rows[:-1]))
    num_skipped = sum(skipped for _, skipped in ends)
    if num_skipped == 0:
        return Block(room)
    kept = np.concatenate([np.arange(first, end) for first, (end, _) in zip(first_rows[:-1], ends, strict=True)])
    return Block(room.take(kept), num_skipped)
