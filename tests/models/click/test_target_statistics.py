"""Target statistics against counts by hand, and the promise that a row in training learns nothing of its own click."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.embeddings.table import TableSpec
from recmill.errors import ConfigError, DataError
from recmill.models.click.target_statistics import TargetStatistics
from recmill.seeds import rng
from recmill.settings.click_models import DnnConfig

SPECS = (TableSpec("a", 5), TableSpec("b", 3, num_slots=2), TableSpec("c", 4))
PRIOR_ROWS = 3.0


def some_rows(num_rows: int, seed: int = 0) -> Columns:
    rng = np.random.default_rng(seed)
    ids = rng.integers([0, -1, -1, 0], [5, 3, 3, 4], (num_rows, 4))
    dense = rng.integers(0, 3, (num_rows, 2)).astype(np.float32)  # rows repeat
    return Columns(dense, ids, (rng.random(num_rows) < 0.3).astype(np.float32))


def counted(columns: Columns, num_folds: int = 4) -> TargetStatistics:
    rates = TargetStatistics(SPECS, num_folds, PRIOR_ROWS)
    for start in range(0, columns.num_rows, 37):
        rates.count(columns.rows(start, start + 37))
    return rates


def rates_by_hand(ids: NDArray[np.int64], seen: Columns, base: float, weight: float | None = None) -> list[float]:
    """Of one row of ids, from the rows it may see and the rate of all rows; no weight: all rows of a value but one."""
    odds, rows = [], []
    for slots in ([0], [1, 2], [3]):
        shown = clicked = 0.0
        for value in ids[slots]:
            if value >= 0:
                hits = seen.ids[:, slots] == value
                num_rows = int(hits.sum())
                counted = (num_rows - 1) / max(1, num_rows) if weight is None else weight
                shown += counted * num_rows
                clicked += counted * int((hits.sum(axis=1) * seen.labels).sum())
        rate = (clicked + PRIOR_ROWS * base) / (shown + PRIOR_ROWS)
        odds.append(float(np.log(rate / (1 - rate))))
        rows.append(float(np.log1p(shown)))
    return odds + rows


def base_rate(columns: Columns) -> float:
    return float((columns.labels.sum() + 0.5) / (columns.num_rows + 1))


def test_rates_are_those_of_all_rows_but_in_training_of_other_folds() -> None:
    columns = some_rows(300)
    rates = counted(columns)
    base = base_rate(columns)
    folds = rates.folds(columns)
    assert set(folds.tolist()) == {0, 1, 2, 3}
    rates.eval()
    found = rates(columns)
    rates.train()
    found_in_training = rates(columns)
    for row in range(60):
        assert found[row].tolist() == pytest.approx(rates_by_hand(columns.ids[row], columns, base), rel=1e-5)
        others = folds != folds[row]
        seen = Columns(columns.dense[others], columns.ids[others], columns.labels[others])
        by_hand = rates_by_hand(columns.ids[row], seen, base, weight=4 / 3)
        assert found_in_training[row].tolist() == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("num_folds", [2, 4, 16])
def test_an_evaluation_sees_what_training_sees_on_average(num_folds: int) -> None:
    """Few values, each in a quarter of the rows: the layers must not be told other numbers than they learnt from."""
    rng, num_rows = np.random.default_rng(3), 40_000
    ids = rng.integers(0, 4, (num_rows, 1))
    labels = (rng.random(num_rows) < 0.1 + 0.1 * ids[:, 0]).astype(np.float32)
    columns = Columns(rng.random((num_rows, 1)).astype(np.float32), ids, labels)
    statistics = TargetStatistics((TableSpec("a", 4),), num_folds, 10.0)
    statistics.count(columns)
    in_training, in_evaluation = statistics.train()(columns), statistics.eval()(columns)
    for value in range(4):
        of_value = torch.from_numpy(ids[:, 0] == value)
        means = in_training[of_value].mean(dim=0), in_evaluation[of_value].mean(dim=0)
        torch.testing.assert_close(*means, rtol=0, atol=0.01)


def test_a_value_seen_once_tells_nothing_in_training_and_in_evaluation() -> None:
    columns = Columns(np.zeros((1, 1), np.float32), np.array([[2]]), np.ones(1, np.float32))
    statistics = TargetStatistics((TableSpec("a", 4),), 4, 10.0)
    statistics.count(columns)
    assert torch.equal(statistics.train()(columns), statistics.eval()(columns))


def test_in_training_no_click_of_a_row_s_own_fold_changes_its_rates() -> None:
    columns = some_rows(300)
    rates = counted(columns)
    fold = rates.folds(columns) == 2
    labels = columns.labels.copy()
    clicked, unclicked = (np.flatnonzero(fold & (labels == label))[:8] for label in (1, 0))
    labels[clicked], labels[unclicked] = 0, 1  # as many clicks as before, on other rows
    other = counted(columns._replace(labels=labels))
    before, after = rates.train()(columns), other.train()(columns)
    assert torch.equal(before[fold], after[fold])
    assert not torch.equal(before[~fold], after[~fold])


def test_folds_depend_on_what_stands_in_a_row_and_not_on_its_click_or_its_place() -> None:
    columns = some_rows(200)
    rates = TargetStatistics(SPECS, 8, PRIOR_ROWS)
    order = np.random.default_rng(1).permutation(200)
    shuffled = Columns(columns.dense[order], columns.ids[order], 1 - columns.labels[order])
    assert rates.folds(shuffled).tolist() == rates.folds(columns)[order].tolist()


def test_counts_are_saved_with_the_layers_and_can_be_forgotten() -> None:
    columns = some_rows(100)
    rates = counted(columns)
    twin = TargetStatistics(SPECS, 4, PRIOR_ROWS)
    twin.load_state_dict(rates.state_dict())
    assert torch.equal(twin(columns), rates(columns))
    rates.forget()
    assert not rates.counts.any()
    assert rates.eval()(columns)[:, 3:].eq(0).all()


def test_ids_outside_their_table_are_refused() -> None:
    columns = some_rows(10)
    columns.ids[4, 3] = 4
    with pytest.raises(DataError, match="column c: id 4 is outside its table of 4 rows"):
        TargetStatistics(SPECS, 4, PRIOR_ROWS).count(columns)


def test_a_single_fold_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model.target_encoding_folds = 1: a row sees the rows of other folds"):
        DnnConfig(target_encoding_folds=1)


def test_an_evaluation_tells_new_values_of_no_fewer_rows_than_training_ever_did() -> None:
    """All users have 40 rows in training, so that layers have never seen a small number; a new user has none."""
    spec, random = TableSpec("user", 12), rng(4, "users")
    ids = np.repeat(np.arange(2, 12), 40)[:, None]
    dense = random.random((400, 1)).astype(np.float32)
    columns = Columns(dense, ids.astype(np.int64), (random.random(400) < 0.3).astype(np.float32))
    statistics = TargetStatistics((spec,), 4, 10.0)
    statistics.count(columns)
    told = statistics.train()(columns)[:, 1]
    new = statistics.eval()(Columns(dense[:1], np.array([[1]]), columns.labels[:1]))[0]
    assert told.min() - 0.2 < new[1] <= told.median()
    clicks = float(columns.labels.sum())
    assert new[0] == pytest.approx(np.log((clicks + 0.5) / (400 + 0.5 - clicks)), abs=1e-5)  # the rate of all rows
    seen = statistics(columns)[:, 1]
    assert torch.allclose(seen, torch.full_like(seen, float(np.log(40.0))))
