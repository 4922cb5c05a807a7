"""Evaluation of new files and of parts of rows: all rows by default, and the numbers of plain code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import recmill as rm
from recmill.cli.main import main
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import CRITEO

NAMES = [column.name for column in CRITEO.columns]


@pytest.fixture
def run(tiny_config: TrainConfig, tmp_path: Path) -> rm.Run:
    return rm.train(tiny_config.with_({"stop.max_steps": 6, "data.eval_batch": 37}), run=tmp_path / "run")


@pytest.fixture
def day(tiny_world_dir: Path) -> Path:
    return tiny_world_dir / "day_2"


def rows_of(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def predicted(run: rm.Run, path: Path) -> tuple[np.ndarray, np.ndarray]:
    labels = np.array([int(fields[0]) for fields in rows_of(path)])
    return rm.predict(run.dir, path), labels


def test_all_rows_of_new_data_are_evaluated_unless_a_split_is_asked_for(
    run: rm.Run, tiny_world_dir: Path, day: Path
) -> None:
    p, labels = predicted(run, day)
    found = rm.evaluate(run.dir, data=day)
    assert (found.split, found.result.num_rows) == ("all", 1000)
    assert found.result.auroc == pytest.approx(roc_auc_score(labels, p), abs=1e-9)
    assert found.result.logloss == pytest.approx(log_loss(labels, p), abs=1e-6)
    assert f"all of {day}" in found.description
    numbers = {
        split: run.evaluate(split, data=tiny_world_dir).num_rows for split in (None, "train", "validation", "test")
    }
    assert numbers == {None: 3000, "train": 2000, "validation": 500, "test": 500}
    assert run.evaluate().num_rows == 500
    assert run.evaluate() == run.evaluate("test", data=tiny_world_dir) == run.results.test
    assert run.evaluate(data=day, max_batches=2).num_rows == 74


def test_new_data_may_be_a_frame_and_needs_a_label(run: rm.Run, day: Path, tmp_path: Path) -> None:
    kinds = {column.name: pl.Int64 if column.kind == "int" else pl.String for column in CRITEO.columns}
    frame = pl.read_csv(day, separator="\t", has_header=False, new_columns=NAMES, schema_overrides=kinds)
    expected = run.evaluate(data=day)
    assert run.evaluate(data=frame) == expected
    frame.with_columns(pl.lit("x").alias("more")).write_parquet(tmp_path / "new.parquet")
    assert run.evaluate(data=tmp_path / "new.parquet") == expected
    with pytest.raises(rm.DataError, match=r"has no label \('label'\), with which an evaluation compares"):
        run.evaluate(data=frame.drop("label"))
    with pytest.raises(rm.ConfigError, match="no splits"):
        run.evaluate("test", data=frame)


def test_slices_are_the_metrics_of_their_rows(run: rm.Run, day: Path) -> None:
    p, labels = predicted(run, day)
    column = "cat_5"
    values = np.array([fields[NAMES.index(column)] or "(missing)" for fields in rows_of(day)])
    found = rm.evaluate(run.dir, data=day, by=column, group="cat_8", top=[10], max_values=3).slices
    assert found is not None
    assert found.overall.num_rows == 1000
    assert len(found.by[column]) == 4
    assert sum(metrics.num_rows for _, metrics in found.by[column]) == 1000
    assert "other values" in found.by[column][-1][0]
    for value, metrics in found.by[column][:-1]:
        own = values == value
        assert (metrics.num_rows, metrics.num_clicks) == (own.sum(), labels[own].sum())
        assert metrics.auroc.value == pytest.approx(roc_auc_score(labels[own], p[own]), abs=1e-6)
        assert metrics.logloss.value == pytest.approx(log_loss(labels[own], p[own]), abs=1e-6)
        assert metrics.calibration.value == pytest.approx(p[own].mean() / labels[own].mean(), abs=1e-6)
    assert found.group is not None
    assert 0 < found.group.rows_frac <= 1
    assert found.top[0].num_rows == 100


def test_a_split_of_the_run_has_slices_too(run: rm.Run) -> None:
    found = rm.evaluate(run.dir, by=["int_0", "cat_5"])
    assert found.result.auroc == run.results.test.auroc
    assert found.slices is not None
    assert found.slices.overall.auroc.value == pytest.approx(run.results.test.auroc)
    assert list(found.slices.by) == ["int_0", "cat_5"]


def test_an_ignored_column_of_a_file_can_be_sliced_by(
    run: rm.Run, day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["\t".join(["country", *NAMES])]
    lines += ["\t".join(["DE" if number % 4 else "", *fields]) for number, fields in enumerate(rows_of(day))]
    (tmp_path / "new.tsv").write_text("\n".join(lines) + "\n")
    words = ["evaluate", str(run.dir), "--data", str(tmp_path / "new.tsv"), "--by", "country", "--top", "1", "5"]
    assert main([*words, "--group", "cat_8", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["slices"]
    assert [(each["value"], each["num_rows"]) for each in told["by"]["country"]] == [("DE", 750), ("(missing)", 250)]
    assert told["by"]["country"][0]["auroc"].keys() == {"value", "low", "high"}
    assert [each["percent"] for each in told["top"]] == [1, 5]
    assert told["group"]["column"] == "cat_8"
    assert main([*words, "--group", "cat_8"]) == 0
    out = capsys.readouterr().out
    assert "(missing)" in out
    assert "GAUC by cat_8" in out
    assert main([*words, "--by", "city"]) == 2
    assert "has no column 'city'" in capsys.readouterr().err


def test_bad_rows_stop_an_evaluation_or_are_counted(run: rm.Run, day: Path, tmp_path: Path) -> None:
    lines = day.read_text().splitlines()
    lines[5] = "2" + lines[5][1:]
    (tmp_path / "bad").write_text("\n".join(lines) + "\n")
    with pytest.raises(rm.DataError, match="bad:6"):
        run.evaluate(data=tmp_path / "bad")
    found = run.evaluate(data=tmp_path / "bad", overrides={"data.bad_rows": "skip"}, by="cat_5")
    assert (found.num_rows, found["skipped_rows"]) == (999, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top": [0]}, "above 0 and up to 100"),
        ({"by": "cat_5", "max_values": 0}, "at least one value"),
        ({"split": "tests"}, "choose all, train, validation or test"),
        ({"split": "all", "max_batches": -1}, "0 for all"),
    ],
)
def test_what_makes_no_sense_is_rejected(run: rm.Run, options: dict[str, Any], said: str) -> None:
    with pytest.raises(rm.ConfigError, match=said):
        run.evaluate(**options)
