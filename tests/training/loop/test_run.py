import json
from pathlib import Path

import pytest

from recmill.errors import RunError
from recmill.recipes.resolve import read_run_config
from recmill.settings.clicks import TrainConfig
from recmill.settings.run import Stop
from recmill.settings.tree import from_tree, read_toml
from recmill.training.job import run_job
from recmill.training.loop.limits import expected_rows
from recmill.training.loop.run import create_run_dir
from tests.training.conftest import Resolve


@pytest.fixture
def finished(tiny_config: TrainConfig, tmp_path: Path) -> Path:
    run_job(tiny_config, tmp_path / "finished")
    return tmp_path / "finished"


def test_a_run_directory_tells_everything(tiny_config: TrainConfig, tmp_path: Path) -> None:
    finished = tmp_path / "run"
    results = run_job(tiny_config, str(finished))
    assert {path.name for path in finished.iterdir()} == {
        "checkpoints",
        "config.toml",
        "environment.json",
        "metrics.jsonl",
        "model",
        "results.json",
        "tensorboard",
    }
    assert from_tree(TrainConfig, read_toml(finished / "config.toml")) == tiny_config
    assert json.loads((finished / "results.json").read_text()) == results
    assert results["rows"] == 2000
    assert results["validation"]["num_rows"] == results["test"]["num_rows"] == 500
    assert 0 <= results["blocked_frac"] <= 1
    assert results["skipped_rows"] == 0
    environment = json.loads((finished / "environment.json").read_text())
    assert {"command", "commit", "machine", "python", "versions"} <= environment.keys()
    assert environment["versions"]["torch"]


def test_a_finished_run_resumed_again_changes_nothing(tiny_config: TrainConfig, finished: Path) -> None:
    before = json.loads((finished / "results.json").read_text())
    weights = (finished / "model" / "tables.safetensors").read_bytes()
    assert run_job(tiny_config, finished, resume=True) == before
    assert (finished / "model" / "tables.safetensors").read_bytes() == weights


def test_an_occupied_directory_is_refused_unless_it_is_a_run_to_overwrite(
    tiny_config: TrainConfig, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    create_run_dir(run_dir, tiny_config, overwrite=False)
    (run_dir / "metrics.jsonl").write_text("{}")
    create_run_dir(run_dir, tiny_config, overwrite=False)
    assert not (run_dir / "metrics.jsonl").exists(), "a run that ended before it had saved anything is begun again"
    (run_dir / "checkpoints").mkdir()
    with pytest.raises(RunError, match=r"run is not empty; continue it with --resume, replace it with --overwrite"):
        create_run_dir(run_dir, tiny_config, overwrite=False)
    (run_dir / "metrics.jsonl").write_text("{}")
    create_run_dir(run_dir, tiny_config, overwrite=True)
    assert not (run_dir / "metrics.jsonl").exists()


def test_a_directory_that_cannot_be_made_is_named(tiny_config: TrainConfig) -> None:
    with pytest.raises(RunError, match=r"--run /proc/x: the directory cannot be made: "):
        run_job(tiny_config, "/proc/x")


def test_overwrite_never_deletes_what_is_not_a_run(tiny_config: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="is not a run directory"):
        create_run_dir(tmp_path, tiny_config, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()
    with pytest.raises(RunError, match="is a file"):
        create_run_dir(tmp_path / "thesis.tex", tiny_config, overwrite=True)
    with pytest.raises(RunError, match=r"is not a run directory: it has no config.toml"):
        read_run_config(tmp_path)


def test_expected_rows_is_the_tightest_limit(resolve: Resolve) -> None:
    assert expected_rows(Stop(max_epochs=3), 100, 2000) == 6000
    assert expected_rows(Stop(max_epochs=3, max_steps=10), 100, 2000) == 1000
    assert expected_rows(Stop(max_rows=77, max_epochs=0), 100, 2000) == 77
    assert expected_rows(Stop(max_epochs=0), 100, 2000) is None
