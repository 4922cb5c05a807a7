"""Several processes are one: the same rows, losses, metrics and tables, whoever holds them and whoever goes on."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from recmill.data.synthetic.clicks import write_criteo
from recmill.embeddings.piece import What
from recmill.settings.synthetic import SynthSpec
from recmill.training.checkpoint.saved_tables import Extent, SavedTables
from recmill.training.loop.ledger import ENTRY, LEDGER
from tests.laws.world import CALM, assert_same_world, train_with, try_with

SETTINGS = (
    *CALM,
    f"data.table_rows={[50] * 26}",
    "data.global_batch=60",
    "data.eval_batch=300",
    "data.num_lanes=12",
    "data.block_bytes=9000",
    "model.embedding_dim=8",
    "model.bottom=[16, 8]",
    "model.top=[16, 1]",
    "cadence.log_every_steps=1",
    "cadence.keep_ledger=true",
)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    data_dir = tmp_path_factory.mktemp("shards") / "data"
    write_criteo(SynthSpec(rows=3000, days=3, seed=7, scale=0.0001), data_dir)
    return ["demo", "--data", str(data_dir), *(word for s in SETTINGS for word in ("--set", s))]


@pytest.fixture(scope="module")
def alone(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("alone") / "run"
    train_with(1, words, run_dir)
    return run_dir


def table(run_dir: Path, name: str, what: What = "weights") -> NDArray[np.float32]:
    with SavedTables(max((run_dir / "checkpoints").glob("step_*")), what) as saved:
        rows, columns = saved.shape(name)
        whole = np.full((rows, columns), np.nan, np.float32)
        for place, values in saved.read(name, Extent(0, rows, 0, columns)):
            whole[place.row : place.row_end, place.column : place.column_end] = values.numpy()
    return whole


def assert_same_tables(one: Path, other: Path) -> None:
    for name in ("cat_0", "cat_7", "cat_25"):
        np.testing.assert_allclose(table(one, name), table(other, name), atol=1e-6)


MIXED = (
    "sharding.kind=row_wise",
    'sharding.by_table={cat_0="data_parallel", cat_7="table_wise", cat_8="data_parallel"}',
)


def test_two_processes_are_as_one(words: list[str], alone: Path, tmp_path: Path) -> None:
    """Rows, copies and whole tables in one plan; validation limited, so that all read it and each keeps a share."""
    results = train_with(2, words, tmp_path / "two", MIXED)
    assert results["processes"] == 2
    by_rank = [np.bincount(np.fromfile(tmp_path / "two" / LEDGER / f"{rank:05}.bin", ENTRY)["step"]) for rank in (0, 1)]
    short = (by_rank[0] + by_rank[1] < 60) & (np.arange(len(by_rank[0])) > 0)
    assert short.any(), "the last batches are short"
    assert (np.abs(by_rank[0] - by_rank[1])[short] <= 1).all(), "and dealt out evenly"
    assert_same_world(alone, tmp_path / "two")
    assert_same_tables(alone, tmp_path / "two")


def test_a_loss_that_is_no_number_ends_all_processes_before_a_weight_moves(words: list[str], tmp_path: Path) -> None:
    """A rate that makes the layers so large in the first step that the second has no loss."""
    at_once = (*MIXED, "schedule.warmup_steps=0")
    train_with(2, words, tmp_path / "one", (*at_once, "stop.max_steps=1"))
    too_fast = (*at_once, "dense.lr=1e30")
    done = try_with(2, words, tmp_path / "all", too_fast)
    assert done.returncode == 1
    assert re.search(r"the loss of step 2 is (nan|inf) .*\n.*last good state is .*step_0000000001", done.stderr)
    assert_same_tables(tmp_path / "one", tmp_path / "all")
    done = try_with(2, words, tmp_path / "judged", (*too_fast, "stop.max_steps=1"))
    assert done.returncode == 1
    assert "the model scores rows of validation as nan: its weights have grown beyond" in done.stderr
    assert "not foreseen" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("procs", "settings"),
    [
        (1, ("sharding.engine=torchrec",)),
        (2, ()),
        (3, ()),
        (4, ("sharding.kind=row_wise",)),
        (2, ("sharding.kind=data_parallel",)),
    ],
)
def test_many_processes_are_as_one(
    procs: int, settings: tuple[str, ...], words: list[str], alone: Path, tmp_path: Path
) -> None:
    train_with(procs, words, tmp_path / "many", settings)
    assert_same_world(alone, tmp_path / "many")
    assert_same_tables(alone, tmp_path / "many")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adagrad", "rowwise_adagrad"])
def test_a_run_goes_on_with_another_number_of_processes_and_another_plan(
    kind: str, words: list[str], tmp_path: Path
) -> None:
    """1 → 2 → 3 → 1 processes; columns, where the rule allows them, and rows, with what the optimizer keeps."""
    common = (f"tables.kind={kind}",)
    train_with(1, words, tmp_path / "alone", common)
    first = "column_wise" if kind == "adagrad" else "row_wise"
    moved = tmp_path / "moved"
    train_with(1, words, moved, (*common, "stop.max_steps=8"))
    for procs, steps, plan in ((2, 16, first), (3, 24, "row_wise"), (1, 0, "table_wise")):
        words_to_go_on = ["--resume", "--set", f"stop.max_steps={steps}", "--set", f"sharding.kind={plan}"]
        train_with(procs, words_to_go_on, moved)
    assert_same_world(tmp_path / "alone", moved)
    whats: tuple[What, ...] = ("weights", "state")
    for what in whats:
        for name in ("cat_0", "cat_25"):
            np.testing.assert_allclose(table(tmp_path / "alone", name, what), table(moved, name, what), atol=1e-5)
