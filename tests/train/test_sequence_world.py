"""Sequences in several processes are those of one: windows, losses, ranks and weights, whoever goes on with them."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.laws.world import assert_same_world, train_with
from tests.train.test_sequence_job import TINY, make_world

# 200 windows in each of 8 epochs are 123 batches of 13, which two processes cannot share evenly, and one of 1.
SETTINGS = (
    *TINY,
    "data.global_batch=13",
    "data.eval_batch=64",
    "model.attention_dropout_frac=0.1",
    "stop.max_epochs=8",
    "stop.patience=0",
    "cadence.log_every_steps=1",
    "cadence.keep_ledger=true",
)
SAMPLED = ("loss.kind=sampled", "loss.num_sampled=20")
KINDS = {
    "sasrec": ("sasrec", ()),
    "sasrec sampled": ("sasrec", SAMPLED),
    "bert4rec": ("bert4rec", ("update.clip_norm=0.5",)),
    "copies": ("bert4rec", (*SAMPLED, "tables.kind=adam", "tables.lr=0.01")),
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("chains"))[1]


def words_of(kind: str, data_dir: Path) -> list[str]:
    recipe, settings = KINDS[kind]
    return [recipe, "--data", str(data_dir), *(word for s in (*SETTINGS, *settings) for word in ("--set", s))]


def assert_same_weights(one: Path, other: Path) -> None:
    first, second = (load_file(run_dir / "model" / "dense.safetensors") for run_dir in (one, other))
    assert first.keys() == second.keys()
    for name, weights in first.items():
        if name.endswith(
            "qkv.bias"
        ):  # what is added to all keys changes no softmax: Adam follows rounding errors there
            continue
        np.testing.assert_allclose(weights, second[name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "kind",
    ["sasrec", "copies", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sasrec sampled", "bert4rec"))],
)
def test_two_processes_are_as_one(kind: str, data_dir: Path, tmp_path: Path) -> None:
    words = words_of(kind, data_dir)
    train_with(1, words, tmp_path / "one")
    results = train_with(2, words, tmp_path / "two")
    assert (results["processes"], results["step"]) == (2, 124)
    assert_same_world(tmp_path / "one", tmp_path / "two")
    assert_same_weights(tmp_path / "one", tmp_path / "two")
