"""What simple predictors score on the rows that a click model was tested on, and how far the model is from them.

1. The training rows are read once more, up to three times if they are few, by a logistic regression.
2. The model and the baselines score the same test rows, so that a difference has a small standard error.
"""

import math
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.batch import Columns
from recmill.data.synthetic.known import known_best
from recmill.metrics import ClickMetrics
from recmill.models.click.logistic import LogisticRegression
from recmill.settings.clicks import TrainConfig
from recmill.training.click.assemble import table_specs
from recmill.training.click.inputs import Inputs
from recmill.uncertainty import compare_aurocs, compare_losses, row_losses

LOGISTIC, CONSTANT, BEST_POSSIBLE = "logistic_regression", "click_rate", "best_possible"
_PASSES = 3
_ALPHAS = (0.05, 0.15)  # for many weak values, and for few strong ones
_MAX_VALIDATION_ROWS = 1_000_000
_MAX_PAIRED_ROWS = 5_000_000  # whose scores are kept in memory, for standard errors


class Baselines(NamedTuple):
    """Predictors that were trained on the same rows as the model."""

    click_rate: float
    logistic: LogisticRegression
    num_rows: int  # that they were trained on
    passes: int

    def score(self, columns: Columns) -> NDArray[np.float32]:
        """The logits (B) of the logistic regression."""
        return self.logistic.score(columns)


def train_baselines(config: TrainConfig, inputs: Inputs) -> Baselines:
    """Read the training rows, shuffled as for the model, as often as `baselines.max_rows` allows, at most thrice.

    Of two learning rates and all passes, the one with the least loss on validation counts.
    """
    specs, num_dense = table_specs(config), len(config.data.schema_of_rows.dense_names)
    candidates = [LogisticRegression(specs, num_dense, alpha=alpha) for alpha in _ALPHAS]
    limit, num_clicks, total, num_rows, passes = config.baselines.max_rows, 0.0, 0.0, 0, 0
    least, best, best_passes = math.inf, candidates[0], 0
    while passes < _PASSES and (passes == 0 or num_rows * (passes + 1) <= limit):
        seen = 0
        for columns in _one_pass(inputs, limit):
            for candidate in candidates:
                candidate.train(columns)
            seen += columns.num_rows
            if passes == 0:
                weights = columns.weights if len(columns.weights) else np.ones(columns.num_rows, np.float32)
                num_clicks += float(columns.labels @ weights.astype(np.float64))
                total += float(weights.sum(dtype=np.float64))
        num_rows, passes = max(num_rows, seen), passes + 1
        for candidate in candidates:
            if (loss := _validation_loss(candidate, inputs)) < least:
                least, best, best_passes = loss, deepcopy(candidate), passes
    return Baselines(num_clicks / (total or 1.0), best, num_rows, best_passes)


def _one_pass(inputs: Inputs, limit: int) -> Iterator[Columns]:
    """The training rows once, or as many of them as the limit allows."""
    seen = 0
    with inputs.open_training(None) as stream:
        for batch in stream:
            yield batch.columns
            seen += batch.num_rows
            if batch.position.epoch > 0 or seen >= limit:
                return


def _validation_loss(candidate: LogisticRegression, inputs: Inputs) -> float:
    total, num_rows = 0.0, 0
    with inputs.open_evaluation("validation") as stream:
        for batch in stream:
            total += float(row_losses(candidate.score(batch.columns), batch.columns.labels).sum())
            num_rows += batch.num_rows
            if num_rows >= _MAX_VALIDATION_ROWS:
                break
    return total / max(1, num_rows)


def compare_rows(
    config: TrainConfig, baselines: Baselines, blocks: Iterable[NDArray[np.float32]]
) -> dict[str, dict[str, Any]]:
    """The metrics of the baselines on rows (model's logit, label, baseline's logit, weight if rows have one).

    And the differences with the model; of weighted rows, whose standard errors are other ones, there are none.
    """
    constant_logit = _logit_of(baselines.click_rate)
    of_logistic, of_constant = ClickMetrics(), ClickMetrics()
    kept, num_kept = list[NDArray[np.float32]](), 0
    for block in blocks:
        weights = block[:, 3] if block.shape[1] > 3 else None
        of_logistic.update(block[:, 2], block[:, 1], weights)
        of_constant.update(np.full(len(block), constant_logit, np.float32), block[:, 1], weights)
        if num_kept < _MAX_PAIRED_ROWS:
            kept.append(block)
            num_kept += len(block)
    logistic = {**of_logistic.result().as_dict(), "trained_rows": baselines.num_rows, "passes": baselines.passes}
    constant = {**of_constant.result().as_dict(), "trained_rows": baselines.num_rows, "rate": baselines.click_rate}
    measured = {CONSTANT: constant, LOGISTIC: logistic}
    rows = np.concatenate(kept) if kept else np.empty((0, 3), np.float32)
    found: dict[str, dict[str, Any]] = {"baselines": measured, "differences": _differences(rows, constant_logit)}
    best = known_best(config.data, num_kept) if num_kept <= _MAX_PAIRED_ROWS else None
    if best is not None:
        found["baselines"][BEST_POSSIBLE] = best
    return found


def _differences(rows: NDArray[np.float32], constant_logit: float) -> dict[str, Any]:
    """The model's metrics minus those of the baselines."""
    if len(rows) < 2 or rows.shape[1] > 3:
        return {}
    model, labels, logistic = (np.ascontiguousarray(column) for column in rows.T)
    losses = row_losses(model, labels)
    auroc = compare_aurocs(model, logistic, labels)
    constant = row_losses(np.full(len(rows), constant_logit, np.float32), labels)
    return {
        LOGISTIC: {
            "auroc": auroc.as_dict() if auroc else None,
            "logloss": compare_losses(losses, row_losses(logistic, labels)).as_dict(),
        },
        CONSTANT: {"logloss": compare_losses(losses, constant).as_dict()},
    }


def _logit_of(probability: float) -> float:
    bounded = min(1 - 1e-7, max(1e-7, probability))
    return math.log(bounded / (1 - bounded))
