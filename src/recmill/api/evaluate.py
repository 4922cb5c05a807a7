"""Evaluate the weights of a run: on a split of its data, or on all rows of new files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.api.results import SplitResult
from recmill.api.slices import SliceRequest, Slices, requested, slice_rows
from recmill.data.prepared.manifest import VOCABULARY
from recmill.errors import ConfigError, DataError
from recmill.recipes.resolve import Overrides, apply_overrides, overrides_tree, read_run_config
from recmill.settings.changes import refuse_other_model
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import SPLIT_NAMES, RowsPart
from recmill.settings.families import AnyConfig, family_of

if TYPE_CHECKING:
    from recmill.models.click.own import BuildLayers
    from recmill.serve.click_model import ClickModel
    from recmill.serve.rows import Rows
    from recmill.serve.weights import FoundWeights

Weights = str | Path  # "best", "last", or the path of a checkpoint or model directory
PARTS: tuple[RowsPart, ...] = ("all", *SPLIT_NAMES)


@dataclass(frozen=True)
class Evaluated:
    """The metrics of named weights, and what stands beside them."""

    split: str  # or "all": all rows of the data that was given
    weights: str  # which ones, in words
    result: SplitResult
    comparisons: dict[str, Any]
    description: str
    slices: Slices | None = field(default=None, repr=False)  # if parts of the rows were asked for

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        parts = {} if self.slices is None else {"slices": self.slices.as_dict()}
        return {"split": self.split, "weights": self.weights, **self.result, **self.comparisons, **parts}


def evaluate(
    run: str | Path,
    *,
    split: str | None = None,
    weights: Weights = "best",
    data: "Rows | None" = None,
    overrides: Overrides = (),
    model: "BuildLayers | None" = None,
    max_batches: int | None = None,
    by: str | Sequence[str] = (),
    group: str | None = None,
    top: Sequence[float] = (),
    max_values: int = 10,
) -> Evaluated:
    """Evaluate weights of a run: the best on validation if they were kept, or else the last ones.

    Without `data` they are evaluated on the test split of the run, with it on all of its rows: files, a directory or a
    frame with labels. `split` asks for a part: train, validation, test or all. `overrides` may change how a run is
    evaluated (protocol, batches, limits), never the model.

    Of click models, `by` names columns for whose most frequent `max_values` values the metrics are given, `group` the
    column (such as a user) within whose values AUROCs are averaged (GAUC), `top` the percentages for recall and lift.
    """
    from recmill.serve.calibrated import read_calibration
    from recmill.serve.click_model import ClickModel
    from recmill.serve.weights import find_weights

    before = read_run_config(Path(run))
    part = _choose_part(split, before, has_data=data is not None)
    refuse_other_model(overrides_tree(overrides, family_of(before)), part)
    is_path = isinstance(data, str | Path)
    if data is not None and not is_path and (part != "all" or not isinstance(before, TrainConfig)):
        raise ConfigError("rows that are no file have no splits; leave out split, or give the path of a directory")
    config, found = apply_overrides(before, overrides), find_weights(Path(run), weights)
    if is_path:
        config = apply_overrides(config, vocabulary_of_run(before), data=data)
    request = requested(by, group, top, max_values)
    is_calibrated = isinstance(config, TrainConfig) and read_calibration(found) is not None
    if isinstance(config, TrainConfig) and (request or is_calibrated or part in ("all", "train")):
        rows = Path(config.data.dir if data is None else data) if data is None or is_path else data
        loaded = ClickModel(config, found, model, is_own_data=data is None)
        return _evaluate_rows(loaded, rows, part, request, max_batches)
    if request:
        raise ConfigError("by, group and top are for click models; leave them out for a sequence model")
    limited = _limited(config, part, max_batches)
    return _evaluate_split(limited, found, part, model, is_own_data=data is None)


def vocabulary_of_run(config: AnyConfig) -> dict[str, str]:
    """Where the vocabulary of a run on prepared rows stays when the run is evaluated on other rows."""
    if not isinstance(config, TrainConfig) or config.encoding.category != "vocabulary" or config.data.vocabulary:
        return {}
    return {"data.vocabulary": str(Path(config.data.dir) / VOCABULARY)}


def _choose_part(split: str | None, config: AnyConfig, *, has_data: bool) -> RowsPart:
    is_click = isinstance(config, TrainConfig)
    asked = split or ("all" if has_data and is_click else "test")
    choices = PARTS if is_click else PARTS[-2:]
    for part in choices:
        if part == asked:
            return part
    raise ConfigError(f"split = {asked!r} cannot be evaluated; choose {', '.join(choices[:-1])} or {choices[-1]}")


def _limited(config: AnyConfig, part: str, max_batches: int | None) -> AnyConfig:
    return config if max_batches is None else apply_overrides(config, {f"data.max_{part}_batches": max_batches})


def _evaluate_split(
    config: AnyConfig, found: "FoundWeights", split: str, model: "BuildLayers | None", *, is_own_data: bool
) -> Evaluated:
    from recmill.training.job import trained_task

    with trained_task(config, found.directory, model, is_own_data=is_own_data) as task:
        evaluation = task.evaluate("test" if split == "test" else "validation")
        # the baselines of clicks have to be trained: the run did it once, and results.json has them
        is_sequence = family_of(config).name == "sequence"
        comparisons = task.compare(evaluation.split, found.name) if is_sequence else {}
    return Evaluated(split, found.describe(), SplitResult(evaluation.as_dict()), comparisons, evaluation.describe())


def _evaluate_rows(
    model: "ClickModel", rows: "Rows", part: RowsPart, request: SliceRequest, max_batches: int | None
) -> Evaluated:
    """The metrics of all rows, or of a split, and of the parts that are asked for."""
    from recmill.data.logs.bad_rows import refuse_many_bad
    from recmill.training.click.evaluate import batch_limit, describe_metrics, plain_metrics

    data = model.config.data
    limit = (0 if part == "all" else batch_limit(data, part)) if max_batches is None else max_batches
    if limit < 0:
        raise ConfigError(f"max_batches = {limit}: give the number of batches to evaluate, or 0 for all")
    max_rows = limit * data.eval_batch
    scored = model.score_labelled(rows, part, request.columns, keeps_rows=bool(request), max_rows=max_rows)
    metrics = scored.metrics.result()
    num_lines = metrics.num_rows + scored.num_skipped
    refuse_many_bad(scored.num_skipped, num_lines, data.max_bad_frac, scored.first_bad)
    if not metrics.num_rows:
        raise DataError(f"{rows if isinstance(rows, Path) else 'the data'} has no row to evaluate")
    result = SplitResult(plain_metrics(metrics, scored.num_skipped, is_whole=scored.is_whole))
    name = (f"all of {rows}" if isinstance(rows, Path) else "all rows") if part == "all" else part
    description = describe_metrics(name, metrics, scored.num_skipped, is_whole=scored.is_whole)
    slices = slice_rows(scored, request, model.probabilities_of(scored.logits)) if request else None
    comparisons = dict[str, Any]()
    if model.calibrator is not None and scored.calibrated is not None:
        after, kind = scored.calibrated.result(), model.calibrator.kind
        comparisons["calibrated"] = {"kind": kind, **after.as_dict()}
        line = describe_metrics(f"after {kind} calibration", after, 0, is_whole=scored.is_whole)
        description = f"{description}\n{line}"
    return Evaluated(part, model.weights.describe(), result, comparisons, description, slices)
