"""A run of clicks knows the rows, prepared or raw, and the vocabulary that it was trained on."""

import json
import shutil
from pathlib import Path

import pytest

from recmill.api.calibrate import calibrate
from recmill.api.evaluate import evaluate
from recmill.data.logs.split import find_days, split_by_day
from recmill.data.prepared.manifest import settings_for_rows
from recmill.data.prepared.prepare import PrepareJob, prepare
from recmill.data.synthetic.clicks import write_criteo
from recmill.errors import RunError
from recmill.files import MANIFEST, write_listing
from recmill.serve.model import load_click_model
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import CRITEO
from recmill.settings.synthetic import SynthSpec
from recmill.training.click import inputs
from recmill.training.job import run_job

OTHER = r"was trained on other prepared data than there is now \(identity .{16} then, .{16} now\)"


def _config(config: TrainConfig, rows: Path) -> TrainConfig:
    changes = {"data": {"dir": str(rows)}, "stop": {"max_steps": 2}, "baselines": {"enabled": False}}
    return config.with_(settings_for_rows(rows)).with_(changes)


@pytest.fixture
def other_rows(tmp_path: Path) -> Path:
    """Rows of the same columns and table sizes with another content: those of the shuffled log."""
    write_criteo(SynthSpec(rows=3000, days=3, seed=7, scale=0.0001), tmp_path / "log")
    prepare(PrepareJob(split_by_day(find_days(tmp_path / "log")), CRITEO, tmp_path / "other", seed=3))
    return tmp_path / "other"


def test_rows_that_were_swapped_under_a_run_are_noticed(
    tiny_world_dir: Path, tiny_config: TrainConfig, other_rows: Path, tmp_path: Path
) -> None:
    rows, run_dir = tmp_path / "rows", tmp_path / "run"
    prepare(PrepareJob(split_by_day(find_days(tiny_world_dir)), CRITEO, rows))
    config = _config(tiny_config, rows)
    run_job(config, run_dir)
    evaluate(run_dir)
    shutil.rmtree(rows)
    shutil.copytree(other_rows, rows)
    with pytest.raises(RunError, match=OTHER):
        evaluate(run_dir)
    with pytest.raises(RunError, match=r"none of the 1 checkpoints in .* can be used"):
        run_job(config.with_({"stop": {"max_steps": 4}}), run_dir, resume=True)
    evaluate(run_dir, data=rows, split="test")
    _forget_identity(run_dir / "model")
    evaluate(run_dir)


def _forget_identity(directory: Path) -> None:
    """As an older version has written it."""
    manifest = json.loads((directory / MANIFEST).read_text())
    files = manifest.pop("files")
    write_listing(directory, files, **{key: manifest[key] for key in ("kind", "step", "rows")})


def test_a_vocabulary_that_was_swapped_under_a_run_is_noticed(
    tiny_world_dir: Path, tiny_config: TrainConfig, tmp_path: Path
) -> None:
    rows, run_dir = tmp_path / "rows", tmp_path / "run"
    prepare(PrepareJob(split_by_day(find_days(tiny_world_dir)), CRITEO, rows))
    run_job(_config(tiny_config, rows), run_dir)
    assert len(load_click_model(run_dir).predict(tiny_world_dir / "day_0")) == 1000
    columns = rows / "vocabulary" / "columns.json"
    content = json.loads(columns.read_text())
    columns.write_text(json.dumps({**content, "slots_sha256": "0" * 64}))
    with pytest.raises(RunError, match=OTHER):
        load_click_model(run_dir)


SWAPPED = r"was trained on other files than there are now: day_{} is of the same size as then and has another content"


@pytest.mark.parametrize("day", [0, 2])
def test_a_raw_file_that_was_replaced_under_a_run_is_noticed(
    day: int, tiny_world_dir: Path, tiny_config: TrainConfig, tmp_path: Path
) -> None:
    log, run_dir = tmp_path / "log", tmp_path / "run"
    shutil.copytree(tiny_world_dir, log)
    changes = {"data": {"dir": str(log)}, "stop": {"max_steps": 2}, "baselines": {"enabled": False}}
    config, longer = tiny_config.with_(changes), {"stop": {"max_steps": 4}}
    run_job(config, run_dir)
    _replace_bytes(log / f"day_{day}")
    told = SWAPPED.format(day)
    for part in ("test", "train"):
        with pytest.raises(RunError, match=told):
            evaluate(run_dir, split=part)
    with pytest.raises(RunError, match=told):
        calibrate(run_dir)
    with pytest.raises(RunError, match=told):
        run_job(config.with_(longer), run_dir, resume=True)
    evaluate(run_dir, data=log, split="test")
    load_click_model(run_dir).predict(log / "day_0")
    run_job(config.with_(longer).with_({"data": {"dir": str(tiny_world_dir)}}), run_dir, resume=True)


def test_an_older_run_on_raw_files_goes_on(tiny_world_dir: Path, tiny_config: TrainConfig, tmp_path: Path) -> None:
    log, run_dir = tmp_path / "log", tmp_path / "run"
    shutil.copytree(tiny_world_dir, log)
    changes = {"data": {"dir": str(log)}, "stop": {"max_steps": 2}, "baselines": {"enabled": False}}
    config = tiny_config.with_(changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "identity_of_logs", lambda _data: "")
        run_job(config, run_dir)
    _replace_bytes(log / "day_0")
    evaluate(run_dir)
    run_job(config.with_({"stop": {"max_steps": 4}}), run_dir, resume=True)
    _replace_bytes(log / "day_0")
    with pytest.raises(RunError, match=SWAPPED.format(0)):
        evaluate(run_dir)


def _replace_bytes(path: Path) -> None:
    """Another content of the same size: labels turned round."""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(f"{1 - int(line[0])}{line[1:]}" for line in lines))
