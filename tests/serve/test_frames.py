"""New rows as frames, columns and dicts mean what the same rows mean in a file."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import recmill as rm
from recmill.errors import DataError
from recmill.serve.click_model import ClickModel
from tests.serve.conftest import click_model


def shop_model(directory: Path) -> tuple[ClickModel, Path]:
    """A model of a log with empty numbers and empty texts."""
    log, rng = directory / "log.csv", np.random.default_rng(7)
    lines = ["clicked,visits,price,shop"]
    for _ in range(400):
        visits = "" if rng.random() < 0.2 else str(rng.integers(1, 50))
        shop = "" if rng.random() < 0.2 else f"s{rng.integers(6)}"
        lines.append(f"{int(rng.random() < 0.3)},{visits},{rng.random() * 9:.3f},{shop}")
    log.write_text("\n".join(lines) + "\n")
    (directory / "log.toml").write_text(
        'separator = ","\nheader = true\ncolumns = [{name = "clicked", role = "label", kind = "int"},\n'
        '{name = "visits", role = "dense", kind = "int"}, {name = "price", role = "dense", kind = "float"},\n'
        '{name = "shop", role = "category", kind = "string", rows = 40, encoding = "hash"}]\n'
    )
    changes = {
        "model": {"kind": "dnn", "embedding_dim": 4, "top": [8, 1]},
        "data.holdout_frac": 0.2,
        "data.global_batch": 32,
        "stop.max_epochs": 5,
        "tables.lr": 0.5,
    }
    schema = str(directory / "log.toml")
    return click_model(rm.train("demo", data=log, schema=schema, run=directory / "run", overrides=changes).dir), log


def test_missing_values_mean_the_same_in_files_and_in_frames(tmp_path: Path) -> None:
    """Pandas has NaN for a missing text and floats for integers with gaps; a dict may have None, NaN or a text."""
    model, log = shop_model(tmp_path)
    expected = model.predict(log)
    texts = pl.read_csv(log, infer_schema=False)
    typed = pl.read_csv(log)
    as_floats = typed.with_columns(pl.col("visits").cast(pl.Float64))
    with_nan = {
        "visits": [float("nan") if each is None else float(each) for each in typed["visits"]],
        "price": typed["price"].to_list(),
        "shop": [float("nan") if each is None else each for each in typed["shop"]],
    }
    forms: dict[str, object] = {
        "typed": typed,
        "all texts": texts,
        "integers as floats": as_floats,
        "categorical": typed.with_columns(pl.col("shop").cast(pl.Categorical)),
        "lazy": typed.lazy(),
        "dict with NaN": with_nan,
        "dicts": typed.to_dicts(),
        "arrays": {"visits": as_floats["visits"].to_numpy(), "price": typed["price"].to_numpy(), "shop": typed["shop"]},
    }
    for name, rows in forms.items():
        np.testing.assert_array_equal(model.predict(rows), expected, err_msg=name)
    for place in range(3):
        one = typed[place].to_dicts()
        np.testing.assert_allclose(model.predict(one), expected[place : place + 1], rtol=1e-6, err_msg=str(one))


def test_missing_values_of_pandas_are_missing(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model, log = shop_model(tmp_path)
    expected, frame = model.predict(log), pandas.read_csv(log)
    np.testing.assert_array_equal(model.predict(frame), expected)
    np.testing.assert_array_equal(model.predict(frame.convert_dtypes()), expected)
    np.testing.assert_array_equal(model.predict(frame.to_dict("list")), expected)


def test_values_that_do_not_fit_are_rejected_and_name_no_scratch_file(tmp_path: Path) -> None:
    model, log = shop_model(tmp_path)
    typed = pl.read_csv(log)
    for broken in (typed.with_columns(pl.lit(1.5).alias("visits")), typed.with_columns(pl.lit("x").alias("price"))):
        with pytest.raises(DataError) as caught:
            model.predict(broken)
        assert str(caught.value).startswith("the given rows.parquet")
    with pytest.raises(DataError, match=r"rows of type object cannot be read as columns"):
        model.predict(object())
