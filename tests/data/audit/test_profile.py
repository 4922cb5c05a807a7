"""Profiles beside numpy, Counter and scikit-learn, within their bounds and beyond."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from recmill.data.audit.profile import (
    QUANTILES,
    RESERVED_TABLE_ROWS,
    CategoryColumn,
    CategoryProfile,
    DenseColumn,
    DenseProfile,
    auroc_of_groups,
    count_covering,
    held_out_auroc,
    ranked_auroc,
)
from recmill.data.audit.tally import EMPTY

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]


def _codes(labels: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.uint8]:
    return (labels + 2 * rng.integers(0, 2, len(labels))).astype(np.uint8)


def _places(num_rows: int) -> Words:
    return np.random.default_rng(9).integers(0, 2**63, num_rows).astype(np.uint64)


def _profile_numbers(numbers: Floats, labels: NDArray[np.bool_], *, cut: int = 10**9) -> DenseProfile:
    column = DenseColumn("x", max_numbers=1 << 13)
    codes, places = _codes(labels, np.random.default_rng(0)), _places(len(numbers))
    for at in range(0, len(numbers), cut):
        column.add(numbers[at : at + cut], codes[at : at + cut], places[at : at + cut])
    return column.profile()


def _profile_values(
    values: Words, labels: NDArray[np.bool_], *, max_values: int = 1 << 12, coverage: float = 0.9, cut: int = 10**9
) -> CategoryProfile:
    column = CategoryColumn("c", "int", max_values=max_values)
    codes, places = _codes(labels, np.random.default_rng(0)), _places(len(values))
    for at in range(0, len(values), cut):
        column.add(values[at : at + cut], codes[at : at + cut], places[at : at + cut])
    return column.profile(coverage, len(values))


@settings(max_examples=50, deadline=None)
@given(numbers=st.lists(st.one_of(st.integers(-5, 5).map(float), st.floats(allow_infinity=False)), min_size=1))
def test_few_numbers_have_exact_quantiles(numbers: list[float]) -> None:
    values = np.array(numbers)
    profile = _profile_numbers(values, np.zeros(len(values), bool))
    present = values[~np.isnan(values)]
    assert profile.missing_frac == pytest.approx(np.isnan(values).mean())
    assert profile.is_constant == (len({str(x + 0.0) for x in numbers}) == 1)
    assert profile.auroc is None
    if len(present) == 0:
        assert (profile.quantiles, profile.minimum, profile.maximum) == (None, None, None)
        return
    assert (profile.minimum, profile.maximum) == (present.min(), present.max())
    assert (profile.quantile_method, profile.quantile_error_frac) == ("exact", 0.0)
    expected = np.quantile(present, QUANTILES, method="inverted_cdf")
    assert profile.quantiles is not None
    assert list(profile.quantiles.values()) == expected.tolist()


def test_many_numbers_have_quantiles_within_the_stated_error() -> None:
    rng = np.random.default_rng(3)
    numbers = np.concatenate([rng.normal(-50, 10, 20_000), rng.lognormal(3, 3, 40_000)])
    profile = _profile_numbers(rng.permutation(numbers), rng.random(len(numbers)) < 0.3)
    assert profile.quantile_method == "histogram"
    assert 0 < profile.quantile_error_frac < 0.01
    assert (profile.minimum, profile.maximum) == (numbers.min(), numbers.max())
    assert profile.quantiles is not None
    expected = np.quantile(numbers, QUANTILES, method="inverted_cdf")
    np.testing.assert_allclose(list(profile.quantiles.values()), expected, rtol=profile.quantile_error_frac)
    assert profile.auroc == pytest.approx(0.5, abs=0.02)


def test_profiles_do_not_depend_on_how_rows_are_cut() -> None:
    rng = np.random.default_rng(4)
    numbers, labels = rng.normal(size=30_000), rng.random(30_000) < 0.5
    values = (rng.zipf(1.2, 30_000) % 2**40).astype(np.uint64)
    assert _profile_numbers(numbers, labels, cut=999) == _profile_numbers(numbers, labels)
    for max_values in (64, 1 << 15):
        whole = _profile_values(values, labels, max_values=max_values)
        assert _profile_values(values, labels, max_values=max_values, cut=777) == whole


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(st.one_of(st.integers(0, 9), st.just(int(EMPTY))), min_size=1, max_size=200),
    coverage=st.sampled_from([0.07, 0.5, 0.9, 0.99, 1.0]),
)
def test_few_values_are_counted_like_a_counter(values: list[int], coverage: float) -> None:
    profile = _profile_values(np.array(values, np.uint64), np.zeros(len(values), bool), coverage=coverage)
    counts = Counter(value for value in values if value != EMPTY)
    num_present = counts.total()
    assert profile.missing_frac == pytest.approx(1 - num_present / len(values))
    assert (profile.num_distinct, profile.distinct_method, profile.distinct_error_frac) == (len(counts), "exact", 0.0)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    assert [(top.value, top.rows) for top in profile.top_values] == [(str(v), n) for v, n in ranked[:5]]
    covered = [sum(n for _, n in ranked[:k]) for k in range(len(ranked) + 1)]
    assert profile.covering_values == next(k for k, rows in enumerate(covered) if rows >= coverage * num_present - 1e-9)
    assert profile.table_rows == profile.covering_values + RESERVED_TABLE_ROWS
    assert profile.is_constant == (len(set(values)) == 1)


@pytest.mark.parametrize("exponent", [1.05, 1.3, 2.0])
def test_many_values_are_estimated(exponent: float) -> None:
    rng = np.random.default_rng(5)
    num_rows = 200_000
    values = np.concatenate(
        [(rng.zipf(exponent, num_rows // 2) % 2**30), rng.integers(2**30, 2**40, num_rows // 2)]
    ).astype(np.uint64)
    values = rng.permutation(values)
    profile = _profile_values(values, rng.random(num_rows) < 0.5, max_values=1 << 13, coverage=0.8)
    counts = Counter(values.tolist())
    assert profile.distinct_method == "sample"
    assert profile.num_distinct == pytest.approx(len(counts), rel=4 * profile.distinct_error_frac)
    for (value, rows), top in zip(counts.most_common(2), profile.top_values, strict=False):
        assert top.value == str(value)
        assert 0 <= rows - top.rows <= profile.top_error_rows
    ranked = np.cumsum(sorted(counts.values(), reverse=True))
    expected = int(np.searchsorted(ranked, 0.8 * num_rows)) + 1
    assert profile.covering_values == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        ("hex", 0xBADF00D, "0badf00d"),
        ("int", 2**64 - 3, "-3"),
        ("int", 17, "17"),
        ("string", 0xABC, "xxh64:0000000000000abc"),
    ],
)
def test_top_values_are_written_as_in_the_file(kind: str, value: int, written: str) -> None:
    column = CategoryColumn("c", kind)
    column.add(np.array([value], np.uint64), np.zeros(1, np.uint8), _places(1))
    assert column.profile(0.99, 1).top_values[0].value == written


def test_covering_counts_copies_one_by_one() -> None:
    rows, copies = np.array([10.0, 3.0, 1.0]), np.array([1.0, 4.0, 100.0])
    assert [count_covering(rows, copies, wanted) for wanted in (0, 10, 11, 13, 14, 22, 23, 122, 999)] == [
        *(0, 1, 2, 2, 3, 5, 6, 105, 105)
    ]


@settings(max_examples=50, deadline=None)
@given(
    groups=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20).filter(
        lambda groups: sum(g[1] for g in groups) > 0 and sum(g[2] for g in groups) > 0
    )
)
def test_auroc_of_groups_is_that_of_their_rows(groups: list[tuple[int, int, int]]) -> None:
    scores, clicks, others = np.array(groups, np.float64).T
    rows = [(s, label) for s, c, o in groups for label in [1] * c + [0] * o]
    expected = roc_auc_score([label for _, label in rows], [score for score, _ in rows])
    assert auroc_of_groups(scores, clicks, others) == pytest.approx(expected)


def test_held_out_auroc_is_that_of_rates_learnt_on_the_other_half() -> None:
    rng = np.random.default_rng(6)
    value, half = rng.integers(0, 30, 4000), rng.integers(0, 2, 4000)
    label = rng.random(4000) < value / 40
    counts = np.zeros((30, 4), np.int64)
    np.add.at(counts, (value, 2 * half + label), 1)
    prior = label[half == 0].mean()
    rates = np.array(
        [
            (label[(value == v) & (half == 0)].sum() + prior) / (((value == v) & (half == 0)).sum() + 1)
            for v in range(30)
        ]
    )
    expected = roc_auc_score(label[half == 1], rates[value[half == 1]])
    assert held_out_auroc(counts) == pytest.approx(expected)


def test_a_number_that_tells_the_label_is_found_in_both_directions_and_by_its_absence() -> None:
    rng = np.random.default_rng(7)
    labels = rng.random(2000) < 0.3
    noise = rng.normal(size=2000)
    rising = _profile_numbers(noise + 10 * labels, labels).auroc
    falling = _profile_numbers(noise - 10 * labels, labels).auroc
    absent = _profile_numbers(np.where(labels, np.nan, noise), labels).auroc
    hidden = _profile_numbers(np.where(labels, 5.0, np.where(noise > 0, 1.0, 9.0)), labels).auroc
    assert all(auroc is not None and auroc > 0.99 for auroc in (rising, falling, absent, hidden))
    assert rising == pytest.approx(roc_auc_score(labels, noise + 10 * labels))
    honest = _profile_numbers(noise, labels).auroc
    assert honest is not None
    assert honest < 0.6


@pytest.mark.parametrize("max_values", [1 << 13, 1 << 10])
def test_unique_values_are_no_leak_and_telling_values_are(max_values: int) -> None:
    rng = np.random.default_rng(8)
    labels = rng.random(6000) < 0.3
    unique = rng.permutation(6000).astype(np.uint64)
    telling = (rng.integers(0, 1000, 6000) * 2 + labels).astype(np.uint64)
    absent = np.where(labels, EMPTY, telling)
    assert _profile_values(unique, labels, max_values=max_values).auroc == pytest.approx(0.5, abs=0.05)
    for values in (telling, absent):
        auroc = _profile_values(values, labels, max_values=max_values).auroc
        assert auroc is not None
        assert auroc > 0.95


def test_too_few_rows_say_nothing() -> None:
    counts = np.array([[0, 19, 0, 19], [500, 0, 500, 0]])
    assert held_out_auroc(counts) is None
    assert held_out_auroc(counts + np.array([0, 1, 0, 1])) is not None
    assert ranked_auroc(counts[:, :2] @ np.eye(2, 4, dtype=int), np.zeros(4, np.int64)) is None
