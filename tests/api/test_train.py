"""Training from Python: typed results, frames, resuming, several processes, layers of one's own; nothing is printed."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor, nn

import recmill as rm
from recmill.cli.main import main
from recmill.errors import BadRowError, ConfigError, RunError
from tests.laws.kill import model_bytes

TINY = {
    "model": {"embedding_dim": 4, "bottom": [8, 4], "top": [8, 1]},
    "data.global_batch": 100,
    "data.num_lanes": 4,
    "data.block_bytes": 9000,
    "cadence.log_every_steps": 5,
}


class Linear(nn.Module):
    """The sum of the numbers and vectors, weighted."""

    def __init__(self, num_dense: int, width: int) -> None:
        super().__init__()
        self.dense, self.vectors = nn.Linear(num_dense, 1), nn.Linear(width, 1)

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        logits: Tensor = self.dense(dense) + self.vectors(emb_BFD.flatten(1))
        return logits


def build_linear(config: rm.TrainConfig, schema: rm.Schema) -> nn.Module:
    """At the top of a module, so that other processes find it."""
    return Linear(len(schema.dense_names), len(schema.category_names) * config.model.embedding_dim)


def test_a_run_is_typed_and_silent(tiny_world_dir: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = rm.train("demo", data=tiny_world_dir, run=tmp_path / "run", overrides=TINY)
    assert capfd.readouterr() == ("", ""), "nothing is printed unless it is asked for"
    written = json.loads((tmp_path / "run" / "results.json").read_text())
    assert run.results.test.auroc == written["test"]["auroc"]
    assert run.results.validation.logloss == written["validation"]["logloss"]
    assert dict(run.results.test) == written["test"]
    assert run.results.test_of_best == run.results.test
    assert (run.results.step, run.results.num_rows, run.results.ended_by) == (21, 2000, "max_epochs")
    frame = run.metrics()
    assert isinstance(frame, pl.DataFrame)
    assert frame.filter(kind="train")["step"].to_list() == [5, 10, 15, 20]
    assert frame.filter(kind="evaluate", split="test")["auroc"].item() == run.results.test.auroc
    assert run.evaluate("test") == run.results.test
    assert run.evaluate("validation", weights="last", overrides={"data.max_validation_batches": 0}).num_rows == 500
    assert "<table>" in run._repr_html_()
    assert f"{run.results.test.auroc:.5f}" in run._repr_html_()
    assert repr(run).startswith("Run(")
    with pytest.raises(ConfigError, match=r"dense.lr: a run is evaluated with the settings it was trained with"):
        run.evaluate(overrides={"dense.lr": 1})
    with pytest.raises(
        ConfigError, match=r"split = 'tests' cannot be evaluated; choose all, train, validation or test"
    ):
        run.evaluate("tests")


def test_python_and_the_command_line_make_the_same_run(tiny_world_dir: Path, tmp_path: Path) -> None:
    rm.train("demo", data=tiny_world_dir, run=tmp_path / "python", overrides=TINY)
    words = [
        "model.embedding_dim=4",
        "model.bottom=8,4",
        "model.top=8,1",
        *(f"{k}={v}" for k, v in list(TINY.items())[1:]),
    ]
    sets = [word for assignment in words for word in ("--set", assignment)]
    assert main(["train", "demo", "--data", str(tiny_world_dir), "--run", str(tmp_path / "words"), *sets]) == 0
    assert model_bytes(tmp_path / "python") == model_bytes(tmp_path / "words")
    assert (tmp_path / "python" / "config.toml").read_bytes() == (tmp_path / "words" / "config.toml").read_bytes()


def test_a_run_goes_on_where_it_stopped(tiny_world_dir: Path, tmp_path: Path) -> None:
    whole = rm.train("demo", data=tiny_world_dir, run=tmp_path / "whole", overrides=TINY)
    for steps in (7, 0):
        words = {**TINY, "stop.max_steps": steps}
        parted = rm.train("demo", data=tiny_world_dir, run=tmp_path / "parted", overrides=words, resume=True)
    assert model_bytes(tmp_path / "parted") == model_bytes(tmp_path / "whole")
    assert parted.results.test == whole.results.test
    again = rm.train(run=tmp_path / "parted", resume=True)
    assert again.results.test == whole.results.test
    with pytest.raises(RunError, match=r"is not empty; continue it with --resume, replace it with --overwrite"):
        rm.train("demo", data=tiny_world_dir, run=tmp_path / "whole", overrides=TINY)
    with pytest.raises(ConfigError, match=r"dense.lr was 0.01 in .* and cannot become 9.0"):
        rm.train(run=tmp_path / "whole", resume=True, overrides={"dense.lr": 9})
    with pytest.raises(ConfigError, match="resume goes on with a run and overwrite replaces it"):
        rm.train("demo", run=tmp_path / "whole", resume=True, overwrite=True)
    with pytest.raises(RunError, match="is not a run directory"):
        rm.Run(tmp_path)


def test_layers_of_one_s_own(tiny_world_dir: Path, tmp_path: Path) -> None:
    overrides = {"model.embedding_dim": 4, **{key: value for key, value in TINY.items() if key != "model"}}
    torch.manual_seed(1)
    run = rm.train("demo", data=tiny_world_dir, run=tmp_path / "run", overrides=overrides, model=build_linear)
    torch.manual_seed(2)
    rm.train("demo", data=tiny_world_dir, run=tmp_path / "again", overrides=overrides, model=build_linear)
    assert model_bytes(run.dir) == model_bytes(tmp_path / "again"), "first values are the seed's"
    assert run.config.model.kind == "custom"
    model = rm.load(run.dir, model=build_linear)
    assert model.predict(tiny_world_dir / "day_2").shape == (1000,)
    assert isinstance(model.torch.get_submodule("layers"), Linear)
    assert run.evaluate("test") == run.results.test
    with pytest.raises(ConfigError, match=r"model.kind = custom: .*test_train.build_linear.*model=FUNCTION"):
        rm.load(run.dir)
    place = f"{Path(__file__)}:build_linear"
    assert main(["evaluate", str(run.dir), "--layers", place]) == 0
    assert main(["predict", str(run.dir), "--data", str(tiny_world_dir / "day_0"), "--layers", "nowhere.py:f"]) == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda _config, _schema: 3, r"returned int; it must return a torch.nn.Module"),
        (lambda _config, _schema: nn.Linear(13, 1), r"failed on dense features \(3, 13\) and embeddings \(3, 26, 4\)"),
        (lambda _config, _schema: Wide(), r"made \(3, 26\) of dense features .*one logit per row"),
    ],
    ids=["no module", "one input", "many logits"],
)
def test_layers_that_cannot_be_are_named(build: object, message: str, tiny_world_dir: Path, tmp_path: Path) -> None:
    overrides = {"model.embedding_dim": 4, "data.global_batch": 100}
    with pytest.raises(ConfigError, match=message):
        rm.train("demo", data=tiny_world_dir, run=tmp_path / "x", overrides=overrides, model=build)  # type: ignore[arg-type]


class Wide(nn.Module):
    """Too many logits."""

    def forward(self, _dense: Tensor, emb_BFD: Tensor) -> Tensor:
        return emb_BFD.sum(dim=2)


def test_several_processes_are_the_same_call(tiny_world_dir: Path, tmp_path: Path) -> None:
    overrides = {"model.embedding_dim": 4, **{key: value for key, value in TINY.items() if key != "model"}}
    words = {**overrides, "stop.max_steps": 4}
    run = rm.train("demo", data=tiny_world_dir, run=tmp_path / "two", overrides=words, model=build_linear, procs=2)
    assert (run.results.plain["processes"], run.results.step) == (2, 4)
    lines = (tiny_world_dir / "day_0").read_text().splitlines()
    broken = tmp_path / "broken"
    broken.mkdir()
    for day in range(3):
        (broken / f"day_{day}").write_text(
            "\n".join([*lines[:500], "x" if day == 0 else lines[0], *lines[501:]]) + "\n"
        )
    with pytest.raises(BadRowError, match=r"day_0:501: "):
        rm.train("demo", data=broken, run=tmp_path / "bad", overrides=TINY, procs=2)
    with pytest.raises(ConfigError, match=r"several processes import the function by its name"):
        rm.train("demo", data=tiny_world_dir, run=tmp_path / "x", model=lambda _c, _s: Wide(), procs=2)


def test_sequences_from_events_to_recommendations(tmp_path: Path) -> None:
    world = rm.synth("interactions", tmp_path / "world", users=150, items=80, seed=1)
    assert world is not None
    manifest = rm.prepare_events(tmp_path / "world" / "interactions.csv", out=tmp_path / "seq", rules={"min_length": 5})
    assert manifest["users"] == 150
    overrides = {"model.embedding_dim": 8, "epochs": 2, "model.dropout": 0.0}
    run = rm.train("sasrec", data=tmp_path / "seq", run=tmp_path / "next", overrides=overrides)
    assert run.results.test.ndcg(10) == run.results.plain["test"]["ndcg@10"]
    assert run.results.test.hit_rate(5) == run.results.plain["test"]["hr@5"]
    assert {"popularity", "markov"} <= run.results.baselines.keys()
    assert list(run.results.rows())[:2] == ["last weights", "best weights"]
    model = rm.load(tmp_path / "next")
    assert isinstance(model, rm.SequenceModel)
    listed = model.recommend([3, 7], k=10)
    assert len(listed.items) == len(set(listed.items)) == 10
    assert not {3, 7} & set(listed.items)
    assert listed.scores == sorted(listed.scores, reverse=True)
    assert listed.items == rm.recommend(tmp_path / "next", [3, 7], k=10).items
    for history in (np.array([3, 7]), pl.Series([3, 7]), "3,7", (3, 7)):
        assert model.recommend(history, k=10).items == listed.items
    assert model.table("item").shape == (len(model.items), 8)
    with pytest.raises(RunError, match="ranks items and predicts no clicks; use recommend"):
        model.predict("x")
    with pytest.raises(RunError, match=r"is a run of sasrec, which ranks items .* use `recmill recommend`"):
        rm.predict(tmp_path / "next", "x")
    model.write_lists(tmp_path / "lists.csv", 3)
    assert pl.read_csv(tmp_path / "lists.csv").columns == ["user", "rank", "item", "score", "source"]
    assert rm.plan("sasrec", items=1000).fits
    with pytest.raises(ConfigError, match=r"there is no preset of events 'x'"):
        rm.prepare_events(tmp_path / "world", out=tmp_path / "y", preset="x")


def test_audits_and_plans_are_values(tiny_world_dir: Path) -> None:
    report = rm.audit(tiny_world_dir)
    assert report.findings == (*report.reasons, *report.notes)
    assert "<table>" in report._repr_html_()
    plan = rm.plan("mlperf-v1", memory_bytes=64 << 30)
    assert (plan.fits, round(plan.as_dict()["weight_bytes"] / 2**30, 2)) == (False, 97.36)
    assert "does not fit" in plan._repr_html_()
    with pytest.raises(ConfigError, match=r"there is no synthetic log 'x'"):
        rm.synth("x", "nowhere")  # type: ignore[arg-type]


def test_probabilities_are_between_nothing_and_certainty(tiny_world_dir: Path, tmp_path: Path) -> None:
    rm.train("demo", data=tiny_world_dir, run=tmp_path / "run", overrides=TINY)
    found = rm.predict(tmp_path / "run", tiny_world_dir / "day_0")
    assert found.dtype == np.float64
    assert 0 < found.min() < found.max() < 1
