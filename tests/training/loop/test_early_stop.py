"""Runs that end by their validation AUROC, remember the best, and do so whether or not they were interrupted."""

import json
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from recmill.errors import ConfigError, RunError
from recmill.metrics import ClickMetrics
from recmill.recipes.resolve import Sources, resolve_for_run
from recmill.serve.weights import find_weights
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import SplitName
from recmill.settings.run import Stop
from recmill.training.checkpoint.checkpoint import read_model
from recmill.training.click import task as click
from recmill.training.click.assemble import assemble
from recmill.training.click.evaluate import ClickEvaluation, evaluate
from recmill.training.click.inputs import Inputs
from recmill.training.click.step import ClickState
from recmill.training.job import run_job
from recmill.training.loop.limits import limit_reached
from recmill.training.loop.run import create_run_dir
from recmill.training.progress import Best, Progress
from tests.training.conftest import Resolve
from tests.training.records import read_records

WATCHED = ("cadence.evaluate_every_steps=3", "stop.max_epochs=3")


def auroc_of(config: TrainConfig, model_dir: Path) -> float | None:
    parts = assemble(config)
    read_model(model_dir, parts)
    with Inputs(config) as inputs:
        return evaluate(parts, inputs, "validation").result.auroc


def test_verdicts_are_counted() -> None:
    verdicts = [0.6, 0.7, 0.7, None, 0.5, 0.8]
    states = list(
        accumulate(verdicts, lambda p, auroc: replace(p, step=p.step + 1).after_evaluation(auroc), initial=Progress())
    )
    assert [state.num_worse for state in states] == [0, 0, 0, 1, 1, 2, 0]
    assert [state.best.step if state.best else None for state in states] == [None, 1, 2, 2, 2, 2, 6]
    assert Progress.from_json(json.loads(json.dumps(states[5].to_json()))) == states[5]


def test_limits_by_verdict() -> None:
    good = Progress(step=9, best=Best(0.75, 6), num_worse=2)
    assert limit_reached(good, Stop(target_auroc=0.75)) == "target_auroc"
    assert limit_reached(good, Stop(target_auroc=0.751)) is None
    assert limit_reached(good, Stop(patience=2)) == "patience"
    assert limit_reached(good, Stop(patience=3)) is None
    assert limit_reached(Progress(), Stop(target_auroc=0.5, patience=1)) is None


def test_a_run_ends_at_its_target(resolve: Resolve, tmp_path: Path) -> None:
    run_job(resolve(*WATCHED), tmp_path / "long")
    judged = [r for r in read_records(tmp_path / "long") if r["kind"] == "evaluate"]
    steps = [r["step"] for r in judged if r["split"] == "validation"]
    assert steps[:3] == [3, 6, 9]
    target = judged[3]["auroc"]
    first = next(r["step"] for r in judged if r["auroc"] >= target)  # type: ignore[operator]
    results = run_job(resolve(*WATCHED, f"stop.target_auroc={target}"), tmp_path / "short")
    assert (results["step"], results["ended_by"]) == (first, "target_auroc")
    assert results["best"] == {"auroc": results["validation"]["auroc"], "step": first, "model": "model"}
    validations = [r["step"] for r in read_records(tmp_path / "short") if r.get("split") == "validation"]
    assert validations == list(range(3, first + 1, 3)), "the last state is judged once"  # type: ignore[operator]


def play(monkeypatch: pytest.MonkeyPatch, aurocs: dict[int, float]) -> None:
    """Have the validation after some of the steps turn out as wished."""

    def staged(parts: ClickState, _inputs: Inputs, split: SplitName) -> ClickEvaluation:
        metrics = ClickMetrics()
        metrics.update(np.array([0.0, 1.0], np.float32), np.array([0.0, 1.0], np.float32))
        auroc = aurocs.get(parts.tables.num_updates, 0.5)
        return ClickEvaluation(split, replace(metrics.result(), auroc=auroc), 0)

    monkeypatch.setattr(click, "evaluate", staged)


def test_patience_runs_out_and_the_best_model_is_kept(
    resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = resolve(*WATCHED, "stop.patience=3", "cadence.save_every_steps=4")
    with monkeypatch.context() as patch:
        play(patch, {3: 0.6, 6: 0.7, 9: 0.65, 12: 0.66, 15: 0.7, 18: 0.9})
        results = run_job(config, tmp_path / "run")
        assert (results["step"], results["ended_by"]) == (15, "patience")
        assert results["best"] == {"auroc": 0.7, "step": 6, "model": "best/step_0000000006_auroc_0.70000"}
        resumed = run_job(resolve(*WATCHED, "stop.patience=9", "stop.max_steps=19"), tmp_path / "run", resume=True)
        assert (resumed["step"], resumed["best"]["step"], resumed["best"]["auroc"]) == (19, 18, 0.9)
    kept = sorted(path.name for path in (tmp_path / "run" / "best").iterdir())
    assert kept == ["step_0000000006_auroc_0.70000", "step_0000000018_auroc_0.90000"], (
        "the one before is the best of a checkpoint still kept"
    )
    assert find_weights(tmp_path / "run", "best").directory.name == "step_0000000018_auroc_0.90000"
    alone = resolve("stop.max_steps=18")
    run_job(alone, tmp_path / "alone")
    assert auroc_of(alone, tmp_path / "run" / "best" / kept[1]) == auroc_of(alone, tmp_path / "alone/model")


def test_weights_of_the_best_are_not_kept_unless_wanted(
    resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, {3: 0.6})
    results = run_job(resolve(*WATCHED, "cadence.keep_best=false", "stop.max_steps=8"), tmp_path / "run")
    assert results["best"] == {"auroc": 0.6, "step": 3, "model": None}
    assert not (tmp_path / "run" / "best").exists()
    found = find_weights(tmp_path / "run", "best")
    assert (found.directory.name, found.name, found.step) == ("model", "last", 8), "and says that they are the last"
    with pytest.raises(RunError, match=r"has no results.json: the run is not finished"):
        find_weights(tmp_path, "best")


def test_a_run_without_evaluations_is_best_at_its_end(resolve: Resolve, tmp_path: Path) -> None:
    results = run_job(resolve("stop.max_steps=4"), tmp_path / "run")
    assert results["best"] == {"auroc": results["validation"]["auroc"], "step": 4, "model": "model"}
    assert results["ended_by"] == "max_steps"


def test_a_share_of_the_steps_cannot_change_with_the_steps(tiny_config: TrainConfig, tmp_path: Path) -> None:
    changes = {"schedule": {"kind": "step", "change_fracs": [0.5]}, "stop.max_steps": 10}
    create_run_dir(tmp_path / "run", tiny_config.with_(changes), overwrite=False)
    sources = Sources(overrides={"stop.max_steps": 20})
    with pytest.raises(ConfigError, match=r"stop.max_steps was 10 in .* cannot become 20: schedule.change_fracs"):
        resolve_for_run(sources, tmp_path / "run", "resume")
