"""Predictions for new rows: the logits of an evaluation, whatever form the rows come in."""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import recmill as rm
from recmill.errors import BadRowError, ConfigError, DataError, RunError
from recmill.serve import predict as predicting
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import CRITEO
from tests.serve.conftest import TrainTiny, click_model

Evaluated = Callable[[TrainConfig, Path], NDArray[np.float32]]
FILES = {"data.train_files": ["day_0"], "data.validation_files": ["day_1"], "data.test_files": ["day_2"]}
# What may stand between a row and its logit.
MODELS: dict[str, dict[str, object]] = {
    "dlrm": {},
    "dnn with norms, dropout, statistics, knots": {
        "model": {
            "kind": "dnn",
            "embedding_dim": 4,
            "top": [8, 1],
            "batch_norm": True,
            "dropout": 0.3,
            "wide": True,
            "dense_norm": True,
            "dense_knots": [0.0, 1.0],
            "target_encoding_folds": 3,
            "embedding_dropout": 0.2,
        }
    },
    "averaged": {"average.from_step": 2},
    "multi-hot": {"data.multi_hot": [2, *[1] * 25]},
}


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def without_label(line: str) -> str:
    return line.split("\t", 1)[1]


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_an_evaluation_to_the_last_bit(
    name: str,
    tiny_config: TrainConfig,
    tiny_world_dir: Path,
    tmp_path: Path,
    evaluated_logits: Evaluated,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chunks of some lines each, read by two threads; batches that no chunk ends with."""
    monkeypatch.setattr(predicting, "CHUNK_BYTES", 7_000)
    changes = {**FILES, **MODELS[name], "stop.max_steps": 6, "data.eval_batch": 37}
    run = rm.train(tiny_config.with_(changes), run=tmp_path / "run")
    assert isinstance(run.config, TrainConfig)
    expected = evaluated_logits(run.config, run.dir / "model")
    assert len(expected) == 1000
    found = click_model(run.dir).logits(tiny_world_dir / "day_2")
    assert found.tobytes() == expected.tobytes()


def test_prepared_rows_and_raw_rows_are_predicted_alike(
    tiny_world_dir: Path, tmp_path: Path, evaluated_logits: Evaluated
) -> None:
    rm.prepare(tiny_world_dir, out=tmp_path / "rows", overrides=FILES)
    changes = {
        "model": {"bottom": [8, 4], "embedding_dim": 4, "top": [8, 1]},
        "data.global_batch": 100,
        "stop.max_steps": 3,
    }
    run = rm.train("demo", data=tmp_path / "rows", run=tmp_path / "run", overrides=changes)
    model = click_model(run.dir)
    assert isinstance(run.config, TrainConfig)
    prepared = model.logits(tmp_path / "rows")
    assert len(prepared) == 3000, "those for training, validation and test"
    assert prepared[2000:].tobytes() == evaluated_logits(run.config, run.dir / "model").tobytes()
    with pytest.raises(DataError, match=r"prepared rows, which have no column 'int_1' to carry along"):
        model.write_predictions(tmp_path / "rows", tmp_path / "x.csv", id_columns=["int_1"])
    # raw rows need the vocabulary, which a run on prepared rows finds beside them
    raw = model.logits([tiny_world_dir / f"day_{day}" for day in range(3)])
    np.testing.assert_array_equal(raw, prepared)


def test_the_label_is_not_needed_and_not_read(train_tiny: TrainTiny, tiny_world_dir: Path, tmp_path: Path) -> None:
    model, lines = click_model(train_tiny()), lines_of(tiny_world_dir / "day_2")
    expected = model.predict(tiny_world_dir / "day_2")
    assert ((expected > 0) & (expected < 1)).all()
    for name, changed in (("none", [without_label(line) for line in lines]), ("odd", [f"?{line}" for line in lines])):
        (tmp_path / name).write_text("\n".join(changed))  # the last line unfinished
        np.testing.assert_array_equal(model.predict(tmp_path / name), expected)


def test_rows_come_as_files_frames_columns_and_lines(
    train_tiny: TrainTiny, tiny_world_dir: Path, tmp_path: Path
) -> None:
    model, lines = click_model(train_tiny()), lines_of(tiny_world_dir / "day_2")[:100]
    path = tmp_path / "some"
    path.write_text("\n".join(lines) + "\n")
    expected = model.predict(path)
    assert len(expected) == 100
    (tmp_path / "some.gz").write_bytes(gzip.compress(path.read_bytes()))
    names = [column.name for column in CRITEO.columns]
    kinds = [pl.Int64 if column.kind == "int" else pl.String for column in CRITEO.columns]
    frame = pl.read_csv(
        path, separator="\t", has_header=False, new_columns=names, schema_overrides=dict(zip(names, kinds, strict=True))
    )
    frame.write_parquet(tmp_path / "some.parquet")
    frame.write_ndjson(tmp_path / "some.jsonl")
    shuffled = frame.drop("label").select(sorted(frame.columns[1:])).with_columns(pl.lit("x").alias("extra"))
    forms: dict[str, object] = {
        "text path": str(path),
        "two files": [path, path],
        "gzip": tmp_path / "some.gz",
        "parquet": tmp_path / "some.parquet",
        "json lines": tmp_path / "some.jsonl",
        "frame": frame,
        "frame without label, in another order, with more": shuffled,
        "columns": frame.to_dict(as_series=False),
        "rows as dicts": frame.to_dicts(),
        "arrow": frame.to_arrow(),
        "lines": lines,
        "lines without label": [without_label(line) for line in lines],
        "one text": "\n".join(lines),
        "bytes": path.read_bytes(),
    }
    for name, rows in forms.items():
        found = model.predict(rows)
        np.testing.assert_array_equal(found[:100], expected, err_msg=name)
        assert len(found) == (200 if name == "two files" else 100)
    assert model.predict([]).shape == (0,)
    np.testing.assert_array_equal(rm.predict(model.weights.directory.parent, path), expected)


def test_pandas_frames_are_taken_too(train_tiny: TrainTiny, tiny_world_dir: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model, names = click_model(train_tiny()), [column.name for column in CRITEO.columns]
    kinds = {column.name: "string" for column in CRITEO.of_role("category")}
    frame = pandas.read_csv(tiny_world_dir / "day_2", sep="\t", header=None, names=names, dtype=kinds, nrows=50)
    np.testing.assert_array_equal(model.predict(frame), model.predict(tiny_world_dir / "day_2")[:50])


def test_bad_rows_get_no_prediction_and_shift_nothing(
    train_tiny: TrainTiny, tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicting, "CHUNK_BYTES", 3_000)
    model, lines = click_model(train_tiny()), lines_of(tiny_world_dir / "day_2")[:200]
    expected = model.logits("\n".join(lines))
    broken, places = list(lines), (0, 7, 8, 120, 202)
    for place in places:
        broken.insert(place, "1\tnot a row")
    path = tmp_path / "broken"
    path.write_text("\n".join(broken) + "\n")
    with pytest.raises(BadRowError, match=r"broken:1: .*--bad-rows skip"):
        model.predict(path)
    found = model.logits(path, bad_rows="skip")
    assert np.flatnonzero(np.isnan(found)).tolist() == list(places)
    assert np.delete(found, places).tobytes() == expected.tobytes()
    written = model.write_predictions(path, tmp_path / "out.parquet", id_columns=["int_0"], bad_rows="skip")
    assert (written.num_rows, written.num_bad) == (205, 5)
    table = pl.read_parquet(tmp_path / "out.parquet")
    assert table.columns == ["row", "int_0", "probability", "logit", "error"]
    assert table["row"].to_list() == list(range(1, 206))
    assert [i for i, error in enumerate(table["error"]) if error is not None] == list(places)
    assert all("has 2 fields" in error for error in table["error"].drop_nulls())
    assert table["logit"].null_count() == table["probability"].null_count() == 5
    assert table["int_0"].to_list() == [line.split("\t")[1] for line in broken]


def shop_log(directory: Path) -> tuple[Path, Path]:
    """A CSV with a header, quotes and an id, and its schema."""
    log, rng = directory / "shop.csv", np.random.default_rng(3)
    with log.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["order", "clicked", "price", "country", "note"])
        for i in range(400):
            country = ["de", "fr", 'it "x"', "a,b"][rng.integers(4)]
            writer.writerow([f"o-{i}", int(rng.random() < 0.3), round(rng.random() * 9, 2), country, "n"])
    schema = directory / "shop.toml"
    schema.write_text(
        'separator = ","\nheader = true\nquoted = true\ncolumns = [\n'
        '{name = "order", role = "ignored"}, {name = "clicked", role = "label", kind = "int"},\n'
        '{name = "price", role = "dense", kind = "float"},\n'
        '{name = "country", role = "category", kind = "string", rows = 20, encoding = "hash"},\n'
        '{name = "note", role = "ignored"}]\n'
    )
    return log, schema


def test_a_file_with_names_may_have_other_columns_in_another_order(tmp_path: Path) -> None:
    log, schema = shop_log(tmp_path)
    changes = {
        "model": {"kind": "dnn", "embedding_dim": 4, "top": [8, 1]},
        "data.holdout_frac": 0.2,
        "data.global_batch": 32,
        "stop.max_steps": 5,
    }
    run = rm.train("demo", data=log, schema=str(schema), run=tmp_path / "run", overrides=changes)
    model, frame = click_model(run.dir), pl.read_csv(log)
    expected = model.predict(log)
    others = frame.drop("clicked", "note").select("country", "order", "price").with_columns(pl.lit(1).alias("more"))
    others.write_csv(tmp_path / "other.csv")
    np.testing.assert_array_equal(model.predict(tmp_path / "other.csv"), expected)
    model.write_predictions(tmp_path / "other.csv", tmp_path / "out.csv", id_columns=["order", "country"])
    written = pl.read_csv(tmp_path / "out.csv")
    assert written["order"].to_list() == frame["order"].to_list()
    assert written["country"].to_list() == frame["country"].to_list(), "quoted fields come without their quotes"
    np.testing.assert_array_equal(written["probability"].to_numpy(), expected)
    others.with_columns(pl.col("order").str.slice(2).cast(pl.Int64)).write_parquet(tmp_path / "other.parquet")
    model.write_predictions(tmp_path / "other.parquet", tmp_path / "out.parquet", id_columns=["order"])
    assert pl.read_parquet(tmp_path / "out.parquet")["order"].to_list() == list(range(400)), "of the type they had"
    others.write_ndjson(tmp_path / "other.jsonl")
    model.write_predictions(tmp_path / "other.jsonl", tmp_path / "json.csv", id_columns=["order", "country", "more"])
    from_json = pl.read_csv(tmp_path / "json.csv")
    assert from_json.drop("more").equals(written), "the same file, but for one more column"
    with pytest.raises(DataError, match=r"has no column price, which the model reads; it has country, order"):
        model.predict(others.drop("price"))
    with pytest.raises(DataError, match=r"has no column 'id' to carry along; it has country, order, price, more"):
        model.write_predictions(tmp_path / "other.csv", tmp_path / "x.csv", id_columns=["id"])
    assert not (tmp_path / "x.csv").exists()


def test_what_cannot_be_predicted_is_named(train_tiny: TrainTiny, tiny_world_dir: Path, tmp_path: Path) -> None:
    model = click_model(train_tiny())
    (tmp_path / "spaces").write_text((tiny_world_dir / "day_0").read_text().replace("\t", " "))
    with pytest.raises(
        DataError, match=r"spaces:1 has 1 fields; schema criteo has 40, or 39 without the label 'label'"
    ):
        model.predict(tmp_path / "spaces")
    with pytest.raises(DataError, match=r"there is no file or directory .*nowhere"):
        model.predict("nowhere")
    with pytest.raises(DataError, match=r"rows are a list of int; give paths, lines of text or dicts of columns"):
        model.predict([1, 2])
    with pytest.raises(ConfigError, match=r"--out .*x.txt: the ending tells the format"):
        model.write_predictions(tiny_world_dir / "day_0", tmp_path / "x.txt")
    with pytest.raises(ConfigError, match=r"there is no table 'cat_99'; did you mean cat_9\?"):
        model.table("cat_99")
    assert model.table("cat_3").shape == (50, 4)
    with pytest.raises(RunError, match=r"does not exist; give a run directory, a checkpoint or exported weights"):
        rm.load(tmp_path / "nothing")
    with pytest.raises(
        RunError, match=r"is a run of dlrm, which predicts clicks and ranks no items; use `recmill pred"
    ):
        rm.recommend(tmp_path / "run", [1, 2])


def test_an_empty_file_has_no_predictions(train_tiny: TrainTiny, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    model = click_model(train_tiny())
    assert model.predict(tmp_path / "empty").shape == (0,)
    assert model.write_predictions(tmp_path / "empty", tmp_path / "out.csv").num_rows == 0
    assert (tmp_path / "out.csv").read_text() == '"row","probability","logit"\n'


def test_checkpoints_and_exported_weights_are_loaded_too(
    train_tiny: TrainTiny, tiny_world_dir: Path, tmp_path: Path
) -> None:
    from recmill.cli.main import main

    run_dir = train_tiny(cadence__save_every_steps=3)
    last = click_model(run_dir).logits(tiny_world_dir / "day_0")
    assert main(["checkpoint", "export", str(run_dir), "--out", str(tmp_path / "weights")]) == 0
    run_dir.rename(tmp_path / "moved")
    np.testing.assert_array_equal(click_model(tmp_path / "weights").logits(tiny_world_dir / "day_0"), last)
    earlier = click_model(tmp_path / "moved" / "checkpoints" / "step_0000000003").logits(tiny_world_dir / "day_0")
    assert not np.array_equal(earlier, last)


def test_a_header_is_understood_where_training_files_had_none(
    train_tiny: TrainTiny, tiny_world_dir: Path, tmp_path: Path
) -> None:
    model, lines = click_model(train_tiny()), lines_of(tiny_world_dir / "day_2")
    names = "\t".join(column.name for column in CRITEO.columns)
    (tmp_path / "named.tsv").write_text("\n".join([names, *lines]) + "\n")
    np.testing.assert_array_equal(model.predict(tmp_path / "named.tsv"), model.predict(tiny_world_dir / "day_2"))


def test_days_of_a_directory_are_predicted_in_their_order(
    train_tiny: TrainTiny, tiny_world_dir: Path, tmp_path: Path
) -> None:
    model = click_model(train_tiny())
    (tmp_path / "days").mkdir()
    for day, source in ((2, 0), (10, 1)):
        (tmp_path / "days" / f"day_{day}").write_bytes((tiny_world_dir / f"day_{source}").read_bytes())
    expected = model.predict([tiny_world_dir / "day_0", tiny_world_dir / "day_1"])
    np.testing.assert_array_equal(model.predict(tmp_path / "days"), expected)


@pytest.mark.parametrize("names", [["probability"], ["row"], ["int_0", "int_0"]])
def test_columns_that_would_have_a_name_twice_are_rejected(
    names: list[str], train_tiny: TrainTiny, tiny_world_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError, match=rf"--id-column {names[0]}: the table of predictions has a column of that name"
    ):
        click_model(train_tiny()).write_predictions(tiny_world_dir / "day_0", tmp_path / "x.csv", id_columns=names)


def test_columns_of_files_with_line_breaks_inside_quotes_are_carried_along(tmp_path: Path) -> None:
    random = Random(1)
    texts = ('a "b"\nc, d', "x", "y\n\nz", "")
    rows = [[f"o{i}", random.randrange(2), random.choice(texts), round(random.random(), 3)] for i in range(300)]
    frame = pl.DataFrame(rows, schema=["order", "clicked", "review", "price"], orient="row")
    frame.write_csv(tmp_path / "log.csv", null_value="")
    run = rm.train("auto", data=tmp_path / "log.csv", run=tmp_path / "run", overrides={"stop.max_epochs": 1})
    model = click_model(run.dir)
    model.write_predictions(tmp_path / "log.csv", tmp_path / "out.parquet", id_columns=["order", "review"])
    written = pl.read_parquet(tmp_path / "out.parquet")
    assert written["order"].to_list() == frame["order"].to_list()
    assert written["review"].to_list() == frame["review"].to_list()
