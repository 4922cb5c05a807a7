"""Labels of every sort mean the same in text, in Parquet and to the slow parser."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recmill.data.logs.formats import FORMATS
from recmill.settings.columns import Column, Schema
from tests.data.lines import schema_of

NUMBER = Column(name="x", role="dense", kind="float")


def _labels(path: Path, schema: Schema) -> list[float]:
    raw_format = FORMATS[schema.format]
    chunk = raw_format.read(raw_format.open(path, schema).whole(), schema)
    assert not chunk.bad
    labels: list[float] = chunk.raw.labels.tolist()
    return labels


def _label(kind: str, positive: object) -> Column:
    return Column(name="y", role="label", kind=kind, positive=positive)


CASES = [
    (_label("string", "yes"), ["yes", "no", "YES", "y", "yes "], pa.string(), [1, 0, 0, 0, 0]),
    (_label("string", ("yes", 3)), ["yes", "3", "4", "03"], pa.string(), [1, 1, 0, 0]),
    (_label("string", (3, "x")), [3, 4, 33], pa.int32(), [1, 0, 0]),
    (_label("int", (2, 5)), [2, 5, 25, -2], pa.int64(), [1, 1, 0, 0]),
    (_label("int", ">= 4"), [3, 4, 5], pa.int8(), [0, 1, 1]),
    (_label("float", ">3.5"), [3.5, 3.75, -4.0], pa.float64(), [0, 1, 0]),
    (_label("float", (0.5, 2)), [0.5, 2.0, 1.0], pa.float32(), [1, 1, 0]),
    (_label("float", "< 0"), [0, -1, 7], pa.int16(), [0, 1, 0]),
    (_label("int", None), [True, False], pa.bool_(), [1, 0]),
]


@pytest.mark.parametrize(("column", "cells", "kind", "expected"), CASES)
def test_text_and_parquet_give_the_same_labels(
    column: Column, cells: list[object], kind: pa.DataType, expected: list[int], tmp_path: Path
) -> None:
    text, table = tmp_path / "rows.csv", tmp_path / "rows.parquet"
    text.write_text("".join(f"{cell},0\n" for cell in cells))
    pq.write_table(pa.table({"y": pa.array(cells, kind), "x": [0.0] * len(cells)}), table)
    assert _labels(text, schema_of(column, NUMBER)) == expected
    assert _labels(table, Schema(name="typed", format="parquet", columns=(NUMBER, column))) == expected


@pytest.mark.parametrize(
    ("column", "bad"),
    [
        (_label("string", "yes"), [None, ""]),
        (_label("float", ">= 4"), [None, float("nan"), float("inf")]),
        (_label("int", (2, 3)), [None, 2.5]),
    ],
)
def test_a_parquet_label_that_is_none_makes_a_bad_row(column: Column, bad: list[object], tmp_path: Path) -> None:
    path, schema = tmp_path / "rows.parquet", Schema(name="typed", format="parquet", columns=(column,))
    pq.write_table(pa.table({"y": pa.array(bad)}), path)
    raw_format = FORMATS["parquet"]
    chunk = raw_format.read(raw_format.open(path, schema).whole(), schema)
    assert [place for place, _ in chunk.bad] == list(range(len(bad)))
    assert all(found.reason and found.column == "y" for _, found in chunk.bad)


def test_truth_values_need_no_setting(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("true,1\nFALSE,2\nTrue,3\n0,4\n1,5\ntruE,6\nfalse,\n")
    assert _labels(path, schema_of(_label("int", None), NUMBER)) == [1, 0, 1, 0, 1, 1, 0]


def test_many_texts_pass_through_the_kernel(tmp_path: Path) -> None:
    """Also where the other columns are positive by the same words."""
    path, random = tmp_path / "rows.csv", np.random.default_rng(1)
    words = random.choice(["buy", "view", "cart", "purchase of more than eight bytes"], 3000).tolist()
    path.write_text("".join(f"{word},{i}\n" for i, word in enumerate(words)))
    column = _label("string", ("buy", "purchase of more than eight bytes"))
    assert _labels(path, schema_of(column, NUMBER)) == [float(word.startswith(("buy", "purch"))) for word in words]
