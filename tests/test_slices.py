"""Metrics of parts of rows: against scikit-learn and plain loops; intervals cover the truth as often as they say."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from recmill.seeds import rng
from recmill.slices import (
    Estimate,
    auroc,
    calibration,
    group_metrics,
    logloss,
    rows_by_value,
    slice_metrics,
    top_metrics,
)

Rows = tuple[NDArray[np.float64], NDArray[np.bool_]]


def drawn(seed: int, num_rows: int = 400, *, are_coarse: bool = False) -> Rows:
    """Probabilities that are true, and clicks by them; coarse ones have many ties."""
    random = rng(seed, "slices")
    p = random.beta(1.5, 4.0, num_rows)
    if are_coarse:
        p = np.round(p, 1).clip(0.05, 0.95)
    return p, random.random(num_rows) < p


@pytest.mark.parametrize("are_coarse", [False, True])
def test_values_are_those_of_scikit_learn(are_coarse: bool) -> None:
    for seed in range(20):
        p, clicks = drawn(seed, are_coarse=are_coarse)
        found = slice_metrics(p, p, clicks.astype(np.float32))
        assert found.auroc.value == pytest.approx(roc_auc_score(clicks, p), abs=1e-12)
        assert found.logloss.value == pytest.approx(log_loss(clicks, p), abs=1e-12)
        assert found.calibration.value == pytest.approx(p.mean() / clicks.mean(), abs=1e-12)
        assert (found.num_rows, found.num_clicks) == (len(p), clicks.sum())


def test_intervals_cover_the_truth_in_95_percent_of_worlds() -> None:
    """The truth is that of a world a thousand times as large."""
    p, clicks = drawn(1, 400_000)
    truths = {auroc: auroc(p, clicks).value, logloss: logloss(p, clicks).value, calibration: 1.0}
    for metric, truth in truths.items():
        assert truth is not None
        intervals = [metric(*drawn(seed)) for seed in range(2, 402)]
        covered = sum(low <= truth <= high for _, low, high in intervals if low is not None and high is not None)
        assert 0.92 <= covered / len(intervals) <= 0.98, metric.__name__


def test_gauc_is_the_mean_of_the_users_aurocs_by_their_rows() -> None:
    for seed in range(10):
        p, clicks = drawn(seed, are_coarse=True)
        users = rng(seed, "users").integers(0, 90, len(p))
        total, weight = 0.0, 0
        for user in np.unique(users):
            own = users == user
            if 0 < clicks[own].sum() < own.sum():
                total, weight = total + own.sum() * roc_auc_score(clicks[own], p[own]), weight + own.sum()
        found = group_metrics(users, p, clicks.astype(np.float32))
        assert found.gauc.value == pytest.approx(total / weight, abs=1e-12)
        assert found.rows_frac == weight / len(p)
        assert found.num_groups == len(np.unique(users))
        assert found.gauc.low is not None
        assert found.gauc.low < total / weight


def test_the_top_is_what_sorting_gives_and_ties_count_by_their_share() -> None:
    p, clicks = drawn(3, 1000)
    for percent, found in zip((1, 5, 100), top_metrics(p, clicks, (1, 5, 100)), strict=True):
        best = np.argsort(-p)[: 10 * percent]
        assert found.num_rows == 10 * percent
        assert found.recall.value == pytest.approx(clicks[best].sum() / clicks.sum())
        assert found.lift.value == pytest.approx(clicks[best].mean() / clicks.mean())
    (equal,) = top_metrics(np.zeros(1000), clicks, (10,))
    assert equal.lift.value == pytest.approx(1.0), "scores that tell nothing find what chance finds"
    assert equal.recall.value == pytest.approx(0.1)


def test_the_most_frequent_values_come_first_and_the_rest_is_one() -> None:
    codes = np.array([0, 1, 1, 2, 2, 2, 3])
    found = rows_by_value(codes, ["a", "b", "c", "d"], 2)
    assert [(name, sorted(rows.tolist())) for name, rows in found] == [
        ("c", [3, 4, 5]),
        ("b", [1, 2]),
        ("(2 other values)", [0, 6]),
    ]
    assert [name for name, _ in rows_by_value(codes, ["a", "b", "c", "d"], 4)] == ["c", "b", "a", "d"]


def test_what_rows_do_not_define_is_none() -> None:
    none, p = np.zeros(3, bool), np.array([0.1, 0.2, 0.3])
    assert auroc(p, none) == calibration(p, none) == Estimate(None)
    assert slice_metrics(p[:0], p[:0], none[:0]).logloss == Estimate(None)
    assert group_metrics(np.array([0, 0, 1]), p, none).gauc == Estimate(None)
    assert top_metrics(p, none, [50])[0].recall == Estimate(None)
    assert auroc(p, np.array([True, False, False])).low is None, "a single click has no variance"


@pytest.mark.parametrize("are_coarse", [False, True])
def test_a_row_of_weight_2_counts_as_two_rows(are_coarse: bool) -> None:
    for seed in range(20):
        p, clicks = drawn(seed, are_coarse=are_coarse)
        random = rng(seed, "weights")
        weights = random.integers(0, 4, len(p)).astype(np.float32)
        groups = random.integers(0, 30, len(p))
        times = weights.astype(int)
        many_p, many_clicks, many_groups = np.repeat(p, times), np.repeat(clicks, times), np.repeat(groups, times)
        found, many = slice_metrics(p, p, clicks, weights), slice_metrics(many_p, many_p, many_clicks)
        for name in ("auroc", "logloss", "calibration"):
            assert getattr(found, name).value == pytest.approx(getattr(many, name).value, abs=1e-9), name
        found_gauc, many_gauc = (
            group_metrics(groups, p, clicks, weights),
            group_metrics(many_groups, many_p, many_clicks),
        )
        assert found_gauc.gauc.value == pytest.approx(many_gauc.gauc.value, abs=1e-9)
        assert found_gauc.rows_frac == pytest.approx(many_gauc.rows_frac)
        # a share of the weights that is a whole number of rows
        percent = 100 * (int(times.sum()) // 10) / int(times.sum())
        (top,), (many_top,) = top_metrics(p, clicks, [percent], weights), top_metrics(many_p, many_clicks, [percent])
        assert top.recall.value == pytest.approx(many_top.recall.value, abs=1e-9)
        assert top.lift.value == pytest.approx(many_top.lift.value, abs=1e-9)


def test_weights_of_one_size_change_nothing() -> None:
    p, clicks = drawn(3)
    groups = rng(3, "weights").integers(0, 30, len(p))
    same = np.full(len(p), 2.5)
    plain, weighted = slice_metrics(p, p, clicks), slice_metrics(p, p, clicks, same)
    for name in ("auroc", "logloss", "calibration"):
        assert getattr(plain, name) == pytest.approx(getattr(weighted, name), abs=1e-9), name
    assert group_metrics(groups, p, clicks).gauc == pytest.approx(group_metrics(groups, p, clicks, same).gauc, abs=1e-9)
