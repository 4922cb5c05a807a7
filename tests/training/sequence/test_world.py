"""Sequences in several processes are those of one: windows, losses, ranks and weights, whoever goes on with them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from recmill.cli.main import main
from recmill.errors import ConfigError
from recmill.recipes.resolve import read_run_config
from recmill.serve.weights import find_weights
from recmill.settings.sequences import SequenceConfig
from recmill.training.checkpoint.checkpoint import read_model
from recmill.training.checkpoint.saved_tables import SavedTables
from recmill.training.sequence.job import SequenceJob
from recmill.training.sequence.sharding import spread_kind
from recmill.world import World
from tests.laws.world import assert_same_world, train_with
from tests.training.sequence.worlds import TINY, make_world, open_task, resolve

# 200 windows in each of 8 epochs are 123 batches of 13, which two processes cannot share evenly, and one of 1.
SETTINGS = (
    *TINY,
    "data.global_batch=13",
    "data.eval_batch=64",
    "model.attention_dropout=0.1",
    # Calm: Adam takes whole steps along gradients that are rounding errors, and a ReLU is all or nothing at zero.
    "dense.eps=0.001",
    "model.activation=gelu",
    "stop.max_epochs=8",
    "stop.patience=0",
    "cadence.log_every_steps=1",
    "cadence.keep_ledger=true",
)
SAMPLED = ("loss.kind=sampled", "loss.num_sampled=20")
COUNTED = ("model.item_init=co_occurrence", "model.transition_weight=1.0", "model.transition_events=3")
AVERAGED = ("average.from_step=5", "average.every_steps=7", "average.recent_frac=0.3")
NOT_AVERAGED = ("average.from_step=0", "average.every_steps=1", "average.recent_frac=1.0")  # as a recipe may be
SLOW = ("schedule.warmup_steps=1000",)  # of BERT4Rec, whose losses part by 1.04e-5 at one of 124 steps of full size
KINDS = {
    "sasrec": ("sasrec", AVERAGED),
    "sasrec sampled": ("sasrec", SAMPLED),
    "bert4rec": ("bert4rec", (*SLOW, "update.clip_norm=0.5")),
    "copies": ("bert4rec", (*SLOW, *SAMPLED, *AVERAGED, "tables.kind=adam", "tables.lr=0.01")),
    "spread": (
        "sasrec",
        (*SAMPLED, *COUNTED, "tables.kind=rowwise_adagrad", "tables.lr=0.1", "tables.initial_accumulator=0.1"),
    ),
    "spread own": (
        "bert4rec",
        (*SLOW, *SAMPLED, *NOT_AVERAGED, "model.output=own", "tables.kind=sgd", "tables.lr=0.1"),
    ),
}
# How the rows of an engine are laid out in two processes, one way for each kind; the run alone has no such setting.
LAYOUTS = {
    "copies": ("sharding.kind=data_parallel",),
    "spread": ("sharding.kind=row_wise",),
    "spread own": ("sharding.by_table.item=column_wise",),
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("chains"))[1]


def words_of(kind: str, data_dir: Path) -> list[str]:
    recipe, settings = KINDS[kind]
    return [recipe, "--data", str(data_dir), *(word for s in (*SETTINGS, *settings) for word in ("--set", s))]


def train_here(words: list[str], run_dir: Path) -> None:
    assert main(["train", *words, "--run", str(run_dir)]) == 0


def weights_of(run_dir: Path) -> dict[str, NDArray[np.float32]]:
    weights = load_file(run_dir / "model" / "dense.safetensors")
    with SavedTables(run_dir / "model", "weights") as saved:
        for name in saved.names:
            weights[name] = np.concatenate([rows.numpy() for rows in saved.read_rows(name)])
    return weights


def assert_same_weights(one: Path, other: Path) -> None:
    first, second = weights_of(one), weights_of(other)
    assert first.keys() == second.keys()
    for name, weights in first.items():
        np.testing.assert_allclose(weights, second[name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(name, marks=() if name in ("sasrec", "spread") else pytest.mark.slow) for name in KINDS],
)
def test_two_processes_are_as_one(kind: str, data_dir: Path, tmp_path: Path) -> None:
    words = words_of(kind, data_dir)
    train_here(words, tmp_path / "one")
    results = train_with(2, words, tmp_path / "two", LAYOUTS.get(kind, ()))
    assert (results["processes"], results["step"]) == (2, 124)
    assert_same_world(tmp_path / "one", tmp_path / "two")
    assert_same_weights(tmp_path / "one", tmp_path / "two")
    assert_same_verdict(tmp_path / "two")


def assert_same_verdict(run_dir: Path) -> None:
    """One process ranks for all users, with the weights that several have saved, as those did."""
    config, results = read_run_config(run_dir), json.loads((run_dir / "results.json").read_text())
    assert isinstance(config, SequenceConfig)
    task = open_task(config)
    read_model(run_dir / "model", task.state)
    for split in ("validation", "test"):
        assert task.evaluate(split).as_dict() == results[split]
    best = find_weights(run_dir, "best")
    read_model(best.directory, task.state)  # of which the network without transitions is told
    weights = "last" if best.directory.name == "model" else "best"
    assert task.evaluate_baselines("test", weights) == results["baselines"]


GOING_ON = ("stop.max_steps=30", "stop.max_steps=60", "stop.max_steps=90", "stop.max_steps=0")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sasrec", "spread", "copies"])
def test_a_run_goes_on_with_another_number_of_processes(kind: str, data_dir: Path, tmp_path: Path) -> None:
    """1 → 2 → 3 → 1, the rows of an engine in one place, spread by rows, as copies and in one place again."""
    words, moved = words_of(kind, data_dir), tmp_path / "moved"
    train_here(words, tmp_path / "one")
    train_with(1, words, moved, GOING_ON[:1])
    rows = "sharding.kind=row_wise" if kind == "spread" else "sharding.kind=data_parallel"
    for procs, stop, layout in ((2, GOING_ON[1], rows), (3, GOING_ON[2], "sharding.kind=auto"), (1, GOING_ON[3], rows)):
        train_with(procs, ["--resume"], moved, (stop, layout))
    assert_same_world(tmp_path / "one", moved)
    assert_same_weights(tmp_path / "one", moved)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sasrec", "bert4rec", "spread"])
def test_two_processes_killed_at_random_end_with_the_same_bytes(model: str) -> None:
    """Weights, optimizers' states, metrics and the ledger of windows; kills of one process and of both."""
    command = [sys.executable, "-m", "recmill", "bench", "resume", "--model", model, "--json"]
    command += ["--procs", "2", "--kills", "3", "--rows", "5000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    assert (figures["kills"], figures["bit_equal"], figures["rows_lost"], figures["rows_repeated"]) == (3, 1, 0, 0)


REFUSALS = [
    (("sharding.kind=row_wise",), "sharding of item = row_wise is for rows of an embedding engine, and without"),
    (("sharding.engine=torchrec",), "sharding.engine = torchrec is for rows of an embedding engine"),
    (("tables.kind=sgd", *SAMPLED, "sharding.by_table.user=row_wise"), "sharding.by_table names 'user'"),
    (
        ("tables.kind=sgd", *SAMPLED, "sharding.kind=row_wise", "sharding.engine=local"),
        "sharding.engine = local has copies only, and sharding of item is row_wise over 3 processes",
    ),
    (
        ("tables.kind=sgd", *SAMPLED, "sharding.kind=data_parallel", "sharding.engine=torchrec"),
        "sharding.engine = torchrec spreads the rows, and sharding of item = data_parallel",
    ),
    (
        ("tables.kind=rowwise_adagrad", *SAMPLED, "sharding.kind=column_wise"),
        "sharding of item is column_wise and tables.kind is rowwise_adagrad",
    ),
    (
        ("tables.kind=sgd", *SAMPLED, "sharding.kind=row_wise", "model.embedding_dim=6"),
        "model.embedding_dim = 6 is not a multiple of 4",
    ),
    (
        ("tables.kind=sgd", *SAMPLED, "sharding.kind=column_wise", "model.embedding_dim=20"),
        r"cuts model.embedding_dim = 20 into parts of \[4, 8\] columns",
    ),
    (
        ("tables.kind=sgd", *SAMPLED, "sharding.kind=row_wise", "average.from_step=2"),
        "average.from_step = 2 is of item vectors that every process has a copy of, and sharding of item is row_wise",
    ),
]


@pytest.mark.parametrize(("words", "complaint"), REFUSALS)
def test_layouts_that_cannot_be(words: tuple[str, ...], complaint: str, data_dir: Path) -> None:
    with pytest.raises(ConfigError, match=complaint):
        spread_kind(resolve(data_dir, "model.kind=sasrec", *words), 3)


def test_who_keeps_the_item_vectors(data_dir: Path) -> None:
    def kind(num_procs: int, *words: str) -> str | None:
        return spread_kind(resolve(data_dir, "model.kind=sasrec", "tables.kind=sgd", *SAMPLED, *words), num_procs)

    assert kind(1) is None
    assert kind(2) is None
    assert kind(1, "sharding.kind=row_wise") is None, "alone there is nothing to spread"
    assert kind(2, "sharding.kind=row_wise") == "row_wise"
    assert kind(2, "sharding.engine=local") is None
    assert kind(1, "sharding.engine=torchrec") == kind(3, "sharding.engine=torchrec") == "row_wise"
    assert kind(2, "sharding.kind=row_wise", "sharding.by_table.item=data_parallel") is None


def test_more_processes_than_windows_are_refused(data_dir: Path) -> None:
    config = resolve(data_dir, "model.kind=sasrec")
    job = SequenceJob(config)
    with job.opened(), pytest.raises(ConfigError, match=r"17 processes share data.global_batch = 16 windows"):
        job.refuse_unfit(World(size=17))
