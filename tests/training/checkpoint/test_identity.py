import shutil
from pathlib import Path

import pytest

from recmill.errors import RunError
from recmill.files import read_listing
from recmill.serve.weights import find_weights
from recmill.settings.clicks import TrainConfig
from recmill.training.checkpoint.identity import refuse_foreign_state, refuse_misplaced
from recmill.training.job import run_job


@pytest.fixture
def runs(tiny_config: TrainConfig, tmp_path: Path) -> dict[str, Path]:
    """Two runs of the same shape, one with another seed, and settings that keep the best weights."""
    changes = {"stop.max_steps": 4, "cadence.evaluate_every_steps": 2, "cadence.save_every_steps": 2}
    for name, seed in (("own", 1), ("other", 2)):
        run_job(tiny_config.with_({**changes, "seed": seed, "dense.lr": 5.0}), tmp_path / name)
    return {name: tmp_path / name for name in ("own", "other")}


def test_all_that_a_run_saves_has_its_id(runs: dict[str, Path], tiny_config: TrainConfig) -> None:
    ids = {
        name: {read_listing(path.parent)["run"] for path in run.rglob("manifest.json")} for name, run in runs.items()
    }
    assert len(ids["own"]) == len(ids["other"]) == 1
    assert ids["own"] != ids["other"]
    own = runs["own"]
    find_weights(own, "last")
    find_weights(own, runs["other"] / "model")  # elsewhere they may be of any run
    shutil.rmtree(own / "model")
    shutil.copytree(runs["other"] / "model", own / "model")
    for weights in ("last", own / "model"):
        with pytest.raises(RunError, match=r"model/manifest\.json is of another run"):
            find_weights(own, weights)
    config = tiny_config.with_({"seed": 1, "dense.lr": 5.0})
    with pytest.raises(RunError, match=r"do not go together: seed is 1 in the one and 2 in the other"):
        refuse_foreign_state(own / "model", "", config)  # an older run, which has no id


def test_a_run_goes_on_from_no_state_of_another(runs: dict[str, Path], tiny_config: TrainConfig) -> None:
    own, name = runs["own"], "checkpoints/step_0000000004"
    shutil.rmtree(own / name)
    shutil.copytree(runs["other"] / name, own / name)
    config = tiny_config.with_({"stop.max_steps": 6, "seed": 1, "dense.lr": 5.0})
    with pytest.raises(RunError, match=r"step_0000000004/manifest\.json is of another run"):
        run_job(config, own, resume=True)
    assert read_listing(own / name) == read_listing(runs["other"] / name), "it is left alone"


def test_settings_without_their_line_belong_to_the_run_of_the_checkpoint(
    runs: dict[str, Path], tiny_config: TrainConfig
) -> None:
    own = runs["own"]
    path = own / "config.toml"
    line, _, text = path.read_text().partition("\n\n")
    path.write_text(text)
    find_weights(own, "last")
    config = tiny_config.with_({"stop.max_steps": 4, "seed": 1, "dense.lr": 5.0})
    run_job(config, own, resume=True)
    assert path.read_text().split(",")[0] == line.split(",")[0]


def test_a_state_under_the_name_of_another_step_is_rejected() -> None:
    refuse_misplaced(Path("step_0000000004"), 4)
    refuse_misplaced(Path("anything"), 4)
    with pytest.raises(RunError, match="holds the state after step 4"):
        refuse_misplaced(Path("step_0000000005"), 4)
