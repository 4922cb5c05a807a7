"""Weighted rows, from a log with labels in words to results: one process and two come to the same numbers."""

import json
from pathlib import Path
from random import Random

import pytest

import recmill
from tests.laws.world import CALM, assert_same_world, train_with

SCHEMA = """
separator = ","
columns = [
    { name = "event", role = "label", kind = "string", positive = ["buy", "cart"] },
    { name = "times", role = "weight", kind = "float" },
    { name = "price", role = "dense", kind = "float" },
    { name = "shop", role = "category", kind = "int", rows = 12 },
    { name = "city", role = "category", kind = "string", rows = 9 },
]
"""
SETTINGS = (
    *CALM,
    "data.holdout_frac=0.2",
    "data.global_batch=50",
    "data.eval_batch=64",
    "data.num_lanes=6",
    "data.block_bytes=700",
    "model.embedding_dim=4",
    "model.bottom=[4]",
    "model.top=[4, 1]",
    "cadence.log_every_steps=1",
    "cadence.keep_ledger=true",
)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    directory, random = tmp_path_factory.mktemp("weighted"), Random(4)
    lines = [
        f"{random.choice(('buy', 'view', 'view', 'cart'))},{random.choice((0, 0.5, 1, 2.25))},"
        f"{random.random():.3f},{random.randrange(11)},{random.choice('abcdef')}\n"
        for _ in range(777)
    ]
    (directory / "log.csv").write_text("".join(lines))
    (directory / "shop.toml").write_text(SCHEMA)
    data = ["--data", str(directory / "log.csv"), "--schema", str(directory / "shop.toml")]
    return ["demo", *data, *(word for setting in SETTINGS for word in ("--set", setting))]


def test_two_processes_weigh_as_one(words: list[str], tmp_path: Path) -> None:
    train_with(1, words, tmp_path / "one")
    train_with(2, words, tmp_path / "two")
    assert_same_world(tmp_path / "one", tmp_path / "two")
    results = [json.loads((tmp_path / name / "results.json").read_text())["test"] for name in ("one", "two")]
    for name in ("logloss", "calibration", "accuracy"):
        assert results[0][name] == pytest.approx(results[1][name], rel=1e-5)
    parts = recmill.evaluate(tmp_path / "one", split="test", by="city")  # reads the rows again, by another way
    assert parts.slices is not None
    for name in ("auroc", "logloss", "calibration"):
        assert parts.result[name] == pytest.approx(results[0][name], rel=1e-5)
        assert getattr(parts.slices.overall, name).value == pytest.approx(results[0][name], rel=1e-5)
    calibrated = recmill.calibrate(tmp_path / "one", kind="isotonic")
    assert calibrated is not None
    assert calibrated.after["calibration"] == pytest.approx(1.0, abs=1e-3)
    recmill.calibrate(tmp_path / "one", kind="none")
    model = recmill.load(tmp_path / "one")
    with_all = model.predict("view,2,0.5,3,a\ncart,0,0.25,4,b\n")
    without_label = model.predict("2,0.5,3,a\n0,0.25,4,b\n")
    columns = model.predict({"price": [0.5, 0.25], "shop": [3, 4], "city": ["a", "b"]})
    assert with_all.tolist() == without_label.tolist() == columns.tolist(), "new rows need neither label nor weight"
