"""The Criteo schemas have the published fields, and their tables the published sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recmill.settings.criteo import (
    CRITEO,
    NUM_CATEGORIES,
    NUM_DENSE,
    PUBLISHED_TABLE_ROWS,
    capped_table_rows,
    scaled_table_rows,
)
from recmill.settings.schemas import SCHEMAS


def test_a_line_is_a_label_13_integers_and_26_hex_categories() -> None:
    roles = [(column.role, column.kind) for column in CRITEO.columns]
    assert roles == [("label", "int")] + [("dense", "int")] * 13 + [("category", "hex")] * 26
    assert (NUM_DENSE, NUM_CATEGORIES) == (13, 26)
    assert CRITEO.separator == "\t"


def test_schemas_are_found_by_their_names() -> None:
    assert {name: schema.name for name, schema in SCHEMAS.items()} == {name: name for name in SCHEMAS}


def test_kaggle_has_the_columns_of_criteo_and_tables_for_its_known_values() -> None:
    kaggle = SCHEMAS["kaggle"]
    assert [(c.name, c.role, c.kind) for c in kaggle.columns] == [(c.name, c.role, c.kind) for c in CRITEO.columns]
    assert sum(column.rows or 0 for column in kaggle.columns) == 33_762_577 + NUM_CATEGORIES


def test_the_published_tables_have_204_million_rows() -> None:
    assert len(PUBLISHED_TABLE_ROWS) == NUM_CATEGORIES
    assert sum(PUBLISHED_TABLE_ROWS) == 204_184_588


@given(scale=st.floats(1e-9, 1.0), min_rows=st.integers(1, 100))
def test_scaled_tables_keep_the_profile(scale: float, min_rows: int) -> None:
    scaled = scaled_table_rows(scale, min_rows=min_rows)
    for rows, published in zip(scaled, PUBLISHED_TABLE_ROWS, strict=True):
        assert min(published, min_rows) <= rows <= published
        assert rows in (round(published * scale), min(published, min_rows))


def test_scale_one_is_the_published_profile() -> None:
    assert scaled_table_rows(1.0) == PUBLISHED_TABLE_ROWS


@given(total=st.integers(NUM_CATEGORIES, 2 * sum(PUBLISHED_TABLE_ROWS)))
def test_capped_tables_use_the_total_as_well_as_one_cap_can(total: int) -> None:
    capped = capped_table_rows(total)
    cap = max(capped)
    assert capped == tuple(min(rows, cap) for rows in PUBLISHED_TABLE_ROWS)
    assert sum(capped) <= total
    one_more = sum(min(rows, cap + 1) for rows in PUBLISHED_TABLE_ROWS)
    assert one_more > total or capped == PUBLISHED_TABLE_ROWS


@pytest.mark.parametrize("total", [sum(PUBLISHED_TABLE_ROWS), 10**12])
def test_a_large_total_caps_nothing(total: int) -> None:
    assert capped_table_rows(total) == PUBLISHED_TABLE_ROWS
