"""Predictions and recommendations in one call."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.serve.model import load_sequence_model

if TYPE_CHECKING:
    from recmill.serve.sequence_model import Recommended


def recommend(
    run: str | Path,
    history: Sequence[int | str] | None = None,
    *,
    user: int | str | None = None,
    k: int = 20,
    weights: str | Path = "best",
) -> "Recommended":
    """The k best items for a history, oldest first, or for a user of the prepared sequences."""
    return load_sequence_model(run, weights=weights).recommend(history, user=user, k=k)
