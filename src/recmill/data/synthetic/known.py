"""What the true probabilities score on the test rows of synthetic data, where the data is."""

from pathlib import Path
from typing import Any

from recmill.data.synthetic.clicks import read_world
from recmill.data.synthetic.tables import read_truth
from recmill.metrics import ClickMetrics
from recmill.settings.data import DataConfig


def known_best(data: DataConfig, num_test_rows: int) -> dict[str, Any] | None:
    """The metrics of the true probabilities on so many test rows; None if the data does not say."""
    if data.first_half != "validation" or data.test_files or data.max_test_batches or not num_test_rows:
        return None
    path = Path(data.dir)
    truth = read_truth(path)
    if truth is not None:
        if len(truth.labels) < num_test_rows:
            return None
        metrics = ClickMetrics()
        metrics.update(truth.logits[-num_test_rows:], truth.labels[-num_test_rows:])
        return metrics.result().as_dict()
    world = read_world(path) if path.is_dir() and not data.has_holdout else None
    if world is None or world.rows_per_day[-1] // 2 != num_test_rows:
        return None
    best = world.best_possible.test
    return {"auroc": best.auroc, "logloss": best.logloss, "num_rows": num_test_rows}
