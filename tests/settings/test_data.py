"""Settings of the data refuse what does not fit the schema, by name."""

import tomllib
from pathlib import Path

import pytest

from recmill.errors import ConfigError
from recmill.settings.criteo import CRITEO, CRITEO_UNLABELLED
from recmill.settings.data import DataConfig
from recmill.settings.tree import from_tree, to_toml

TABLES = (50,) * 26


def _complaint(**settings: object) -> str:
    with pytest.raises(ConfigError) as caught:
        from_tree(DataConfig, {"table_rows": TABLES, **settings})
    return str(caught.value)


def test_the_schema_is_found_by_name() -> None:
    assert DataConfig(table_rows=TABLES).schema_of_rows is CRITEO
    assert DataConfig(table_rows=TABLES, row_schema="criteo-unlabelled").schema_of_rows is CRITEO_UNLABELLED


def test_an_unknown_schema_is_answered_with_the_known_ones() -> None:
    assert _complaint(row_schema="avazu") == (
        "there is no schema 'avazu'; choose from criteo, criteo-unlabelled, kaggle, or give a .toml file"
    )
    assert _complaint(row_schema="kagle") == "there is no schema 'kagle'; did you mean kaggle?"


def test_files_with_a_use_of_their_own_have_no_halves() -> None:
    files = {f"{name}_files": [name] for name in ("train", "validation", "test")}
    assert _complaint(first_half="test", **files).startswith('data.first_half = "test" is about rows that are halved')
    assert DataConfig(table_rows=TABLES, first_half="test", holdout_rows=9).first_half == "test"
    assert _complaint(first_half="train").startswith('first_half = "train" is rejected')


def test_dropping_short_batches_needs_equal_shares() -> None:
    complaint = _complaint(drop_last=True, global_batch=202, num_lanes=64)
    assert complaint.startswith(
        "data.drop_last needs equal shares of a batch: with data.global_batch = 202 and 64 lanes"
    )
    assert "data.num_lanes=2" in complaint
    for num_lanes in (1, 4, 50, 64, 100, 128):
        assert DataConfig(table_rows=TABLES, drop_last=True, global_batch=100, num_lanes=num_lanes).drop_last


def _write_shop(path: Path, *, rows: str = ", rows = 7") -> Path:
    path.write_text(
        "separator = ','\nheader = true\ncolumns = [\n"
        "{ name = 'clicked', role = 'label', kind = 'int' },\n"
        "{ name = 'price', role = 'dense', kind = 'float', encoding = 'identity', missing = -1 },\n"
        f"{{ name = 'city', role = 'category', kind = 'string', encoding = 'hash'{rows} }},\n]\n"
    )
    return path


def test_a_schema_file_is_read_once_and_for_all(tmp_path: Path) -> None:
    path = _write_shop(tmp_path / "shop.toml")
    config = from_tree(DataConfig, {"row_schema": str(path)})
    assert config.schema_of_rows.name == "shop"
    assert config.schema_of_rows.columns[1].missing == -1.0
    assert config.num_table_rows == (7,)
    path.unlink()
    assert from_tree(DataConfig, tomllib.loads(to_toml(config))) == config


def test_table_sizes_of_the_settings_come_before_those_of_the_schema(tmp_path: Path) -> None:
    path = _write_shop(tmp_path / "shop.toml")
    assert from_tree(DataConfig, {"row_schema": str(path), "table_rows": [5]}).num_table_rows == (5,)


def test_a_table_without_a_size_is_refused_by_name(tmp_path: Path) -> None:
    path = _write_shop(tmp_path / "shop.toml", rows="")
    assert _complaint(table_rows=[], row_schema=str(path)) == (
        "data.table_rows is empty and schema shop gives no rows for city; set one of them"
    )
    assert _complaint(table_rows=[]) == (
        "data.table_rows is empty and schema criteo gives no rows for cat_0, cat_1, cat_2, …; set one of them"
    )


@pytest.mark.parametrize("count", [1, 25, 27])
def test_every_category_needs_a_table(count: int) -> None:
    assert _complaint(table_rows=[50] * count) == (
        f"data.table_rows has {count} numbers; schema criteo has 26 category columns"
    )


def test_a_holdout_is_given_once_and_needs_no_other_files() -> None:
    assert "say the same thing twice" in _complaint(holdout_frac=0.1, holdout_rows=10)
    assert "leave out data.validation_files" in _complaint(holdout_frac=0.1, test_files=["a"])
    assert DataConfig(table_rows=TABLES, holdout_rows=10, train_files=("*.csv",)).has_holdout


@pytest.mark.parametrize("rows", [0, -3])
def test_a_table_has_a_row(rows: int) -> None:
    assert _complaint(table_rows=[50] * 25 + [rows]) == f"data.table_rows holds {rows}; a table has at least one row"


@pytest.mark.parametrize("given", [("train_files",), ("test_files",), ("train_files", "test_files")])
def test_patterns_come_together(given: tuple[str, ...]) -> None:
    assert _complaint(**{name: ["day_*"] for name in given}).startswith(
        "data.train_files, data.validation_files and data.test_files are given together or not at all"
    )


def test_all_patterns_are_accepted() -> None:
    config = DataConfig(table_rows=TABLES, train_files=("a",), validation_files=("b",), test_files=("c",))
    assert (config.train_files, config.validation_files, config.test_files) == (("a",), ("b",), ("c",))


@pytest.mark.parametrize(
    ("cap", "expected"), [(None, (10, 3000, 7)), (100, (10, 100, 7)), (2, (2, 2, 2)), (9000, (10, 3000, 7))]
)
def test_the_cap_applies_to_every_table(cap: int | None, expected: tuple[int, ...]) -> None:
    config = DataConfig(table_rows=(10, 3000, 7) + (50,) * 23, max_rows_per_table=cap)
    assert config.num_table_rows[:3] == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("global_batch", 0),
        ("eval_batch", -1),
        ("num_lanes", 0),
        ("num_lanes", 5000),
        ("block_bytes", 0),
        ("reader_threads", 0),
        ("prefetch_batches", -1),
        ("max_rows_per_table", 1),
        ("holdout_frac", 1.0),
        ("holdout_frac", 0.0),
        ("holdout_rows", 1),
        ("bad_rows", "ignore"),
        ("global_batch", 2.5),
        ("dir", 3),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    assert _complaint(**{name: value}).startswith(f"{name} = ")


def test_an_unknown_setting_is_answered_with_its_neighbour() -> None:
    assert _complaint(batch=5).startswith("batch = 5 is not a setting")
    assert _complaint(global_batches=5) == "global_batches = 5 is not a setting; did you mean global_batch?"
