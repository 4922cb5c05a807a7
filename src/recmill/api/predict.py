"""Predictions and recommendations in one call."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recmill.serve.model import load_click_model, load_sequence_model
from recmill.serve.rows import Rows
from recmill.settings.data import BadRowPolicy

if TYPE_CHECKING:
    from recmill.models.click.own import BuildLayers
    from recmill.serve.sequence_model import Recommended


def predict(
    run: str | Path,
    rows: Rows,
    *,
    weights: str | Path = "best",
    bad_rows: BadRowPolicy = "fail",
    model: "BuildLayers | None" = None,
) -> NDArray[np.float64]:
    """The probability of a click for every row, by the model of a run; `recmill.load` keeps it for more calls."""
    return load_click_model(run, weights=weights, model=model).predict(rows, bad_rows=bad_rows)


def recommend(
    run: str | Path,
    history: Iterable[int | str] | None = None,
    *,
    user: int | str | None = None,
    k: int = 20,
    weights: str | Path = "best",
    titles: str | Path | None = None,
) -> "Recommended":
    """The k best items for a history, oldest first, or for a user of the prepared sequences; `titles` is a file."""
    return load_sequence_model(run, weights=weights).recommend(history, user=user, k=k, titles=titles)
