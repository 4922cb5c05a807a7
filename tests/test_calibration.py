"""Calibrations: those of scikit-learn, and functions that never decrease, whatever rows they are fitted on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression

from recmill.calibration import FITS, Calibrator, fit_isotonic, fit_platt
from recmill.seeds import rng


def drawn(seed: int, num_rows: int = 500, *, digits: int = 8) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Logits that claim too much, and clicks."""
    random = rng(seed, "calibration")
    z = random.normal(-1.0, 1.0, num_rows)
    clicks = random.random(num_rows) < 1 / (1 + np.exp(-z))
    return np.round(2.5 * z + 1, digits).astype(np.float32), clicks.astype(np.float32)


@pytest.mark.parametrize("digits", [1, 8])
def test_isotonic_is_that_of_scikit_learn(digits: int) -> None:
    for seed in range(10):
        z, y = drawn(seed, digits=digits)
        new = np.linspace(-12, 12, 301).astype(np.float32)
        margin = 1 / (len(y) + 2)
        other = IsotonicRegression(y_min=margin, y_max=1 - margin, out_of_bounds="clip").fit(z, y)
        np.testing.assert_allclose(fit_isotonic(z, y).probabilities(new), other.predict(new), atol=1e-6)


def test_platt_is_that_of_scikit_learn() -> None:
    for seed in range(10):
        z, y = drawn(seed)
        other = _SigmoidCalibration().fit(z.astype(np.float64), y)
        np.testing.assert_allclose(fit_platt(z, y).probabilities(z), other.predict(z), atol=2e-4)


@given(
    st.lists(st.tuples(st.floats(-30, 30, width=32), st.booleans()), min_size=2, max_size=40),
    st.sampled_from(list(FITS)),
)
def test_any_rows_give_a_function_that_never_decreases_and_stays_within_0_and_1(
    rows: list[tuple[float, bool]], kind: str
) -> None:
    z = np.array([logit for logit, _ in rows], np.float32)
    y = np.array([label for _, label in rows], np.float32)
    found = FITS[kind](z, y)
    p = found.probabilities(np.linspace(-40, 40, 200))
    assert (np.diff(p) >= 0).all()
    assert ((p >= 0) & (p <= 1)).all()
    assert np.isfinite(found.logits(z)).all()
    assert Calibrator.from_json(found.to_json()) == found


def test_weights_are_those_of_scikit_learn() -> None:
    for seed in range(10):
        z, y = drawn(seed, digits=1)
        weights = rng(seed, "weights").integers(0, 4, len(y)).astype(np.float32)
        new = np.linspace(-12, 12, 301).astype(np.float32)
        margin = 1 / (len(y) + 2)
        isotonic = IsotonicRegression(y_min=margin, y_max=1 - margin, out_of_bounds="clip").fit(z, y, weights)
        np.testing.assert_allclose(fit_isotonic(z, y, weights).probabilities(new), isotonic.predict(new), atol=1e-6)
        sigmoid = _SigmoidCalibration().fit(z.astype(np.float64), y, weights.astype(np.float64))
        np.testing.assert_allclose(fit_platt(z, y, weights).probabilities(z), sigmoid.predict(z), atol=2e-4)
