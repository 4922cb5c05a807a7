import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from recmill.seeds import rng
from recmill.uncertainty import compare_aurocs, compare_losses, row_losses


def drawn(num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = rng(seed, "rows")
    signal = draw.standard_normal(num_rows)
    labels = (draw.random(num_rows) < 1 / (1 + np.exp(-signal))).astype(np.float32)
    first = (signal + 0.5 * draw.standard_normal(num_rows)).astype(np.float32)
    second = (0.7 * signal + draw.standard_normal(num_rows)).round(1).astype(np.float32)  # with ties
    return first, second, labels


def test_the_difference_of_aurocs_is_that_of_another_library() -> None:
    first, second, labels = drawn(3_000)
    found = compare_aurocs(first, second, labels)
    assert found is not None
    assert found.difference == pytest.approx(roc_auc_score(labels, first) - roc_auc_score(labels, second), abs=1e-12)


def test_its_standard_error_is_the_spread_over_samples() -> None:
    differences, errors = [], []
    for seed in range(300):
        found = compare_aurocs(*drawn(400, seed))
        assert found is not None
        differences.append(found.difference)
        errors.append(found.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(differences), rel=0.12)


def test_losses_are_those_of_another_library() -> None:
    first, second, labels = drawn(2_000)
    expected = [log_loss(labels, 1 / (1 + np.exp(-scores.astype(np.float64)))) for scores in (first, second)]
    losses = [row_losses(scores, labels) for scores in (first, second)]
    assert [loss.mean() for loss in losses] == pytest.approx(expected, abs=1e-9)
    found = compare_losses(*losses)
    assert found.difference == pytest.approx(expected[0] - expected[1], abs=1e-9)
    assert found.standard_error == pytest.approx(np.std(losses[0] - losses[1], ddof=1) / np.sqrt(2_000))


def test_a_predictor_does_not_differ_from_itself() -> None:
    first, _, labels = drawn(500)
    found = compare_aurocs(first, first, labels)
    assert found is not None
    assert (found.difference, found.standard_error) == (0.0, 0.0)


def test_one_class_has_no_auroc() -> None:
    first, second, _ = drawn(50)
    assert compare_aurocs(first, second, np.zeros(50, np.float32)) is None
