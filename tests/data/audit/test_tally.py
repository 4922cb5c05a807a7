"""Counts are those of a Counter; beyond their bound they are those of a sample, or of rounded values, in any order."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recmill.data.audit.heavy import MAX_VALUES, HeavyValues
from recmill.data.audit.tally import EMPTY, HashTally, Thinning, keys_of_numbers, numbers_of_keys

Words = NDArray[np.uint64]
Codes = NDArray[np.uint8]
ROUND_KEYS = 1 << 13


def _draw(rng: np.random.Generator, num_rows: int, num_values: int) -> tuple[Words, Codes]:
    inputs = rng.zipf(1.3, num_rows).astype(np.uint64) % np.uint64(num_values)
    inputs[rng.random(num_rows) < 0.1] = EMPTY
    return inputs, rng.integers(0, 4, num_rows).astype(np.uint8)


def _counted(inputs: Words, codes: Codes) -> dict[int, list[int]]:
    pairs = Counter(zip(inputs.tolist(), codes.tolist(), strict=True))
    return {key: [pairs[key, code] for code in range(4)] for key in set(inputs.tolist())}


def _told(tally: HashTally) -> dict[int, list[int]]:
    keys, counts = tally.entries()
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize(("thinning", "max_keys"), [("sample", 16), ("sample", 1 << 12), ("round", ROUND_KEYS)])
def test_few_values_are_counted_exactly(thinning: Thinning, max_keys: int) -> None:
    inputs, codes = _draw(np.random.default_rng(0), 5000, max_keys)
    expected = _counted(inputs, codes)
    missing = expected.pop(int(EMPTY))
    tally = HashTally(max_keys, thinning)
    for part in range(0, 5000, 777):
        tally.add(inputs[part : part + 777], codes[part : part + 777])
    assert _told(tally) == expected
    assert tally.missing.tolist() == missing
    assert (tally.is_exact, tally.num_distinct, tally.distinct_error_frac) == (True, len(expected), 0.0)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), max_keys=st.sampled_from([1, 4, 64, 1024]), cut=st.integers(1, 3000))
def test_a_sample_has_all_rows_of_its_values_in_whatever_order_they_came(seed: int, max_keys: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    inputs, codes = _draw(rng, 3000, 1 << 40)
    one, other = HashTally(max_keys, "sample"), HashTally(max_keys, "sample")
    one.add(inputs, codes)
    order = rng.permutation(len(inputs))
    for part in range(0, len(inputs), cut):
        other.add(inputs[order][part : part + cut], codes[order][part : part + cut])
    assert _told(one) == _told(other)
    assert one.level == other.level
    assert one.num_keys <= max_keys
    expected = _counted(inputs, codes)
    assert _told(one).items() <= expected.items()
    assert one.missing.tolist() == expected[int(EMPTY)]


def test_the_number_of_values_is_estimated_within_its_error() -> None:
    for num_values in (3_000, 20_000, 300_000):
        tally = HashTally(1 << 11, "sample")
        values = np.arange(num_values, dtype=np.uint64) * np.uint64(7919)
        tally.add(values, np.zeros(num_values, np.uint8))
        assert not tally.is_exact
        assert 0.02 < tally.distinct_error_frac < 0.04
        assert abs(tally.num_distinct / num_values - 1) < 4 * tally.distinct_error_frac


def test_rounded_numbers_stay_near_and_in_order() -> None:
    rng = np.random.default_rng(1)
    numbers = np.concatenate([rng.normal(0, 1e6, 30_000), rng.lognormal(0, 8, 30_000)])
    tally, shuffled = HashTally(ROUND_KEYS, "round"), HashTally(ROUND_KEYS, "round")
    codes = rng.integers(0, 4, len(numbers)).astype(np.uint8)
    tally.add(keys_of_numbers(numbers), codes)
    order = rng.permutation(len(numbers))
    shuffled.add(keys_of_numbers(numbers[order]), codes[order])
    assert _told(tally) == _told(shuffled)
    keys, counts = tally.entries()
    assert len(keys) <= ROUND_KEYS
    assert counts.sum(axis=0).tolist() == np.bincount(codes, minlength=4).tolist()
    order = np.argsort(keys.view(np.int64))
    rounded = np.repeat(numbers_of_keys(keys[order]), counts[order].sum(axis=1))
    np.testing.assert_allclose(rounded, np.sort(numbers), rtol=2.0 ** (tally.level - 52))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_keys_keep_numbers_and_their_order(numbers: list[float]) -> None:
    values = np.array(numbers)
    keys = keys_of_numbers(values)
    assert EMPTY not in keys
    np.testing.assert_array_equal(numbers_of_keys(keys), values)
    np.testing.assert_array_equal(values[np.argsort(keys.view(np.int64), kind="stable")], np.sort(values))


def test_missing_numbers_and_both_zeros() -> None:
    keys = keys_of_numbers(np.array([np.nan, -np.nan, 0.0, -0.0]))
    assert keys[0] == keys[1] == EMPTY
    assert keys[2] == keys[3]


@pytest.mark.parametrize("seeded_rows", [0, 5_000])
def test_heavy_values_are_found_and_counted_within_their_error(seeded_rows: int) -> None:
    rng = np.random.default_rng(2)
    frequent = np.repeat(np.arange(10, dtype=np.uint64), np.arange(1, 11) * 500)
    inputs = rng.permutation(np.concatenate([frequent, rng.integers(100, 1 << 40, 60_000).astype(np.uint64)]))
    inputs[::9] = EMPTY
    heavy = HeavyValues()
    if seeded_rows:
        seen = Counter(inputs[:seeded_rows][inputs[:seeded_rows] != EMPTY].tolist())
        heavy.seed(np.array(list(seen), np.uint64), np.array(list(seen.values())))
    for part in range(seeded_rows, len(inputs), 10_000):
        heavy.add(inputs[part : part + 10_000])
    keys, counts = heavy.entries()
    assert len(keys) <= MAX_VALUES
    found, expected = dict(zip(keys.tolist(), counts.tolist(), strict=True)), Counter(inputs.tolist())
    assert all(0 <= expected[key] - count <= heavy.error for key, count in found.items())
    assert {key for key, count in expected.items() if count > heavy.error and key != EMPTY} <= found.keys()
    assert 0 < heavy.error < 100
