"""Warnings of finished runs: each bad sign is named with its setting, and a sound run has none."""

import json
from pathlib import Path
from typing import Any

import pytest

import recmill as rm
from recmill.cli.main import main
from recmill.settings.clicks import TrainConfig
from recmill.training.job import run_job
from recmill.training.loop.health import find_warnings

SOUND: dict[str, Any] = {
    "auroc": 0.75,
    "logloss": 0.45,
    "normalised_entropy": 0.9,
    "calibration": 1.05,
    "num_rows": 10_000,
    "num_clicks": 2_500,
}


def results(**test: Any) -> dict[str, Any]:
    run = {"step": 100, "rows": 9_000, "skipped_rows": 0, "train_loss": 0.44}
    top = {name: test.pop(name) for name in list(test) if name in run}
    return {**run, **top, "validation": SOUND, "test": {**SOUND, **test}}


SIGNS: list[tuple[dict[str, Any], str]] = [
    ({"calibration": 0.6}, "calibration on test is 0.6000, far from 1"),
    ({"calibration": 1.5}, "calibration on test is 1.5000, far from 1"),
    ({"logloss": 0.7}, "logloss on test is 0.7000 and the training loss was 0.4400"),
    ({"normalised_entropy": 1.02}, "worse than always predicting the click rate (normalised entropy 1.0200"),
    ({"auroc": 0.45}, "AUROC on test is 0.4500, worse than chance; is the label the right column?"),
    ({"auroc": None}, "AUROC on test is undefined: all 10,000 labels are the same"),
    ({"skipped_rows": 9_001}, "9,001 lines were ignored as bad and 9,000 trained on"),
]


@pytest.mark.parametrize(("sign", "warning"), SIGNS, ids=[next(iter(sign)) for sign, _ in SIGNS])
def test_a_bad_sign_is_named(sign: dict[str, Any], warning: str, tiny_config: TrainConfig) -> None:
    (found,) = find_warnings(results(**sign), tiny_config)
    assert warning in found


@pytest.mark.parametrize(
    "sign",
    [
        {},
        {"calibration": 1.3, "num_clicks": 100},  # of so few clicks, chance
        {"calibration": 0.1, "num_rows": 100},
        {"logloss": 0.5},
        {"train_loss": None},
        {"skipped_rows": 10},
    ],
)
def test_a_sound_run_has_no_warning(sign: dict[str, Any], tiny_config: TrainConfig) -> None:
    assert find_warnings(results(**sign), tiny_config) == []


def test_a_mean_that_never_began_is_named(tiny_config: TrainConfig) -> None:
    (found,) = find_warnings(results(), tiny_config.with_({"average.from_step": 101}))
    assert "average.from_step = 101 was never reached: the run ended after 100 steps" in found


def test_warnings_are_written_shown_and_may_be_errors(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "train",
        "demo",
        "--data",
        str(tiny_world_dir),
        "--set",
        "data.global_batch=100",
        "--set",
        "stop.max_steps=3",
    ]
    words += ["--set", "average.from_step=50"]
    assert main([*words, "--run", str(tmp_path / "a")]) == 0
    assert "warning: average.from_step = 50 was never reached" in capsys.readouterr().err
    assert main([*words, "--run", str(tmp_path / "b"), "--strict"]) == 1
    written = json.loads((tmp_path / "b" / "results.json").read_text())["warnings"]
    assert any("average.from_step" in warning for warning in written)
    assert rm.Run(tmp_path / "b").results.warnings == written


def test_a_resumed_run_knows_its_training_loss(tiny_config: TrainConfig, tmp_path: Path) -> None:
    config = tiny_config.with_({"stop.max_steps": 10, "cadence.log_every_steps": 5})
    whole = run_job(config, tmp_path / "run")
    assert whole["train_loss"] is not None
    assert run_job(config, tmp_path / "run", resume=True)["train_loss"] == whole["train_loss"]


def test_a_column_of_few_values_is_learnt_with_calibrated_statistics(tmp_path: Path) -> None:
    """Target statistics with batch norm: a shift between training and evaluation would be magnified."""
    import numpy as np

    rng, num_rows = np.random.default_rng(1), 30_000
    city, price = rng.integers(0, 4, num_rows), rng.gamma(2, 3, num_rows)
    clicks = rng.random(num_rows) < 1 / (1 + np.exp(1.5 - 0.8 * (city - 1.5)))
    lines = [f"{int(y)},{p:.2f},c{c}" for y, p, c in zip(clicks, price, city, strict=True)]
    (tmp_path / "log.csv").write_text("\n".join(["clicked,price,city", *lines]) + "\n")
    (tmp_path / "log.toml").write_text(
        'separator = ","\nheader = true\ncolumns = [{name = "clicked", role = "label", kind = "int"},\n'
        '{name = "price", role = "dense", kind = "float"},\n'
        '{name = "city", role = "category", kind = "string", encoding = "hash", rows = 50}]\n'
    )
    run = rm.train(
        "criteo-small",
        data=tmp_path / "log.csv",
        schema=str(tmp_path / "log.toml"),
        run=tmp_path / "run",
        overrides={"data.holdout_frac": 0.2, "average": {"from_step": 0, "every_steps": 1, "recent_frac": 1.0}},
    )
    assert run.results.test.calibration == pytest.approx(1, abs=0.15)
    assert run.results.warnings == []


@pytest.mark.parametrize("is_prepared", [False, True], ids=["raw", "prepared"])
def test_a_class_that_was_ignored_as_a_whole_is_named(tmp_path: Path, is_prepared: bool) -> None:
    rows = [f"0,{row % 17}.5,c{row % 7}" for row in range(400)]
    for row in range(0, 300, 100):
        rows[row] = "1,none,c1"
    log, schema = tmp_path / "log.csv", tmp_path / "own.toml"
    log.write_text("\n".join(rows) + "\n")
    schema.write_text(
        'separator = ","\ncolumns = [{ name = "click", role = "label", kind = "int" }, '
        '{ name = "price", role = "dense", kind = "float" }, '
        '{ name = "city", role = "category", kind = "string", rows = 100 }]\n'
    )
    split = {"data.holdout_frac": 0.2, "data.max_bad_frac": 0.5}
    if is_prepared:
        rm.prepare(log, out=tmp_path / "rows", schema=str(schema), bad_rows="skip", overrides=split)
        run = rm.train("demo", data=tmp_path / "rows", run=tmp_path / "run", overrides={"epochs": 1, "batch_size": 50})
    else:
        more = {**split, "data.bad_rows": "skip", "epochs": 1, "batch_size": 50}
        run = rm.train("demo", data=log, schema=str(schema), run=tmp_path / "run", overrides=more)
    (found,) = (warning for warning in run.results.warnings if "nothing to learn" in warning)
    assert "all training rows have the label 0" in found
    assert "3 lines were ignored as bad and are the likely cause" in found
