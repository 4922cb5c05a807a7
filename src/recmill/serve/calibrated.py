"""The calibration of a run: a file beside its weights, which holds for the very weights it was fitted with."""

import json
from pathlib import Path
from typing import Any

from recmill.calibration import Calibrator
from recmill.errors import RunError
from recmill.files import RESULTS, write_atomic
from recmill.serve.weights import FoundWeights, run_of

CALIBRATION = "calibration.json"


def read_calibration(weights: FoundWeights) -> Calibrator | None:
    """What was fitted with these weights, if anything was."""
    run_dir = run_of(weights.directory)
    if run_dir is None or not (run_dir / CALIBRATION).is_file():
        return None
    path = run_dir / CALIBRATION
    try:
        found = json.loads(path.read_text())
        is_of_these = found["weights"] == _place_of(weights, run_dir) and found["step"] == weights.step
        return Calibrator.from_json(found) if is_of_these else None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged ({error}); write it anew with `recmill calibrate`, or remove it") from None


def write_calibration(weights: FoundWeights, calibrator: Calibrator, facts: dict[str, Any]) -> Path:
    """Keep it with the run, and record in its results what it did."""
    run_dir = run_of(weights.directory)
    if run_dir is None:
        raise RunError(f"{weights.directory} lies in no run directory, in which a calibration is kept; give a run")
    of_what = {"weights": _place_of(weights, run_dir), "step": weights.step}
    write_atomic(run_dir / CALIBRATION, json.dumps({**of_what, **calibrator.to_json()}) + "\n")
    _record(run_dir, {**of_what, "kind": calibrator.kind, **facts})
    return run_dir / CALIBRATION


def remove_calibration(run_dir: Path) -> None:
    """Predict as the model does."""
    _record(run_dir, None)
    (run_dir / CALIBRATION).unlink(missing_ok=True)


def _record(run_dir: Path, facts: dict[str, Any] | None) -> None:
    path = run_dir / RESULTS
    if not path.is_file():
        return
    results = {key: value for key, value in json.loads(path.read_text()).items() if key != "calibration"}
    write_atomic(path, json.dumps(results if facts is None else {**results, "calibration": facts}, indent=2) + "\n")


def _place_of(weights: FoundWeights, run_dir: Path) -> str:
    return str(weights.directory.resolve().relative_to(run_dir.resolve()))
