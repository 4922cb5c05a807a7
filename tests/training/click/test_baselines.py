"""Baselines are measured on the rows of the test split, and are the same for any number of processes."""

from pathlib import Path

import pytest

import recmill as rm


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("baselines") / "log"
    rm.synth("criteo", out, rows=6_000, days=3, seed=1)
    return out


@pytest.fixture(scope="module")
def alone(log: Path) -> rm.Run:
    return rm.train("demo", data=log, run=log.parent / "alone", overrides={"data.global_batch": 256})


def test_the_constant_and_the_regression_stand_beside_the_model(alone: rm.Run, log: Path) -> None:
    results = alone.results
    assert set(results.baselines) == {"click_rate", "logistic_regression", "best_possible"}
    best, regression = results.baselines["best_possible"].auroc, results.baselines["logistic_regression"].auroc
    assert best is not None
    assert regression is not None
    assert 0.5 < regression < best
    assert results.baselines["click_rate"].auroc == 0.5
    found = results.plain["differences"]["logistic_regression"]
    assert results.test.auroc is not None
    assert found["auroc"]["difference"] == pytest.approx(results.test.auroc - regression, abs=1e-9)
    assert found["logloss"]["standard_error"] > 0


def test_several_processes_measure_the_same_baselines(alone: rm.Run, log: Path, tmp_path: Path) -> None:
    together = rm.train("demo", data=log, run=tmp_path / "two", procs=2, overrides={"data.global_batch": 256})
    for name, baseline in alone.results.baselines.items():
        assert together.results.baselines[name].auroc == pytest.approx(baseline.auroc, abs=1e-12)


def test_they_can_be_left_out(log: Path, tmp_path: Path) -> None:
    overrides = {"baselines.enabled": False, "data.global_batch": 256}
    run = rm.train("demo", data=log, run=tmp_path / "run", overrides=overrides)
    assert run.results.baselines == {}
