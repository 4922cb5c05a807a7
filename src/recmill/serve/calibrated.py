"""The calibration of a run: a file beside its weights, which holds for the very weights it was fitted with."""

import json
import os
from pathlib import Path
from typing import Any

from recmill.calibration import Calibrator
from recmill.errors import RunError
from recmill.files import RESULTS, write_atomic
from recmill.own_files import SEAL, TEXT, ListOf, Table, number, one_of, read_own_json, sealed, whole
from recmill.run_stamp import RUN, read_results, read_run_id, refuse_foreign, write_results
from recmill.serve.weights import FoundWeights, run_of

CALIBRATION = "calibration.json"
_WAY_OUT = "write it anew with `recmill calibrate`, or remove it"
_CALIBRATION = Table(
    fields={
        "weights": TEXT,
        "step": whole(),
        "kind": one_of("isotonic", "platt"),
        "points": ListOf(of=number()),
        "values": ListOf(of=number()),
    },
    optional={RUN: TEXT, SEAL: TEXT},
)


def read_calibration(weights: FoundWeights) -> Calibrator | None:
    """What was fitted with these weights, if anything was."""
    run_dir = run_of(weights.directory)
    if run_dir is None:
        return None
    path, of_these = run_dir / CALIBRATION, {"weights": _place_of(weights, run_dir), "step": weights.step}
    if not os.path.lexists(path):
        _refuse_lost(run_dir, of_these)
        return None
    found = read_own_json(path, _CALIBRATION, way_out=_WAY_OUT)
    refuse_foreign(path, found, read_run_id(run_dir))
    points, values = found["points"], found["values"]
    num_values = 2 if found["kind"] == "platt" else max(1, len(points))
    if len(values) != num_values or points != sorted(points):
        raise RunError(f"{path} is damaged: points and values do not go together; {_WAY_OUT}")
    return Calibrator.from_json(found) if {key: found[key] for key in of_these} == of_these else None


def _refuse_lost(run_dir: Path, of_these: dict[str, Any]) -> None:
    """Complain if the results tell of a calibration of these weights, and its file is gone."""
    recorded = read_results(run_dir).get("calibration") if (run_dir / RESULTS).is_file() else None
    if recorded and {key: recorded[key] for key in of_these} == of_these:
        raise RunError(
            f"{run_dir / CALIBRATION} is missing, though {RESULTS} tells of it; write it anew with `recmill "
            "calibrate`, or do without it with `recmill calibrate --kind none`"
        )


def write_calibration(weights: FoundWeights, calibrator: Calibrator, facts: dict[str, Any]) -> Path:
    """Keep it with the run, and record in its results what it did."""
    run_dir = run_of(weights.directory)
    if run_dir is None:
        raise RunError(f"{weights.directory} lies in no run directory, in which a calibration is kept; give a run")
    of_what = {"weights": _place_of(weights, run_dir), "step": weights.step}
    content = sealed({**of_what, **calibrator.to_json(), RUN: read_run_id(run_dir)})
    write_atomic(run_dir / CALIBRATION, json.dumps(content) + "\n")
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
    results = {key: value for key, value in read_results(run_dir).items() if key != "calibration"}
    write_results(run_dir, results if facts is None else {**results, "calibration": facts})


def _place_of(weights: FoundWeights, run_dir: Path) -> str:
    return str(weights.directory.resolve().relative_to(run_dir.resolve()))
