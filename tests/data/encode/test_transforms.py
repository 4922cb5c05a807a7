"""Encodings are the published formulas, finite for every finite number, within their tables for every value."""

import math

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recmill.data.encode import transforms as encode
from recmill.data.encode.transforms import category_plan, dense_plan, encode_categories, encode_dense
from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY
from recmill.errors import ConfigError
from recmill.settings.columns import CategoryTransform, Column, DenseTransform, MissingCategory, Schema
from recmill.settings.encoding import Encoding
from recmill.settings.tree import from_tree
from tests.data.lines import COUNT, SHOP, TAGS, schema_of

FLOAT32_MAX = float(np.finfo(np.float32).max)
ENCODINGS = [
    Encoding(dense="log(x+3)"),
    Encoding(dense="log(x+2)"),
    Encoding(dense="log(x-min+2)", dense_min=-7.0),
    Encoding(dense="identity"),
]
SHIFTS = {"log(x+3)": 3.0, "log(x+2)": 2.0, "log(x-min+2)": 9.0}
every_encoding = pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.dense)
every_category = pytest.mark.parametrize("category", ["modulo", "hash"])
every_missing = pytest.mark.parametrize("missing", ["own_row", "last_row", "value_zero"])

values_64 = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 2**32 + 2), st.sampled_from((0, 2**32, 2**64 - 1)))


