"""Calibrate the predictions of a run on its validation split."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.api.results import SplitResult
from recmill.errors import ConfigError, DataError

if TYPE_CHECKING:
    from recmill.models.click.own import BuildLayers


@dataclass(frozen=True)
class Calibrated:
    """What a calibration was fitted on, and the metrics of these rows before and after."""

    kind: str
    weights: str
    path: Path
    before: SplitResult
    after: SplitResult

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"kind": self.kind, "weights": self.weights, "before": dict(self.before), "after": dict(self.after)}


def calibrate(
    run: str | Path,
    kind: str = "isotonic",
    *,
    weights: str | Path = "best",
    model: "BuildLayers | None" = None,
) -> Calibrated | None:
    """Fit a map from logits to probabilities on the validation split, and keep it with the run: isotonic or platt.

    `predict` uses it from then on, and `evaluate` tells both results. `kind="none"` removes it, and gives None.
    """
    from recmill.calibration import FITS
    from recmill.metrics import ClickMetrics
    from recmill.serve.calibrated import remove_calibration, write_calibration
    from recmill.serve.model import load_click_model

    if kind not in (*FITS, "none"):
        raise ConfigError(f"kind = {kind!r} is no calibration; choose {', '.join(FITS)} or none")
    if kind == "none":
        remove_calibration(Path(run))
        return None
    loaded = load_click_model(run, weights=weights, model=model, is_own_data=True)
    scored = loaded.score_labelled(Path(loaded.config.data.dir), "validation", keeps_rows=True)
    before = scored.metrics.result()
    if not 0 < before.num_clicks < before.num_rows:
        raise DataError(
            f"the validation split has {before.num_rows:,} rows and {before.num_clicks:,} clicks; "
            "a calibration is fitted on rows of both labels"
        )
    calibrator = FITS[kind](scored.logits, scored.labels, scored.weights)
    metrics = ClickMetrics()
    metrics.update(calibrator.logits(scored.logits), scored.labels, scored.weights)
    after = metrics.result()
    facts = {"num_rows": before.num_rows, "before": before.as_dict(), "after": after.as_dict()}
    path = write_calibration(loaded.weights, calibrator, facts)
    return Calibrated(
        kind, loaded.weights.describe(), path, SplitResult(before.as_dict()), SplitResult(after.as_dict())
    )
