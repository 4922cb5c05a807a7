"""A raw format is one file and one line of a table: here is one that the package does not have."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recmill.data.logs import formats
from recmill.data.logs.raw_format import NOTHING_ASKED, AskedColumns, Draft, RawChunk
from recmill.data.logs.text_file import Segment, Source
from recmill.data.logs.text_format import TextFormat
from recmill.data.stream.raw_reader import build_reader
from recmill.settings.columns import Schema
from recmill.settings.criteo import CRITEO
from recmill.settings.data import DataConfig
from recmill.settings.encoding import Encoding


class ShoutedText:
    """Criteo's text in capital letters, in files that end in .LOUD."""

    title, suffixes, evaluation_extent = "shouted text", (".LOUD",), 1 << 20

    def __init__(self) -> None:
        self._text = TextFormat()

    def training_extent(self, data: DataConfig) -> int:
        return data.block_bytes

    def open(self, path: Path, schema: Schema, max_unpacked_bytes: int | None = None) -> Source:
        quiet = path.with_suffix(".quiet")
        quiet.write_bytes(path.read_bytes().lower())
        return self._text.open(quiet, schema, max_unpacked_bytes)

    def infer(self, paths: Sequence[Path], *, name: str, asked: AskedColumns = NOTHING_ASKED) -> Draft:
        return self._text.infer(paths, name=name, asked=asked)

    def compile(self, schema: Schema, /) -> None:
        self._text.compile(schema.with_({"format": "text"}))

    def check_first(self, segment: Segment, schema: Schema, /) -> object:
        return self._text.check_first(segment, schema)

    def read(self, segment: Segment, schema: Schema, /, *, max_bad: int | None = 10) -> RawChunk:
        return self._text.read(segment, schema.with_({"format": "text"}), max_bad=max_bad)


def test_a_format_from_outside_is_read_by_everybody(
    tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loud = tmp_path / "day_0.LOUD"
    loud.write_bytes((tiny_world_dir / "day_0").read_bytes().upper())
    known: dict[Any, Any] = formats.FORMATS
    monkeypatch.setitem(known, "loud", ShoutedText())
    assert formats.format_named(loud) == "loud"  # type: ignore[comparison-overlap]
    schema = CRITEO.model_copy(update={"format": "loud"})  # not validated: the settings know those that are shipped
    source = formats.FORMATS[schema.format].open(loud, schema)
    reader = build_reader(schema, Encoding(), (50,) * 26)
    plain = build_reader(CRITEO, Encoding(), (50,) * 26)
    expected = plain.read([formats.FORMATS["text"].open(tiny_world_dir / "day_0", CRITEO).whole()]).columns
    found = reader.read([source.whole()]).columns
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.dense, expected.dense)