def _dense(encoding: Encoding, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    out = np.full((len(numbers), 1), 99, np.float32)
    encode_dense(numbers.reshape(-1, 1), dense_plan(encoding, schema_of(COUNT)), out)
    return out[:, 0]


def _formula(encoding: Encoding, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """The published one, in float64, rounded once."""
    if encoding.dense == "identity":
        return np.clip(numbers, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)
    return np.log(np.maximum(numbers + SHIFTS[encoding.dense], 1.0)).astype(np.float32)


def _categories(names: tuple[str, ...]) -> Schema:
    return schema_of(*(Column(name=name, role="category", kind="int") for name in names))


def _ids(encoding: Encoding, names: tuple[str, ...], rows: tuple[int, ...], values: list[int]) -> NDArray[np.int64]:
    """Every value in every column, (value, column)."""
    raw = np.repeat(np.array(values, np.uint64)[:, None], len(names), axis=1)
    out = np.full(raw.shape, -1)
    encode_categories(raw, category_plan(encoding, _categories(names), rows), out)
    return out


@every_encoding
def test_dense_numbers_follow_the_formula(encoding: Encoding) -> None:
    rng = np.random.default_rng(1)
    numbers = np.concatenate(
        [rng.integers(-100, 10_000, 3000), rng.normal(0, 1e4, 3000), np.exp(rng.normal(0, 40, 3000))]
    )
    # numpy's logarithm may differ from the C library's in the last bit of a double
    np.testing.assert_array_max_ulp(_dense(encoding, numbers), _formula(encoding, numbers), maxulp=1)


@pytest.mark.parametrize("encoding", ENCODINGS[:3], ids=lambda encoding: encoding.dense)
def test_whole_numbers_have_their_exact_logarithm_in_the_table_and_beyond(encoding: Encoding) -> None:
    beyond = len(encode._LOG_TABLE) + 2000
    numbers = np.arange(-20.0, beyond)
    expected = [np.float32(math.log(max(x + SHIFTS[encoding.dense], 1.0))) for x in numbers.tolist()]
    np.testing.assert_array_equal(_dense(encoding, numbers), np.array(expected))


@pytest.mark.parametrize("encoding", ENCODINGS[:3], ids=lambda encoding: encoding.dense)
def test_numbers_between_whole_ones_are_not_read_from_the_table(encoding: Encoding) -> None:
    numbers = np.concatenate([np.nextafter(np.arange(1.0, 5000.0), toward) for toward in (-np.inf, np.inf)]) + 0.25
    expected = [np.float32(math.log(max(x + SHIFTS[encoding.dense], 1.0))) for x in numbers.tolist()]
    np.testing.assert_array_equal(_dense(encoding, numbers), np.array(expected))


@every_encoding
@settings(max_examples=200, deadline=None)
@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_every_finite_number_stays_finite(encoding: Encoding, numbers: list[float]) -> None:
    dense = _dense(encoding, np.array([*numbers, -1e300, 1e300, -1e38, 1e38, -5e-324]))
    assert np.isfinite(dense).all()
    if encoding.dense != "identity":
        assert (dense >= 0).all()


def test_identity_clamps_to_what_float32_holds() -> None:
    numbers = np.array([1e39, -1e39, 1e38, -1e38, 3.5, -0.0, np.nextafter(FLOAT32_MAX, np.inf)])
    expected = [FLOAT32_MAX, -FLOAT32_MAX, np.float32(1e38), -np.float32(1e38), 3.5, -0.0, FLOAT32_MAX]
    np.testing.assert_array_equal(_dense(Encoding(dense="identity"), numbers), np.array(expected, np.float32))


@every_encoding
@pytest.mark.parametrize("missing", [0.0, -1.0, 12.5])
def test_a_missing_number_stands_for_the_chosen_one(encoding: Encoding, missing: float) -> None:
    chosen = encoding.with_({"dense_missing": missing})
    with_gap, filled = _dense(chosen, np.array([5.0, np.nan, -2.0])), _dense(encoding, np.array([5.0, missing, -2.0]))
    np.testing.assert_array_equal(with_gap, filled)


@every_missing
@settings(max_examples=100, deadline=None)
@given(values=st.lists(values_64, min_size=1), rows=st.integers(2, 2**40))
def test_modulo_is_the_remainder(missing: MissingCategory, values: list[int], rows: int) -> None:
    values = [value for value in values if value != MISSING_CATEGORY]
    num_reserved, first = int(missing != "value_zero"), int(missing == "own_row")
    ids = _ids(Encoding(category_missing=missing), ("a",), (rows,), values)
    assert ids[:, 0].tolist() == [value % (rows - num_reserved) + first for value in values]


@every_category
@every_missing
@settings(max_examples=100, deadline=None)
@given(values=st.lists(values_64, min_size=1), rows=st.sampled_from((2, 3, 1000, 2**31, 2**32, 2**32 + 1, 2**33)))
def test_every_id_is_a_row_of_its_table(
    category: CategoryTransform, missing: MissingCategory, values: list[int], rows: int
) -> None:
    ids = _ids(Encoding(category=category, category_missing=missing), ("a", "b"), (rows, 2), values)
    assert (ids >= 0).all()
    assert (ids < [rows, 2]).all()


@every_category
def test_a_missing_category_has_a_row_of_its_own(category: CategoryTransform) -> None:
    encoding = Encoding(category=category, category_missing="own_row")
    values = [*range(5000), *(2**63 - 1 - i for i in range(100)), *(2**64 - 1 - i for i in range(100))]
    assert _ids(encoding, ("a", "b"), (2, 17), values).min() == 1
    assert _ids(encoding, ("a", "b"), (2, 17), [int(MISSING_CATEGORY)]).tolist() == [[0, 0]]


@every_category
@pytest.mark.parametrize("wide", [0, 2**40])
def test_a_missing_category_may_have_the_last_row_to_itself(category: CategoryTransform, wide: int) -> None:
    """By the kernel for values below 2^32, and by the one for any."""
    encoding = Encoding(category=category, category_missing="last_row")
    ids = _ids(encoding, ("a", "b"), (2, 17), [*range(5000), wide, int(MISSING_CATEGORY)])
    assert ids[:-1].max(axis=0).tolist() == [0, 15]
    assert ids[:-1].min() == 0
    assert ids[-1].tolist() == [1, 16]


def _hex_columns(num_columns: int) -> tuple[Column, ...]:
    return tuple(Column(name=f"C{i + 1}", role="category", kind="hex") for i in range(num_columns))


def _spark_xxhash64(*arguments: int | bytes) -> int:
    """Spark's function of integers and texts: each is hashed with the hash so far as seed."""
    hashed = 42
    for argument in arguments:
        content = argument if isinstance(argument, bytes) else argument.to_bytes(4, "little")
        hashed = xxhash.xxh64_intdigest(content, hashed)
    return hashed


def test_the_oracle_is_sparks_function() -> None:
    """The example of Spark's documentation, xxhash64('Spark', array(123), 2); an array is its elements."""
    assert _spark_xxhash64(b"Spark", 123, 2) == 5602566077635097486


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.integers(0, 2**32 - 1), min_size=1), rows=st.sampled_from((2, 41, 2**33)))
def test_xxhash64_is_that_of_the_digits_after_the_number_of_the_column(values: list[int], rows: int) -> None:
    """As OneFlow's Scala tool has it, with columns counted from 1, then modulo; missing has the last row."""
    raw = np.repeat(np.array([*values, int(MISSING_CATEGORY)], np.uint64)[:, None], 3, axis=1)
    ids = np.full(raw.shape, -1)
    encoding = Encoding(category="xxhash64", category_missing="last_row")
    encode_categories(raw, category_plan(encoding, schema_of(*_hex_columns(3)), (rows,) * 3), ids)
    for column in range(3):
        hashes = [_spark_xxhash64(column + 1, f"{value:08x}".encode()) for value in values]
        assert ids[:, column].tolist() == [*(hashed % (rows - 1) for hashed in hashes), rows - 1]


