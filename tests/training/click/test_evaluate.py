"""A split is judged whole or by its first batches, and the result tells which."""

from pathlib import Path

import pytest

from recmill.settings.data import SplitName
from recmill.training.click.assemble import assemble
from recmill.training.click.evaluate import ClickEvaluation, evaluate
from recmill.training.click.inputs import Inputs
from tests.training.conftest import Resolve

NUM_ROWS = 500  # of each split in the tiny world


def _evaluate(resolve: Resolve, split: SplitName, *settings: str) -> ClickEvaluation:
    config = resolve(*settings)
    with Inputs(config) as inputs:
        return evaluate(assemble(config), inputs, split)


@pytest.mark.parametrize(
    ("max_batches", "num_rows"), [(0, NUM_ROWS), (1, 120), (4, 480), (5, NUM_ROWS), (99, NUM_ROWS)]
)
@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_limit_is_of_whole_batches_and_is_told(
    resolve: Resolve, split: SplitName, max_batches: int, num_rows: int
) -> None:
    other = "test" if split == "validation" else "validation"
    settings = ("data.eval_batch=120", f"data.max_{split}_batches={max_batches}", f"data.max_{other}_batches=2")
    evaluation = _evaluate(resolve, split, *settings)
    told = evaluation.as_dict()
    assert (told["num_rows"], told["whole_split"]) == (num_rows, num_rows == NUM_ROWS)
    assert ("(only the first " in evaluation.describe()) == (num_rows < NUM_ROWS)


def test_a_limit_keeps_the_first_rows(resolve: Resolve, tiny_world_dir: Path) -> None:
    lines = (tiny_world_dir / "day_2").read_bytes().splitlines()
    limited = _evaluate(resolve, "test", "data.eval_batch=120", "data.max_test_batches=2")
    assert limited.result.num_clicks == sum(line.startswith(b"1") for line in lines[500:740])


def test_the_size_of_evaluation_batches_changes_no_count(resolve: Resolve) -> None:
    small, large = (_evaluate(resolve, "test", f"data.eval_batch={rows}") for rows in (7, 10_000))
    assert small.result.num_rows == large.result.num_rows == NUM_ROWS
    assert small.result.auroc == pytest.approx(large.result.auroc, abs=1e-6)
    assert small.result.logloss == pytest.approx(large.result.logloss, abs=1e-6)
