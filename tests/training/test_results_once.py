"""`results.json` is written once, complete and last: a run that is killed before it is not finished, and goes on."""

import json
from pathlib import Path

import pytest

from recmill import files, run_stamp
from recmill.settings.clicks import TrainConfig
from recmill.training.job import run_job
from recmill.training.loop import run as run_module
from tests.training.sequence.worlds import make_world, resolve

WORDS = ("model.kind=sasrec", "stop.max_epochs=3", "cadence.evaluate_every_epochs=1.0", "model.transition_weight=1.0")


class Killed(BaseException):
    """As by `kill -9`: nothing catches it."""


def test_comparisons_are_in_what_is_written_and_nothing_is_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = make_world(tmp_path / "chains")[1]
    config, written = resolve(data_dir, *WORDS), list[str]()
    write = files.write_atomic

    def watched(path: Path, content: str | bytes, *, durable: bool = True) -> None:
        if path.name == "results.json":
            written.append(str(content))
        write(path, content, durable=durable)

    monkeypatch.setattr(run_stamp, "write_atomic", watched)
    results = run_job(config, tmp_path / "run")
    assert [json.loads(content) for content in written] == [results]
    assert {"test", "validation", "test_of_best", "baselines", "data"} <= results.keys()
    assert results["baselines"]["network"]["weights"] == "best"


@pytest.mark.parametrize("family", ["click", "sequence"])
def test_a_run_that_was_killed_while_it_compared_goes_on_to_the_same_results(
    family: str, tiny_config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if family == "click":
        config = tiny_config.with_({"cadence.evaluate_every_steps": 5})
    else:
        config = resolve(make_world(tmp_path / "chains")[1], *WORDS)  # type: ignore[assignment]
    whole = run_job(config, tmp_path / "whole")

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(run_module.RunWriter, "_compare", killed)
        with pytest.raises(Killed):
            run_job(config, tmp_path / "killed")
    assert (tmp_path / "killed" / "model").is_dir()
    assert not (tmp_path / "killed" / "results.json").exists()
    resumed = run_job(config, tmp_path / "killed", resume=True)
    for name in (
        "step",
        "best",
        "validation",
        "test",
        "test_of_best",
        *(["baselines"] if family == "sequence" else []),
    ):
        assert resumed[name] == whole[name], name
