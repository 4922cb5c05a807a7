"""Files whose rows are known by their numbers, and streams of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from recmill.data.batch import Batch, Cursor, Position
from recmill.data.logs.text_file import Segment
from recmill.data.stream.ahead import ReadAhead
from recmill.data.stream.stream import Order, Part, Stream
from recmill.data.stream.text_reader import TextReader
from recmill.settings.data import BadRowPolicy
from recmill.settings.encoding import Encoding
from tests.data.lines import COUNT, LABEL, SHOP, new_source, schema_of

# A row is known by its count, which no other row has; the label and the shop follow from it.
SCHEMA = schema_of(LABEL, COUNT, SHOP)
NUMBERED = Encoding(dense="identity")
NUM_SHOPS = 37


def line_of(number: int) -> bytes:
    return b"%d,%d,%d" % (number % 2, number, number * 7)


def reader_of(bad_rows: BadRowPolicy = "fail") -> TextReader:
    return TextReader(SCHEMA, NUMBERED, (NUM_SHOPS,), bad_rows)


def segments_of(
    directory: Path, sizes: Sequence[int], *, bad_every: int = 0, newline_at_end: bool = True
) -> list[Segment]:
    """Files of so many rows, numbered on from file to file; before every so many-th row a line that is none."""
    segments, first = list[Segment](), 0
    for i, size in enumerate(sizes):
        lines = list[bytes]()
        for number in range(first, first + size):
            if bad_every and number % bad_every == 0:
                lines.append(b"bad line")
            lines.append(line_of(number))
        first += size
        text = b"".join(line + b"\n" for line in lines)
        segments.append(new_source(directory / f"day_{i}", text if newline_at_end else text[:-1]).whole())
    return segments


def numbers_of(batches: Sequence[Batch]) -> list[int]:
    """Which rows the batches hold, having checked that their other columns are of the same row."""
    numbers = np.concatenate([np.empty(0), *(batch.columns.dense[:, 0] for batch in batches)]).astype(int).tolist()
    ids = [row for batch in batches for row in batch.columns.ids[:, 0].tolist()]
    labels = [label for batch in batches for label in batch.columns.labels.tolist()]
    assert ids == [number * 7 % (NUM_SHOPS - 1) + 1 for number in numbers]
    assert labels == [number % 2 for number in numbers]
    return list(numbers)


def read_all(
    segments: Sequence[Segment],
    order: Order,
    *,
    reader: TextReader | None = None,
    part: Part = Part(),  # noqa: B008 frozen
    ahead: ReadAhead = ReadAhead(),  # noqa: B008 frozen
) -> list[Batch]:
    with Stream(reader or reader_of(), segments, order, part=part, ahead=ahead) as stream:
        return list(stream)


def numbers_of_epoch(segments: Sequence[Segment], order: Order, epoch: int) -> list[int]:
    """The numbers of one epoch's rows, in their order."""
    start = Position((Cursor(epoch),) * len(order.lanes))
    with Stream(reader_of(), segments, replace(order, epochs=epoch + 1), start=start) as stream:
        return numbers_of(list(stream))
