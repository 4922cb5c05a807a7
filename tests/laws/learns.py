"""Law *learns*: where a rule is planted, a model beats the constant predictor and comes near the best possible."""

from recmill.metrics import ClickResult


def assert_learns(result: ClickResult, *, best_auroc: float, within: float) -> None:
    assert result.auroc is not None
    assert result.normalised_entropy is not None
    assert result.normalised_entropy < 1, "no better than predicting the mean"
    assert best_auroc - within <= result.auroc < best_auroc + 0.01, (result.auroc, best_auroc)
