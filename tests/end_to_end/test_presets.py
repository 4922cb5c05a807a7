"""Multi-hot rows and OneFlow's encodings, from raw days to a judged model: however rows come, the model is one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recmill.cli.main import main
from recmill.settings.multi_hot import MLPERF_SIZES
from tests.laws.kill import model_bytes

# One block and one lane: the order in which rows are met is then the same for text and for prepared rows.
ONE_ORDER = ("data.num_lanes=1", "data.block_rows=9999", "data.block_bytes=99999999", "data.global_batch=100")


@pytest.fixture
def train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[dict[str, bytes], Any]]:
    """The bytes of the trained model, and what `recmill evaluate` says of it."""

    def run(name: str, *words: str | Path) -> tuple[dict[str, bytes], Any]:
        settings = [word for setting in ONE_ORDER for word in ("--set", setting)]
        assert main(["train", "demo", "--run", str(tmp_path / name), *settings, *map(str, words)]) == 0
        capsys.readouterr()
        assert main(["evaluate", str(tmp_path / name), "--json"]) == 0
        return model_bytes(tmp_path / name), json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("distribution", ["uniform", "pareto"])
def test_multi_hot_rows_train_one_model_however_they_are_made(
    tiny_world_dir: Path, tmp_path: Path, train: Callable[..., tuple[dict[str, bytes], Any]], distribution: str
) -> None:
    prepare = ["prepare", "--data", str(tiny_world_dir), "--out"]
    wide = ["--multi-hot", "mlperf", "--multi-hot-distribution", distribution]
    assert main([*prepare, str(tmp_path / "wide"), *wide]) == 0
    assert main([*prepare, str(tmp_path / "narrow")]) == 0
    on_the_fly = ["--set", "data.multi_hot=mlperf", "--set", f"data.multi_hot_distribution={distribution}"]
    model, judged = train("archives", "--data", tmp_path / "wide")
    assert judged["num_rows"] == 500
    assert (model, judged) == train("rows", "--data", tmp_path / "narrow", *on_the_fly)
    assert (model, judged) == train("text", "--data", tiny_world_dir, "--vocabulary", tmp_path / "narrow", *on_the_fly)
    assert (model, judged) == train("taken", "--data", tiny_world_dir, "--vocabulary", tmp_path / "wide")
    assert model != train("one-hot", "--data", tmp_path / "narrow")[0]


def test_archives_are_not_trained_on_as_something_else(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ",".join(map(str, MLPERF_SIZES))
    assert main(["prepare", "--data", str(tiny_world_dir), "--out", str(tmp_path / "wide"), "--multi-hot", sizes]) == 0
    command = ["train", "demo", "--data", str(tmp_path / "wide"), "--run", str(tmp_path / "run")]
    assert main([*command, "--set", "data.multi_hot=[]"]) == 2
    assert "was prepared with another setting than this run's: data.multi_hot is MultiHot" in capsys.readouterr().err


@pytest.mark.parametrize("preset", ["oneflow-mod", "oneflow-hash"])
def test_oneflows_encodings_train_one_model_from_text_and_from_prepared_rows(
    tiny_world_dir: Path, tmp_path: Path, train: Callable[..., tuple[dict[str, bytes], Any]], preset: str
) -> None:
    prepare = ["prepare", "--data", str(tiny_world_dir), "--preset", preset, "--modulo", "300", "--out"]
    assert main([*prepare, str(tmp_path / "npy")]) == 0
    assert main([*prepare, str(tmp_path / "parquet"), "--format", "parquet"]) == 0
    expected = train("one", "--data", tmp_path / "npy")
    assert expected == train("two", "--data", tmp_path / "parquet")
    assert expected == train("three", "--data", tiny_world_dir, "--vocabulary", tmp_path / "npy")
