"""The weight of a row goes with it, whatever the row goes through."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recmill.data.batch import Columns, join_columns
from recmill.data.logs.formats import FORMATS
from recmill.data.logs.opening import open_splits
from recmill.data.prepared.directory import Prepared
from recmill.data.prepared.prepare import PrepareJob, prepare
from recmill.data.stream.raw_reader import build_reader
from recmill.data.stream.stream import Order, Stream
from recmill.errors import ConfigError
from recmill.settings.columns import Schema
from recmill.settings.data import DataConfig
from recmill.settings.encoding import Encoding
from recmill.settings.multi_hot import MultiHot
from tests.data.lines import COUNT, LABEL, SHOP, WEIGHT, schema_of

ROWS = 2000
TEXT = schema_of(COUNT, WEIGHT, LABEL, SHOP, name="weighted")
PARQUET = Schema(name="weighted", format="parquet", columns=TEXT.columns)
ENCODING = Encoding(dense="identity")


def _weight(row: int) -> float:
    return row % 7 / 4


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{row},{_weight(row)},{row % 2},{row % 5}\n" for row in range(ROWS)))
    return path


def _table(tmp_path: Path) -> Path:
    rows, path = range(ROWS), tmp_path / "rows.parquet"
    columns = {
        "count": rows,
        "weight": map(_weight, rows),
        "clicked": (r % 2 for r in rows),
        "shop": (r % 5 for r in rows),
    }
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)
    return path


def _assert_whole(columns: Columns, num_rows: int) -> None:
    assert columns.weights.shape == columns.labels.shape == (num_rows,)
    np.testing.assert_array_equal(columns.weights, columns.dense[:, 0] % 7 / 4)
    np.testing.assert_array_equal(columns.labels, columns.dense[:, 0] % 2)


@pytest.mark.parametrize("schema", [TEXT, PARQUET], ids=["text", "parquet"])
def test_streams_carry_weights(schema: Schema, text: Path, tmp_path: Path) -> None:
    path = text if schema is TEXT else _table(tmp_path)
    source = FORMATS[schema.format].open(path, schema)
    extent = 900 if schema is TEXT else 70
    order = Order(33, seed=5, num_lanes=4, block_extent=extent)
    with Stream(build_reader(schema, ENCODING, (9,)), [source.whole()], order) as stream:
        columns = join_columns([batch.columns for batch in stream])
    _assert_whole(columns, ROWS)
    assert sorted(columns.dense[:, 0].tolist()) == list(range(ROWS))


def _job(text: Path, out_dir: Path, **changes: Any) -> PrepareJob:
    data = DataConfig(dir=str(text), row_schema=TEXT, table_rows=(9,), holdout_frac=0.2)
    return PrepareJob(open_splits(data), TEXT, out_dir, **{"part_bytes": 4000, **changes})


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("store", ["npy", "parquet"])
def test_prepared_rows_carry_weights(store: str, seed: int | None, text: Path, tmp_path: Path) -> None:
    manifest = prepare(_job(text, tmp_path / "rows", store=store, seed=seed, preset_name="recmill"))
    assert manifest["layout"]["has_weight"]
    prepared = Prepared(tmp_path / "rows")
    columns = prepared.reader.read(prepared.segments("train")).columns
    counts = np.round(np.exp(columns.dense[:, 0].astype(np.float64)) - 3)
    np.testing.assert_array_equal(columns.weights, counts % 7 / 4)
    assert prepared.reader.room_for(3).weights.shape == (3,)
    prepared.close()


def test_archives_of_multi_hot_rows_hold_no_weights(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hold no weights"):
        _job(text, tmp_path / "rows", multi_hot=MultiHot((2,), "uniform"))


def test_rows_without_weights_have_none(tmp_path: Path) -> None:
    path, schema = tmp_path / "rows.csv", schema_of(COUNT, LABEL, SHOP)
    path.write_text("1,0,1\n2,1,2\n")
    columns = build_reader(schema, ENCODING, (9,)).read([FORMATS["text"].open(path, schema).whole()]).columns
    assert columns.weights.shape == (0,)


@pytest.mark.parametrize("weight", ["", "-1", "nan", "1e39", "x"])
def test_a_weight_that_is_none_makes_a_bad_row(weight: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"1,1,0,1\n2,{weight},1,2\n")
    chunk = FORMATS["text"].read(FORMATS["text"].open(path, TEXT).whole(), TEXT)
    assert [(line, bad.column) for line, bad in chunk.bad] == [(1, "weight")]


@pytest.mark.parametrize("weight", [None, -1.0, float("nan"), float("inf"), 1e39])
def test_a_cell_that_is_no_weight_makes_a_bad_row(weight: float | None, tmp_path: Path) -> None:
    path, schema = tmp_path / "rows.parquet", Schema(name="typed", format="parquet", columns=(WEIGHT,))
    pq.write_table(pa.table({"weight": pa.array([1.0, weight])}), path)
    chunk = FORMATS["parquet"].read(FORMATS["parquet"].open(path, schema).whole(), schema)
    assert chunk.raw.weights.tolist() == [1.0]
    assert [(row, bad.column, bool(bad.reason)) for row, bad in chunk.bad] == [(1, "weight", True)]
