from pathlib import Path

import numpy as np
import polars as pl
import pytest

import recmill as rm
from recmill.data.synthetic.known import known_best
from recmill.data.synthetic.tables import read_truth
from recmill.errors import DataError
from recmill.settings.data import DataConfig


@pytest.mark.parametrize(("kind", "label"), [("clicks", "click"), ("shop", "purchased")])
def test_the_labels_of_the_table_are_those_of_the_truth(tmp_path: Path, kind: str, label: str) -> None:
    known = rm.synth(kind, tmp_path / "t", rows=3_000, seed=2)  # type: ignore[arg-type]
    assert isinstance(known, dict)
    frame, truth = pl.read_csv(tmp_path / "t" / "table.csv"), read_truth(tmp_path / "t" / "table.csv")
    assert truth is not None
    np.testing.assert_array_equal(frame[label].to_numpy(), truth.labels)
    assert frame.height == 3_000
    assert 0.7 < known["best_possible"]["auroc"] < 0.95


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        rm.synth("shop", tmp_path / name, rows=500, seed=seed)
    a, b, c = ((tmp_path / name / "table.csv").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_the_best_possible_is_of_the_last_rows(tmp_path: Path) -> None:
    rm.synth("clicks", tmp_path / "t", rows=2_000)
    best = known_best(DataConfig(dir=str(tmp_path / "t" / "table.csv"), holdout_frac=0.2, table_rows=(1,) * 26), 200)
    assert best is not None
    assert best["num_rows"] == 200
    assert best["auroc"] > 0.6
    assert known_best(DataConfig(dir=str(tmp_path), holdout_frac=0.2, table_rows=(1,) * 26), 200) is None


def test_other_directories_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep")
    with pytest.raises(DataError, match="mine"):
        rm.synth("shop", tmp_path / "mine", rows=100, overwrite=True)
    assert (tmp_path / "mine" / "notes").read_text() == "keep"
