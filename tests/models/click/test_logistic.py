import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression as Reference

from recmill.data.batch import Columns
from recmill.embeddings.table import TableSpec
from recmill.metrics import ClickMetrics
from recmill.models.click.logistic import LogisticRegression
from recmill.seeds import rng


def planted(num_rows: int, seed: int) -> Columns:
    draw = rng(seed, "rows")
    effects = rng(0, "effects").standard_normal(60)
    dense = draw.normal(3.0, 2.0, (num_rows, 2)).astype(np.float32)
    ids = np.stack([draw.integers(0, 20, num_rows), draw.integers(-1, 40, num_rows)], axis=1)
    logits = effects[ids[:, 0]] + np.where(ids[:, 1] >= 0, effects[20 + ids[:, 1]], 0) + 0.4 * dense[:, 0] - 3
    labels = (draw.random(num_rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return Columns(dense, ids, labels)


SPECS = [TableSpec("a", 20, 1, "sum"), TableSpec("b", 40, 1, "sum")]


def auroc_of(logits: np.ndarray, labels: np.ndarray) -> float:
    metrics = ClickMetrics()
    metrics.update(logits.astype(np.float32), labels)
    result = metrics.result().auroc
    assert result is not None
    return result


def one_hot(columns: Columns) -> sparse.csr_matrix:
    a, b = columns.ids.T
    rows = np.arange(len(a))
    there = b >= 0
    places = (np.concatenate([rows, rows[there]]), np.concatenate([a, 20 + b[there]]))
    hot = sparse.csr_matrix((np.ones(len(places[0])), places), shape=(len(a), 60))
    return sparse.hstack([(columns.dense - 3) / 2, hot]).tocsr()


def test_it_is_as_good_as_the_regression_of_another_library() -> None:
    train, test = planted(20_000, 1), planted(20_000, 2)
    own = LogisticRegression(SPECS, 2, alpha=0.3)
    for _ in range(3):
        own.train(train)
    reference = Reference(max_iter=200).fit(one_hot(train), train.labels)
    theirs = auroc_of(reference.decision_function(one_hot(test)), test.labels)
    assert auroc_of(own.score(test), test.labels) > theirs - 0.001


def test_its_probabilities_are_calibrated() -> None:
    train, test = planted(20_000, 1), planted(20_000, 2)
    own = LogisticRegression(SPECS, 2)
    own.train(train)
    predicted = (1 / (1 + np.exp(-own.score(test)))).mean()
    assert predicted == pytest.approx(test.labels.mean(), rel=0.03)


def test_the_same_rows_give_the_same_weights() -> None:
    rows = planted(700, 3)
    first, second = LogisticRegression(SPECS, 2), LogisticRegression(SPECS, 2)
    for own in (first, second):
        own.train(rows)
    np.testing.assert_array_equal(first.score(rows), second.score(rows))
    second.train(rows)
    assert (first.score(rows) != second.score(rows)).any()


def test_tables_only_and_numbers_only_are_regressed_too() -> None:
    rows = planted(2_000, 4)
    alone = Columns(rows.dense[:, :0], rows.ids, rows.labels)
    numbers = Columns(rows.dense, rows.ids[:, :0], rows.labels)
    for specs, columns, num_dense in ((SPECS, alone, 0), ([], numbers, 2)):
        own = LogisticRegression(specs, num_dense)
        own.train(columns)
        assert auroc_of(own.score(columns), columns.labels) > 0.55
