"""Layers of one's own obey the laws that all layers obey: seeds, resuming, and nothing is ignored in silence."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import recmill as rm
from recmill.cli.main import main
from recmill.errors import ConfigError
from tests.laws.kill import model_bytes

OVERRIDES = {
    "model.embedding_dim": 4,
    "data.global_batch": 100,
    "data.num_lanes": 4,
    "data.block_bytes": 9000,
    "cadence.save_every_steps": 3,
}


class Drawing(nn.Module):
    """First values and dropout by torch's own random numbers; fails for a batch without rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.dropout, self.last = nn.LazyLinear(8), nn.Dropout(0.5), nn.Linear(8, 1)

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        features = torch.cat([dense, emb_BFD.view(len(emb_BFD), -1)], dim=1)
        logits: Tensor = self.last(self.dropout(torch.relu(self.first(features))))
        return logits


def build_drawing(_config: rm.TrainConfig, _schema: rm.Schema, *, scale: float = 1.0) -> nn.Module:
    del scale
    return Drawing()


def test_what_they_draw_is_the_seed_s_and_survives_a_stop(tiny_world_dir: Path, tmp_path: Path) -> None:
    for name, stops in (("whole", (8,)), ("again", (8,)), ("parted", (2, 5, 8))):
        for stop in stops:
            torch.manual_seed(stop + len(name))
            words = {**OVERRIDES, "stop.max_steps": stop}
            rm.train(
                "demo", data=tiny_world_dir, run=tmp_path / name, overrides=words, model=build_drawing, resume=True
            )
    assert model_bytes(tmp_path / "whole") == model_bytes(tmp_path / "again") == model_bytes(tmp_path / "parted")


def test_a_run_goes_on_however_the_function_is_named(tiny_world_dir: Path, tmp_path: Path) -> None:
    words = {**OVERRIDES, "stop.max_steps": 2}
    rm.train("demo", data=tiny_world_dir, run=tmp_path / "run", overrides=words, model=partial(build_drawing, scale=2))
    place = f"{Path(__file__)}:build_drawing"
    assert (
        main(["train", "--run", str(tmp_path / "run"), "--resume", "--set", "stop.max_steps=4", "--layers", place]) == 0
    )
    with pytest.raises(ConfigError, match="several processes import the function by its name"):
        rm.train("demo", data=tiny_world_dir, run=tmp_path / "x", model=partial(build_drawing, scale=2), procs=2)


def test_a_function_is_not_ignored(tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"model.kind": "dcn", "data.global_batch": 100}
    with pytest.raises(ConfigError, match=r"model.kind = dcn, and a function that builds layers was given"):
        rm.train("demo", data=tiny_world_dir, run=tmp_path / "x", overrides=words, model=build_drawing)
    rm.train(
        "demo", data=tiny_world_dir, run=tmp_path / "run", overrides={"data.global_batch": 100, "stop.max_steps": 2}
    )
    with pytest.raises(ConfigError, match=r"model.kind = dlrm, and a function that builds layers was given"):
        rm.load(tmp_path / "run", model=build_drawing)
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    words_of_file = ["evaluate", str(tmp_path / "run"), "--layers", f"{tmp_path / 'broken.py'}:f"]
    assert main(words_of_file) == 2
    assert "broken.py cannot be imported: ModuleNotFoundError" in capsys.readouterr().err


def test_the_vocabulary_is_that_of_the_data(tiny_world_dir: Path, tmp_path: Path) -> None:
    rm.prepare(tiny_world_dir, out=tmp_path / "a")
    rm.prepare(tiny_world_dir, out=tmp_path / "b", min_count=5)
    first = rm.config("demo", data=tiny_world_dir, vocabulary=tmp_path / "b")
    assert isinstance(first, rm.TrainConfig)
    assert first.data.vocabulary
    second = rm.config(first, data=tmp_path / "a")
    assert isinstance(second, rm.TrainConfig)
    assert second.data.vocabulary == "", "prepared rows are encoded already"


def test_results_of_an_earlier_end_do_not_outlive_a_resume(
    tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recmill.training.loop.run import RunWriter

    words = {"data.global_batch": 100, "stop.max_steps": 2}
    run = rm.train("demo", data=tiny_world_dir, run=tmp_path / "run", overrides=words)
    assert run.is_finished

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "finish", end)
        with pytest.raises(KeyboardInterrupt):
            rm.train(run=tmp_path / "run", resume=True, overrides={"stop.max_steps": 5})
    assert not rm.Run(tmp_path / "run").is_finished


def test_runs_of_torchrec_are_evaluated_without_it(tiny_world_dir: Path, tmp_path: Path) -> None:
    words = ["train", "demo", "--data", str(tiny_world_dir), "--run", str(tmp_path / "run")]
    for setting in ("data.global_batch=100", "stop.max_steps=2", "sharding.engine=torchrec"):
        words += ["--set", setting]
    subprocess.run([sys.executable, "-m", "recmill", *words], check=True, capture_output=True)
    run = rm.Run(tmp_path / "run")
    assert run.evaluate("test").auroc == pytest.approx(run.results.test.auroc, abs=1e-6)
