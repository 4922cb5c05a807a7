"""A calibration is kept with its run, used by predictions and told by evaluations of the weights it was fitted with."""

import json
from pathlib import Path

import numpy as np
import pytest

import recmill as rm
from recmill.cli.main import main
from recmill.settings.clicks import TrainConfig


@pytest.mark.parametrize("kind", ["isotonic", "platt"])
def test_predictions_are_calibrated_until_it_is_removed(
    kind: str, tiny_config: TrainConfig, tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rm.train(tiny_config.with_({"stop.max_steps": 6}), run=tmp_path / "run")
    before, day = rm.predict(run.dir, tiny_world_dir / "day_2"), tiny_world_dir / "day_2"
    assert main(["calibrate", str(run.dir), "--kind", kind]) == 0
    assert f"{kind}, fitted on 500 validation rows" in capsys.readouterr().out
    results = json.loads((run.dir / "results.json").read_text())
    told = results["calibration"]
    assert told["kind"] == kind
    assert told["before"] == pytest.approx({key: results["validation"][key] for key in told["before"]})
    assert told["after"]["logloss"] < told["before"]["logloss"]
    assert told["after"]["calibration"] == pytest.approx(1, abs=0.02)
    after = rm.predict(run.dir, day)
    assert (after != before).any()
    assert (np.diff(after[np.argsort(before)]) >= 0).all(), "the order stays"
    rm.load(run.dir).write_predictions(day, tmp_path / "out.csv")  # type: ignore[union-attr]
    written = np.loadtxt(tmp_path / "out.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(written[:, 1], after)
    found = rm.evaluate(run.dir)
    assert found.result.auroc == run.results.test.auroc
    assert found.as_dict()["calibrated"]["logloss"] < (found.result.logloss or 0)
    assert f"after {kind} calibration" in found.description
    assert main(["calibrate", str(run.dir), "--kind", "none"]) == 0
    np.testing.assert_array_equal(rm.predict(run.dir, day), before)
    assert "calibration" not in json.loads((run.dir / "results.json").read_text())
    assert run.evaluate() == run.results.test


def test_other_weights_of_the_run_are_not_calibrated_by_it(tiny_config: TrainConfig, tmp_path: Path) -> None:
    run = rm.train(tiny_config.with_({"stop.max_steps": 6, "cadence.save_every_steps": 2}), run=tmp_path / "run")
    rm.calibrate(run.dir, "platt")
    checkpoint = sorted((run.dir / "checkpoints").iterdir())[0]
    assert run.load().calibrator is not None  # type: ignore[union-attr]
    assert run.load(checkpoint).calibrator is None  # type: ignore[union-attr]
    with pytest.raises(rm.ConfigError, match="choose isotonic, platt or none"):
        rm.calibrate(run.dir, "isotone")
