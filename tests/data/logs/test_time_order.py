"""Splits by time cut where a date is, in files in the order of their times; others are rejected by the line."""

from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from recmill.data.logs.opening import open_splits
from recmill.errors import ConfigError, DataError
from recmill.recipes.resolve import overrides_tree
from recmill.settings.columns import Schema
from recmill.settings.data import DataConfig
from recmill.settings.families import CLICK
from recmill.settings.tree import from_tree
from tests.data.lines import LABEL, NOTE, part_of, schema_of, time_column

WHEN = time_column("iso")
COLUMNS = (LABEL, WHEN, NOTE, part_of(WHEN, "hour"))
TEXT = schema_of(*COLUMNS)
PARQUET = Schema(name="typed", format="parquet", columns=COLUMNS)
DAYS = [f"2024-05-{day:02}" for day in range(1, 31)]


def _config(path: Path, schema: Schema = TEXT, **settings: Any) -> DataConfig:
    return DataConfig(dir=str(path), row_schema=schema, **settings)


def _write(path: Path, times: list[str]) -> Path:
    path.write_text("".join(f"{i % 2},{time},x\n" for i, time in enumerate(times)))
    return path


def _sizes(config: DataConfig) -> list[int]:
    splits = open_splits(config)
    sizes = [sum(s.count_rows() for s in splits.of(name)) for name in ("train", "validation", "test")]
    splits.close()
    return sizes


@pytest.mark.parametrize(
    ("moment", "sizes"),
    [
        ("2024-05-21", [18, 2, 10]),
        ("2024-05-20T00:00:01", [18, 2, 10]),
        ("2024-05-21T02:00+02:00", [18, 2, 10]),
        ("2024-05-03", [1, 1, 28]),
    ],
)
def test_rows_from_a_date_on_are_the_test(moment: str, sizes: list[int], tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.csv", DAYS)
    assert _sizes(_config(path, test_after=moment)) == sizes
    table = tmp_path / "rows.parquet"
    frame = pl.DataFrame({"clicked": [0] * 30, "when": DAYS, "note": ["x"] * 30})
    frame.with_columns(pl.col("when").str.to_date()).write_parquet(table)
    assert _sizes(_config(table, PARQUET, test_after=moment)) == sizes


def test_files_follow_each_other_and_lines_without_a_time_go_with_the_one_above(tmp_path: Path) -> None:
    _write(tmp_path / "a.csv", [*DAYS[:15], ""])
    _write(tmp_path / "b.csv", ["", *DAYS[14:], "never"])
    assert _sizes(_config(tmp_path, test_after="2024-05-21", bad_rows="skip")) == [21, 2, 11]


def test_the_first_line_out_of_order_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.csv", [*DAYS[:9], DAYS[3], *DAYS[9:]])
    with pytest.raises(DataError, match=r"rows.csv:10: its when is before .*; sort the files first, with `recmill"):
        open_splits(_config(path, test_after="2024-05-21"))
    with pytest.raises(DataError, match=r'rows.csv:10: .*, or set data.split = "order" to cut them as they are$'):
        open_splits(_config(path, holdout_frac=0.2))
    assert _sizes(_config(path, holdout_frac=0.2, split="order")) == [25, 3, 3]
    assert _sizes(_config(_write(path, DAYS), holdout_frac=0.2)) == [24, 3, 3]


@pytest.mark.parametrize("seed", range(6))
def test_the_last_days_are_the_test_as_from_their_first_midnight_on(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    begin = datetime(2024, 2, 20)
    moments = sorted(begin + timedelta(minutes=random.randrange(20 * 1440)) for _ in range(200))
    path = _write(tmp_path / "rows.csv", [random.choice((f"{each}", f"{each}", "")) for each in moments])
    last = max(moment for moment in moments if f"{moment}" in path.read_text())
    for num_days in (1, 2, 7):
        first = last.date() - timedelta(days=num_days - 1)
        found = _sizes(_config(path, holdout_days=num_days))
        assert found == _sizes(_config(path, test_after=first.isoformat()))
        assert found[2] >= sum(moment.date() >= first for moment in moments if f"{moment}" in path.read_text()) > 0


def test_days_that_leave_no_training_rows_and_files_without_a_time_are_rejected(tmp_path: Path) -> None:
    path = _write(tmp_path / "rows.csv", DAYS)
    with pytest.raises(
        DataError, match=r"holdout_days = 40 \(the test begins on 2024-04-21, UTC\): 0 of 30 lines are before it"
    ):
        open_splits(_config(path, holdout_days=40))
    with pytest.raises(DataError, match=r"holdout_days = 2: no line of .* has a when"):
        open_splits(_config(_write(path, ["", ""]), holdout_days=2))


@pytest.mark.parametrize("moment", ["2024-05-02", "2025-01-01"])
def test_a_date_that_leaves_a_split_empty_is_rejected(moment: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"data.test_after = '{moment}': (1|30) of 30 lines are before it"):
        open_splits(_config(_write(tmp_path / "rows.csv", DAYS), test_after=moment))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"test_after": "yesterday"}, "is no date; give one such as 2024-05-31"),
        ({"test_after": "2024-05-31", "holdout_frac": 0.1}, "leave out data.holdout_frac, or data.test_after"),
        ({"test_after": "2024-05-31", "holdout_days": 3}, "leave out data.holdout_days, or data.test_after"),
        ({"holdout_days": 3, "holdout_frac": 0.1}, "leave out data.holdout_frac, or data.holdout_days"),
        ({"holdout_days": 3, "holdout_rows": 10}, "leave out data.holdout_rows, or data.holdout_days"),
        ({"holdout_days": 3, "test_files": ("a",)}, "leave out data.test_files, or data.holdout_days"),
        ({"holdout_days": 3, "row_schema": "kaggle", "table_rows": (2,) * 26}, "needs a column of times"),
        ({"holdout_days": 0}, "holdout_days"),
        ({"test_after": "2024-05-31", "split": "order"}, "leave out data.split, or data.test_after"),
        ({"test_after": "2024-05-31", "first_half": "test"}, "data.test_after halves none"),
        ({"test_after": "2024-05-31", "row_schema": "kaggle", "table_rows": (2,) * 26}, "needs a column of times"),
    ],
)
def test_settings_that_contradict_a_split_by_time_are_rejected(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        DataConfig(**{"row_schema": TEXT, **settings})


def test_a_date_needs_no_quotes() -> None:
    tree = overrides_tree(["data.test_after=2024-05-31"], CLICK)["data"]
    assert from_tree(DataConfig, {**tree, "row_schema": TEXT.to_tree()}).test_after == "2024-05-31"
