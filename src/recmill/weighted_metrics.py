"""How good click predictions are where rows count differently: a row of weight 2 counts as two rows of weight 1."""

import numpy as np
from numpy.typing import NDArray


class WeightedRows:
    """Logits, labels and weights of all rows so far, in memory: 9 bytes a row; and sums over them."""

    def __init__(self) -> None:
        self._logits, self._is_click, self._weights = ([np.empty(0, kind)] for kind in ("f4", "?", "f4"))
        self.total = self.clicks = self.right = self.loss = self.predicted = 0.0

    def add(self, logits: NDArray[np.float32], labels: NDArray[np.float32], weights: NDArray[np.float32]) -> None:
        """Take some rows, whose logits and labels are in order."""
        if weights.shape != labels.shape or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"weights of shape {weights.shape} are not {len(labels)} numbers of at least 0")
        self._logits.append(np.array(logits, np.float32))
        self._is_click.append(labels == 1)
        self._weights.append(np.array(weights, np.float32))
        z, w, is_click = logits.astype(np.float64), weights.astype(np.float64), labels == 1
        tail = np.exp(-np.abs(z))
        self.total += float(w.sum())
        self.clicks += float(w[is_click].sum())
        self.right += float(w[(z > 0) == is_click].sum())
        self.loss += float((w * (np.maximum(np.where(is_click, -z, z), 0.0) + np.log1p(tail))).sum())
        self.predicted += float((w * np.where(z >= 0, 1.0, tail) / (1.0 + tail)).sum())

    def merge(self, other: "WeightedRows") -> None:
        """Take all rows of another one, which stays as it was."""
        self._logits += other._logits
        self._is_click += other._is_click
        self._weights += other._weights
        for name in ("total", "clicks", "right", "loss", "predicted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def auroc(self) -> float | None:
        """The share of pairs, each by the product of its weights, in which the click has the larger logit."""
        logits = np.concatenate(self._logits)
        is_click, weights = np.concatenate(self._is_click), np.concatenate(self._weights).astype(np.float64)
        _, group = np.unique(logits, return_inverse=True)
        clicks = np.bincount(group[is_click], weights[is_click], minlength=1)
        others = np.bincount(group[~is_click], weights[~is_click], minlength=1)
        num_groups = max(len(clicks), len(others))
        clicks, others = (np.pad(each, (0, num_groups - len(each))) for each in (clicks, others))
        pairs = clicks.sum() * others.sum()
        wins = float((clicks * (np.cumsum(others) - others / 2)).sum())
        return wins / float(pairs) if pairs > 0 else None
