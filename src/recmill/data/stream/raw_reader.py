"""Raw rows of any format to encoded columns, and the choice of the reader that a schema asks for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from recmill.data.batch import Columns, empty_columns
from recmill.data.encode.encoder import RowEncoder, build_encoder, encode_rows
from recmill.data.encode.vocabulary import Vocabulary
from recmill.data.logs.bad_rows import SHOWN, BadPlace
from recmill.data.logs.formats import FORMATS
from recmill.data.logs.raw_format import RawChunk, RawSegment, complain, empty_raw
from recmill.data.stream.block import Block, LogReader, MarkedBlock
from recmill.data.stream.text_reader import TextReader
from recmill.data.text.fields import RawColumns
from recmill.errors import BadRowError
from recmill.settings.columns import Format, Schema
from recmill.settings.data import BadRowPolicy
from recmill.settings.encoding import Encoding


@dataclass(frozen=True)
class RawReader:
    """Reads segments of any format: first all raw columns, then their encoding; may be shared by threads."""

    schema: Schema
    encoding: Encoding
    table_rows: tuple[int, ...]
    bad_rows: BadRowPolicy = "fail"
    vocabulary: Vocabulary | None = None
    encoder: RowEncoder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        encoder = build_encoder(self.schema, self.encoding, self.table_rows, self.vocabulary)
        object.__setattr__(self, "encoder", encoder)

    def compile(self) -> None:
        """Have the kernels compiled, or loaded from their cache, now rather than while someone waits for rows."""
        FORMATS[self.schema.format].compile(self.schema)
        self._encode(empty_raw(0, self.schema), self.room_for(0), 0)

    def room_for(self, num_rows: int) -> Columns:
        """Columns of this schema, not yet filled."""
        return empty_columns(num_rows, len(self.schema.dense_names), self.schema.num_slots, self.schema.has_weight)

    def read(self, segments: Sequence[RawSegment]) -> Block:
        """The rows of some segments, in their order."""
        num_rows = sum(segment.count_rows() for segment in segments)
        room, row, first = self.room_for(num_rows), 0, list[BadPlace]()
        for segment in segments:
            chunk = self._read_good(segment)
            self._encode(chunk.raw, room, row)
            row += len(chunk.raw.labels)
            first += [BadPlace(segment.source, segment.start, before, bad) for before, bad in chunk.bad]
        return Block(room.rows(0, row), num_rows - row, tuple(first[:SHOWN]))

    def _read_good(self, segment: RawSegment) -> RawChunk:
        must_be_good = self.bad_rows == "fail"
        chunk = FORMATS[self.schema.format].read(segment, self.schema, max_bad=1 if must_be_good else SHOWN)
        if must_be_good and chunk.bad:
            place, bad = chunk.bad[0]
            raise BadRowError(complain(segment.source, segment.source.line_number(segment.start) + place, bad))
        return chunk

    def _encode(self, raw: RawColumns, out: Columns, row: int) -> None:
        by_row = raw._replace(numbers=np.ascontiguousarray(raw.numbers), values=np.ascontiguousarray(raw.values))
        encode_rows(by_row, len(raw.labels), self.encoder, out, row)

    def read_marked(self, segment: RawSegment) -> MarkedBlock:
        """The rows of a segment, and all of its bad ones with their places and what is wrong with them."""
        chunk = FORMATS[self.schema.format].read(segment, self.schema, max_bad=None)
        room = self.room_for(len(chunk.raw.labels))
        self._encode(chunk.raw, room, 0)
        return MarkedBlock(room, chunk.num_lines, tuple((place, bad.describe()) for place, bad in chunk.bad))


# Formats whose rows are parsed and encoded in one pass, which is faster; any other one is read by a RawReader.
FUSED: dict[Format, type[TextReader]] = {"text": TextReader}


def build_reader(
    schema: Schema,
    encoding: Encoding,
    table_rows: tuple[int, ...],
    bad_rows: BadRowPolicy = "fail",
    vocabulary: Vocabulary | None = None,
) -> LogReader:
    """The reader of the format that the schema is for."""
    kind = FUSED.get(schema.format, RawReader)
    return kind(schema, encoding, table_rows, bad_rows, vocabulary)