def test_xxhash64_is_refused_for_what_has_no_digits() -> None:
    with pytest.raises(ConfigError, match=r"^column b is of kind int, and the encoding 'xxhash64' is of hexadecimal"):
        category_plan(Encoding(category="xxhash64"), _categories(("b",)), (50,))


def test_the_last_row_is_refused_where_a_vocabulary_has_row_0() -> None:
    column = Column(name="b", role="category", kind="hex", missing="last_row")
    with pytest.raises(ConfigError, match=r"^column b: missing = 'last_row' does not go with a vocabulary"):
        category_plan(Encoding(category="vocabulary"), schema_of(column), (50,))


@every_category
def test_a_missing_category_may_stand_for_zero(category: CategoryTransform) -> None:
    encoding = Encoding(category=category, category_missing="value_zero")
    missing, zero = _ids(encoding, ("a", "b"), (1000, 7), [int(MISSING_CATEGORY), 0])
    assert missing.tolist() == zero.tolist()


def test_all_rows_of_a_table_can_be_reached() -> None:
    for category in ("modulo", "hash"):
        ids = _ids(Encoding.model_validate({"category": category}), ("a",), (100,), list(range(5000)))
        assert np.unique(ids).tolist() == list(range(1, 100))


def test_hashes_differ_from_column_to_column_and_not_from_time_to_time() -> None:
    encoding = Encoding(category="hash")
    ids = _ids(encoding, ("a", "b"), (2**40, 2**40), list(range(1000)))
    assert (ids[:, 0] != ids[:, 1]).all()
    assert len(np.unique(ids)) == ids.size
    np.testing.assert_array_equal(ids, _ids(encoding, ("a", "b"), (2**40, 2**40), list(range(1000))))
    swapped = _ids(encoding, ("b", "a"), (2**40, 2**40), list(range(1000)))
    np.testing.assert_array_equal(ids[:, ::-1], swapped)


def test_hashed_values_spread_evenly() -> None:
    ids = _ids(Encoding(category="hash"), ("a",), (11,), [i * 10 for i in range(10_000)])
    counts = np.bincount(ids[:, 0], minlength=11)[1:]
    assert counts.min() > 800
    assert counts.max() < 1200


