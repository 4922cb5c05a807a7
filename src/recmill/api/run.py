"""A run directory, opened from Python: settings, results, metrics over the steps, evaluation, its model."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from recmill.api.evaluate import Weights, evaluate
from recmill.api.results import Results, SplitResult
from recmill.errors import RunError
from recmill.files import CONFIG, RESULTS
from recmill.observe.record import METRICS, read_records
from recmill.recipes.resolve import read_run_config
from recmill.run_stamp import read_results
from recmill.settings.families import AnyConfig

if TYPE_CHECKING:
    from recmill.models.click.own import BuildLayers
    from recmill.serve.click_model import ClickModel
    from recmill.serve.sequence_model import SequenceModel

# The columns that a frame of metrics has in any case.
_ALWAYS: dict[str, type[pl.DataType]] = {
    "kind": pl.String,
    "step": pl.Int64,
    "time": pl.Float64,
    "split": pl.String,
    "epoch": pl.Int64,
    "rows": pl.Int64,
    "loss": pl.Float64,
    "rows_per_s": pl.Float64,
    "blocked_frac": pl.Float64,
}


class Run:
    """A run that was trained; nothing is read before it is asked for."""

    def __init__(self, run_dir: str | Path, build_layers: "BuildLayers | None" = None) -> None:
        self.dir = Path(run_dir)
        self._build_layers = build_layers
        if not (self.dir / CONFIG).is_file():
            raise RunError(f"{self.dir} is not a run directory: it has no {CONFIG}")

    @cached_property
    def config(self) -> AnyConfig:
        """All settings."""
        return read_run_config(self.dir)

    @property
    def is_finished(self) -> bool:
        """Whether the run has written its results."""
        return (self.dir / RESULTS).is_file()

    @cached_property
    def results(self) -> Results:
        """What was measured at the end."""
        if not self.is_finished:
            raise RunError(f"{self.dir} has no {RESULTS}: the run is not finished; go on with resume=True")
        return Results(read_results(self.dir))

    def metrics(self) -> pl.DataFrame:
        """All records over the steps as a frame: `kind` is train or evaluate; what a record does not have is null."""
        path = self.dir / METRICS
        records = read_records(path) if path.is_file() else []
        flat = [{k: v for k, v in record.items() if not isinstance(v, dict | list)} for record in records]
        frame = pl.DataFrame(flat, infer_schema_length=None)
        missing = [pl.lit(None, kind).alias(name) for name, kind in _ALWAYS.items() if name not in frame.columns]
        return frame.with_columns(missing) if records else pl.DataFrame(schema=_ALWAYS)

    def evaluate(self, split: str | None = None, **options: Any) -> SplitResult:
        """The metrics of some weights on a split, or of all rows of `data`; the options are those of `rm.evaluate`."""
        return evaluate(self.dir, split=split, model=self._build_layers, **options).result

    def load(self, weights: Weights = "best") -> "ClickModel | SequenceModel":
        """The model, to predict or recommend with."""
        from recmill.serve.model import load

        return load(self.dir, weights=weights, model=self._build_layers)

    def __repr__(self) -> str:
        state = repr(self.results) if self.is_finished else "not finished"
        return f"Run({str(self.dir)!r}, {state})"

    def _repr_html_(self) -> str:
        return self.results._repr_html_() if self.is_finished else f"<p>{self.dir}: not finished</p>"
