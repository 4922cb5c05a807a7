"""Raw chunks hold the rows that the slow reader accepts, and tell which lines are bad, however the text is cut."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.logs import raw as raw_module
from recmill.data.logs.raw import read_chunks
from recmill.data.logs.raw_format import MAX_BAD_LINES, RawChunk
from recmill.data.logs.text_file import Segment
from recmill.data.text.fields import RawColumns
from recmill.data.text.reference import BadRow, read_row
from recmill.settings.columns import Schema
from recmill.settings.criteo import CRITEO
from tests.data.lines import (
    MIXED,
    UNLABELLED,
    accepted_rows,
    almost_right_text,
    assert_same_raw,
    lines_of,
    new_source,
    raw_columns,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("raw")


@pytest.mark.parametrize("schema", [CRITEO, MIXED, UNLABELLED], ids=lambda schema: schema.name)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), num_lines=st.integers(0, 60), chunk_bytes=st.integers(1, 9000))
def test_chunks_are_the_accepted_rows_and_name_the_bad_lines(
    directory: Path, schema: Schema, seed: int, num_lines: int, chunk_bytes: int
) -> None:
    text = almost_right_text(Random(seed), schema, num_lines) if num_lines else b""
    source = new_source(directory / "text", text)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(raw_module, "CHUNK_BYTES", chunk_bytes)
        chunks = list(read_chunks(source.whole(), schema, pool, num_ahead=3))
    parts = [chunk.raw for chunk in chunks] or [raw_columns(schema, [])]
    together = RawColumns(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    assert_same_raw(together, raw_columns(schema, accepted_rows(text, schema)))
    verdicts = [read_row(line, schema) for line in lines_of(text)]
    assert sum(chunk.num_lines for chunk in chunks) == len(verdicts)
    assert sum(chunk.num_bad for chunk in chunks) == sum(isinstance(verdict, BadRow) for verdict in verdicts)
    first = 0
    for chunk in chunks:
        expected = [(i, v) for i, v in enumerate(verdicts[first : first + chunk.num_lines]) if isinstance(v, BadRow)]
        assert list(chunk.bad) == expected[:MAX_BAD_LINES]
        first += chunk.num_lines


def test_a_reader_that_stops_early_leaves_nobody_reading(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_module, "CHUNK_BYTES", 2000)
    source = new_source(directory / "text", almost_right_text(Random(1), CRITEO, 300))
    reading, read_raw = set[int](), raw_module.read_raw

    def watched(segment: Segment, schema: Schema) -> RawChunk:
        reading.add(segment.start)
        chunk = read_raw(segment, schema)
        reading.remove(segment.start)
        return chunk

    monkeypatch.setattr(raw_module, "read_raw", watched)
    with ThreadPoolExecutor(2) as pool:
        chunks = read_chunks(source.whole(), CRITEO, pool, num_ahead=4)
        next(chunks)
        chunks.close()
        assert not reading


def test_empty_lines_take_no_room(directory: Path) -> None:
    source = new_source(directory / "text", b"\n" * 100_000)
    chunk = raw_module.read_raw(source.whole().part(0, 4000), CRITEO)
    assert (chunk.num_lines, chunk.num_bad) == (4000, 4000)
    assert chunk.raw.values.base is not None
    assert chunk.raw.values.base.size <= 26 * (4000 // 40 + 1)
