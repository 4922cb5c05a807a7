"""A row of weight n counts as n rows."""

import numpy as np
import pytest

from recmill.metrics import ClickMetrics, ClickResult


def _result(*parts: tuple[np.ndarray, ...]) -> ClickResult:
    metrics = ClickMetrics(1 << 16)
    for part in parts:
        metrics.update(*part)
    return metrics.result()


@pytest.mark.parametrize("seed", range(20))
def test_integer_weights_are_rows_repeated(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_rows = int(rng.integers(1, 400))
    logits = np.round(rng.normal(size=num_rows), int(rng.integers(0, 3))).astype(np.float32)  # with ties
    labels = (rng.random(num_rows) < rng.random()).astype(np.float32)
    weights = rng.integers(0, 5, num_rows).astype(np.float32)
    repeated = np.repeat(np.arange(num_rows), weights.astype(int))
    cut = num_rows // 3
    weighted = _result((logits[:cut], labels[:cut], weights[:cut]), (logits[cut:], labels[cut:], weights[cut:]))
    plain = _result((logits[repeated], labels[repeated]))
    for name in ("auroc", "logloss", "normalised_entropy", "calibration", "accuracy"):
        found, expected = getattr(weighted, name), getattr(plain, name)
        assert (found is None) == (expected is None), name
        assert found is None or found == pytest.approx(expected, rel=1e-9), name
    assert weighted.num_rows == num_rows


def test_merged_rows_give_the_same_metrics() -> None:
    rng = np.random.default_rng(1)
    logits, weights = rng.normal(size=90).astype(np.float32), rng.random(90).astype(np.float32)
    labels = (rng.random(90) < 0.4).astype(np.float32)
    first, second = ClickMetrics(1 << 16), ClickMetrics(1 << 16)
    first.update(logits[:50], labels[:50], weights[:50])
    second.update(logits[50:], labels[50:], weights[50:])
    first.merge(second)
    assert first.result().auroc == pytest.approx(_result((logits, labels, weights)).auroc, rel=1e-12)
    assert first.result().logloss == pytest.approx(_result((logits, labels, weights)).logloss, rel=1e-12)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_a_weight_that_is_none_is_rejected(weight: float) -> None:
    row = np.zeros(1, np.float32)
    with pytest.raises(ValueError, match="numbers of at least 0"):
        ClickMetrics(64).update(row, row, np.array([weight], np.float32))
