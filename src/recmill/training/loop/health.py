"""What is suspicious about a finished run: warnings that name the likely cause and the setting to look at."""

from collections.abc import Iterator, Mapping
from math import sqrt
from pathlib import Path
from typing import Any

from recmill.data.prepared.manifest import read_rows_manifest
from recmill.files import has_manifest
from recmill.settings.families import AnyConfig

# How far the mean prediction may be from the mean label, beside three standard errors of the number of clicks.
_CALIBRATION_SLACK = 0.2
_LOSS_SLACK = 1.15  # of a test beside the training loss, beside what few rows may differ
_FEW_ROWS = 200


def find_warnings(results: Mapping[str, Any], config: AnyConfig) -> list[str]:
    """All that a user should know before believing the numbers of a run."""
    found = list(_of_run(results, config))
    if "auroc" not in results["test"]:
        return [*found, *_of_rankings(results)]
    return [*found, *_of_training_labels(results, config), *_of_clicks(results)]


def _of_run(results: Mapping[str, Any], config: AnyConfig) -> Iterator[str]:
    step, from_step = results["step"], config.average.from_step
    if from_step > step:
        yield (
            f"average.from_step = {from_step} was never reached: the run ended after {step} steps, so that its weights "
            f"are not a mean; lower it, to {max(1, step // 2)} for instance"
        )
    if results["skipped_rows"] > results["rows"]:
        yield (
            f"{results['skipped_rows']:,} lines were ignored as bad and {results['rows']:,} trained on: the schema may "
            "not be that of the file; look at `recmill audit`"
        )


def _of_training_labels(results: Mapping[str, Any], config: AnyConfig) -> Iterator[str]:
    """Of one class there is nothing to learn, and lines that were ignored may have been all of the other."""
    constant = results.get("baselines", {}).get("click_rate", {})
    if constant.get("rate") not in (0.0, 1.0) or not constant.get("trained_rows"):
        return
    num_skipped = results["skipped_rows"] or _skipped_by_preparation(config)
    cause = (
        f"{num_skipped:,} lines were ignored as bad and are the likely cause: look at them with `recmill audit`, and "
        "fix them or the schema"
        if num_skipped
        else "look at the label with `recmill audit`"
    )
    yield f"all training rows have the label {constant['rate']:.0f}, so that there is nothing to learn; {cause}"


def _skipped_by_preparation(config: AnyConfig) -> int:
    """How many lines were ignored when the rows were prepared, if they were."""
    directory = Path(config.data.dir)
    return int(read_rows_manifest(directory).get("skipped_rows") or 0) if has_manifest(directory) else 0


def _of_clicks(results: Mapping[str, Any]) -> Iterator[str]:
    for split in ("validation", "test"):
        metrics = results[split]
        if metrics["auroc"] is None and metrics["num_rows"]:
            yield (
                f"AUROC on {split} is undefined: all {metrics['num_rows']:,} labels are the same; hold out other or "
                "more rows (data.holdout_frac, data.test_files), and look at the label with `recmill audit`"
            )
    test = results["test"]
    if test["num_rows"] < _FEW_ROWS or test["auroc"] is None:
        return
    if test["auroc"] < 0.5:
        yield f"AUROC on test is {test['auroc']:.4f}, worse than chance; is the label the right column?"
    yield from _of_calibration(test)
    if (entropy := test["normalised_entropy"]) is not None and entropy > 1:
        yield (
            f"the model is worse than always predicting the click rate (normalised entropy {entropy:.4f} on test, 1 is "
            "the constant): lower dense.lr and tables.lr, or give the run more rows or epochs (stop.max_epochs)"
        )
    yield from _of_baselines(results)
    train_loss, logloss = results.get("train_loss"), test["logloss"]
    if train_loss and logloss > _LOSS_SLACK * train_loss + 1 / sqrt(test["num_rows"]):
        yield (
            f"logloss on test is {logloss:.4f} and the training loss was {train_loss:.4f}: what was learnt does not "
            "hold for new rows. Likely causes: too many epochs (stop.max_epochs, stop.patience), too little dropout "
            "(model.dropout), or test rows unlike training rows (`recmill audit`)"
        )


def _of_baselines(results: Mapping[str, Any]) -> Iterator[str]:
    """A model that is not better than a linear one is not worth its trouble."""
    found = results.get("differences", {}).get("logistic_regression", {}).get("auroc")
    if found and found["difference"] < -found["standard_error"]:
        yield (
            f"AUROC on test is {-found['difference']:.4f} below logistic regression on the same rows (standard error "
            f"{found['standard_error']:.4f}): for few rows use fewer epochs and more regularisation, as the recipe "
            "auto does (stop.patience, model.dropout, tables.weight_decay); for many, lower or raise the learning rates"
        )


def _of_calibration(test: Mapping[str, Any]) -> Iterator[str]:
    calibration = test["calibration"]
    if calibration is None or not test["num_clicks"]:
        return
    if abs(calibration - 1) > _CALIBRATION_SLACK + 3 / sqrt(test["num_clicks"]):
        yield (
            f"calibration on test is {calibration:.4f}, far from 1: the mean prediction is not near the click rate. "
            "Likely causes: too few steps or too high a learning rate (stop.max_epochs, dense.lr, tables.lr), or a "
            "click rate that changes over time (`recmill audit` shows it for both splits)"
        )


def _of_rankings(results: Mapping[str, Any]) -> Iterator[str]:
    test = results["test_of_best"] or results["test"]
    score = next(name for name in test if name.startswith("ndcg@10"))
    if not test["num_users"]:
        yield "no user has an event to test on; prepare with another --split, or with longer histories"
        return
    for name in ("popularity", "markov"):
        baseline = results["baselines"].get(name)
        if baseline and test[score] is not None and test[score] < baseline[score]:
            yield (
                f"{score} on test is {test[score]:.4f}, below the baseline {name} with {baseline[score]:.4f}: train "
                "longer (stop.max_epochs, stop.patience), or add counts of transitions (model.transition_weight)"
            )
