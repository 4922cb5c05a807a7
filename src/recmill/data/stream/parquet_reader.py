"""Raw Parquet rows to encoded columns, and the choice of the reader that a schema asks for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from recmill.data.batch import Columns, empty_columns
from recmill.data.encode.encoder import RowEncoder, build_encoder, encode_rows
from recmill.data.encode.vocabulary import Vocabulary
from recmill.data.logs.parquet_file import ParquetSegment
from recmill.data.stream.text_reader import Block, TextReader, complain
from recmill.data.text.cells import compile_cells
from recmill.data.text.fields import RawColumns
from recmill.errors import BadRowError
from recmill.settings.columns import Schema
from recmill.settings.data import BadRowPolicy
from recmill.settings.encoding import Encoding


@dataclass(frozen=True)
class ParquetReader:
    """Reads segments of Parquet files; may be shared by threads."""

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
        compile_cells()
        shapes = (0, len(self.schema.dense_names)), (0, self.schema.num_slots)
        nothing = RawColumns(np.empty(0, np.float32), np.empty(shapes[0]), np.empty(shapes[1], np.uint64))
        encode_rows(nothing, 0, self.encoder, self.room_for(0), 0)

    def room_for(self, num_rows: int) -> Columns:
        """Columns of this schema, not yet filled."""
        return empty_columns(num_rows, len(self.schema.dense_names), self.schema.num_slots)

    def read(self, segments: Sequence[ParquetSegment]) -> Block:
        """The rows of some segments, in their order."""
        num_rows = sum(segment.extent for segment in segments)
        room, row = self.room_for(num_rows), 0
        for segment in segments:
            raw = self._read_good(segment)
            encode_rows(raw, len(raw.labels), self.encoder, room, row)
            row += len(raw.labels)
        return Block(room.rows(0, row), num_rows - row)

    def _read_good(self, segment: ParquetSegment) -> RawColumns:
        source, rows = segment.source, segment.source.read(segment.start, segment.stop)
        if self.bad_rows == "fail" and rows.flaws.any():
            first = int(np.flatnonzero(rows.flaws)[0])
            bad = source.describe(segment.start + first, int(rows.flaws[first]))
            raise BadRowError(complain(source, source.line_number(segment.start + first), bad))
        return rows.without_bad()


def build_reader(
    schema: Schema,
    encoding: Encoding,
    table_rows: tuple[int, ...],
    bad_rows: BadRowPolicy = "fail",
    vocabulary: Vocabulary | None = None,
) -> TextReader | ParquetReader:
    """Of the format that the schema is for."""
    kind = ParquetReader if schema.format == "parquet" else TextReader
    return kind(schema, encoding, table_rows, bad_rows, vocabulary)
