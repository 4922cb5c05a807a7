"""Evaluate the weights of a run on a split."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.api.results import SplitResult
from recmill.errors import ConfigError
from recmill.recipes.resolve import Overrides, apply_overrides, overrides_tree, read_run_config
from recmill.settings.changes import refuse_other_model
from recmill.settings.families import family_of

if TYPE_CHECKING:
    from recmill.models.click.own import BuildLayers

Weights = str | Path  # "best", "last", or the path of a checkpoint or model directory


@dataclass(frozen=True)
class Evaluated:
    """The metrics of named weights, and what stands beside them."""

    split: str
    weights: str  # which ones, in words
    result: SplitResult
    comparisons: dict[str, Any]
    description: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"split": self.split, "weights": self.weights, **self.result, **self.comparisons}


def evaluate(
    run: str | Path,
    *,
    split: str = "test",
    weights: Weights = "best",
    data: str | Path | None = None,
    overrides: Overrides = (),
    model: "BuildLayers | None" = None,
) -> Evaluated:
    """Score a split with weights of a run: the best on validation if they were kept, or else the last ones.

    `overrides` may change how it is evaluated (protocol, batches, limits), never the model.
    """
    from recmill.serve.weights import find_weights
    from recmill.training.job import trained_task

    if split not in ("validation", "test"):
        raise ConfigError(f"split = {split!r} cannot be evaluated; choose validation or test")
    before = read_run_config(Path(run))
    refuse_other_model(overrides_tree(overrides, family_of(before)), split)
    config, found = apply_overrides(before, overrides, data=data), find_weights(Path(run), weights)
    with trained_task(config, found.directory, model) as task:
        evaluation = task.evaluate("test" if split == "test" else "validation")
        # the baselines of clicks have to be trained: the run did it once, and results.json has them
        is_sequence = family_of(config).name == "sequence"
        comparisons = task.compare(evaluation.split, found.name) if is_sequence else {}
    return Evaluated(split, found.describe(), SplitResult(evaluation.as_dict()), comparisons, evaluation.describe())