@pytest.mark.parametrize(
    ("dense", "dense_min", "message"),
    [
        (
            "log(x-min+2)",
            None,
            "encoding.dense_min is None and encoding.dense is 'log(x-min+2)': the minimum is needed",
        ),
        ("log(x+3)", -1.0, "encoding.dense_min is -1.0 and encoding.dense is 'log(x+3)': the minimum is needed"),
    ],
)
def test_a_minimum_goes_with_its_formula(dense: DenseTransform, dense_min: float | None, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Encoding(dense=dense, dense_min=dense_min)
    assert message in str(caught.value)


@pytest.mark.parametrize(("missing", "rows", "least"), [("own_row", 1, 2), ("last_row", 1, 2), ("value_zero", 0, 1)])
def test_a_table_needs_room_for_a_value(missing: MissingCategory, rows: int, least: int) -> None:
    encoding = Encoding(category_missing=missing)
    with pytest.raises(ConfigError, match=rf"^the table of b has {rows} rows; it needs at least {least}$"):
        category_plan(encoding, _categories(("a", "b")), (5, rows))
    category_plan(encoding, _categories(("a", "b")), (5, least))


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"dense": "log"}, 'dense = "log" is rejected'),
        ({"category": "mod"}, 'category = "mod" is rejected'),
        ({"category_missing": "row"}, 'category_missing = "row" is rejected'),
        ({"dense_missing": "0"}, 'dense_missing = "0" is rejected'),
        ({"dense_minimum": 1.0}, "dense_minimum = 1.0 is not a setting; did you mean dense_min?"),
    ],
)
def test_unknown_settings_are_refused_by_name(setting: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_tree(Encoding, setting)
    assert complaint in str(caught.value)


# What a column says for itself.


def _one_dense(column: Column, encoding: Encoding, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    out = np.full((len(numbers), 1), 99, np.float32)
    encode_dense(numbers[:, None], dense_plan(encoding, schema_of(column)), out)
    return out[:, 0]


def test_each_dense_column_is_encoded_as_if_it_were_alone() -> None:
    columns = [
        Column(name="default", role="dense", kind="float"),
        Column(name="plain", role="dense", kind="float", encoding="identity"),
        Column(name="two", role="dense", kind="float", encoding="log(x+2)", missing=9.0),
        Column(name="low", role="dense", kind="float", encoding="log(x-min+2)", min=-7.0),
        Column(name="gap", role="dense", kind="float", missing=4.0),
    ]
    encoding = Encoding(dense="log(x+3)", dense_missing=1.0)
    alone = [
        Encoding(dense="log(x+3)", dense_missing=1.0),
        Encoding(dense="identity", dense_missing=1.0),
        Encoding(dense="log(x+2)", dense_missing=9.0),
        Encoding(dense="log(x-min+2)", dense_min=-7.0, dense_missing=1.0),
        Encoding(dense="log(x+3)", dense_missing=4.0),
    ]
    numbers = np.array([0.0, 3.0, np.nan, -5.0, 1e6, 0.5])
    together = np.full((len(numbers), len(columns)), 99, np.float32)
    raw = np.repeat(numbers[:, None], len(columns), axis=1)
    encode_dense(raw, dense_plan(encoding, schema_of(*columns)), together)
    for i, (column, expected) in enumerate(zip(columns, alone, strict=True)):
        np.testing.assert_array_equal(together[:, i], _one_dense(column, encoding, numbers))
        np.testing.assert_array_equal(together[:, i], _dense(expected, numbers))


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(values_64, min_size=1),
    choices=st.lists(
        st.tuples(
            st.sampled_from(("modulo", "hash", None)), st.sampled_from(("own_row", "last_row", "value_zero", None))
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_each_category_column_is_encoded_as_if_it_were_alone(
    values: list[int], choices: list[tuple[CategoryTransform | None, MissingCategory | None]]
) -> None:
    names = tuple(f"c{i}" for i in range(len(choices)))
    columns = [
        Column(name=name, role="category", kind="int", encoding=transform, missing=missing)
        for name, (transform, missing) in zip(names, choices, strict=True)
    ]
    rows = (1000, 7, 2**33, 50)[: len(choices)]
    raw = np.repeat(np.array([*values, int(MISSING_CATEGORY)], np.uint64)[:, None], len(names), axis=1)
    ids = np.full(raw.shape, -1)
    encode_categories(raw, category_plan(Encoding(), schema_of(*columns), rows), ids)
    for i, (transform, missing) in enumerate(choices):
        settled = Encoding(category=transform or "modulo", category_missing=missing or "own_row")
        expected = _ids(settled, (names[i],), (rows[i],), [*values, int(MISSING_CATEGORY)])
        np.testing.assert_array_equal(ids[:, i], expected[:, 0])


@pytest.mark.parametrize("category", ["modulo", "hash"])
def test_slots_of_one_column_share_its_table_and_absent_ones_have_no_row(category: CategoryTransform) -> None:
    absent, missing = int(ABSENT_CATEGORY), int(MISSING_CATEGORY)
    schema = schema_of(SHOP, TAGS)  # one slot, and three
    raw = np.array([[5, 7, 5, 7], [absent, missing, absent, absent], [missing, 5, absent, absent]], np.uint64)
    ids = np.full(raw.shape, 99)
    encode_categories(raw, category_plan(Encoding(category=category), schema, (50, 1000)), ids)
    alone = _ids(Encoding(category=category), ("tags",), (1000,), [5, 7])[:, 0].tolist()
    assert ids[0, 1:].tolist() == [alone[1], alone[0], alone[1]]
    assert ids[1, 1:].tolist() == [0, -1, -1]
    assert ids[2].tolist() == [0, alone[0], -1, -1]
    assert ids[1, 0] > 0, "a single value is never absent, be it that number"
