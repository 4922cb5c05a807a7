"""Rows that have only categories, or only numbers, train every model, in memory and from a file."""

from pathlib import Path

import numpy as np
import pytest

import recmill as rm
from recmill.seeds import rng

KINDS = ("dlrm", "dcn", "projection", "finalmlp", "dnn")
SCHEMAS = {
    "categories": '{name = "a", role = "category", kind = "string", rows = 50}, {name = "b", role = "ignored"}',
    "numbers": '{name = "a", role = "ignored"}, {name = "b", role = "dense", kind = "float", encoding = "identity"}',
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A label that depends on a word and on a number alike."""
    path = tmp_path_factory.mktemp("one_sided") / "t.csv"
    draw = rng(0, "one-sided")
    words, numbers = draw.integers(0, 8, 6_000), draw.standard_normal(6_000)
    chances = 1 / (1 + np.exp(-(words - 3.5) / 2 - numbers))
    labels = (draw.random(6_000) < chances).astype(int)
    lines = [f"w{word},{number:.4f},{label}" for word, number, label in zip(words, numbers, labels, strict=True)]
    path.write_text("a,b,y\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", list(SCHEMAS))
def test_every_model_learns_from_one_side(table: Path, tmp_path: Path, side: str, kind: str) -> None:
    schema = tmp_path / "schema.toml"
    columns = f'{SCHEMAS[side]}, {{name = "y", role = "label", kind = "int"}}'
    schema.write_text(f"separator = ','\nheader = true\ncolumns = [{columns}]\n")
    overrides = {"model.kind": kind, "data.holdout_frac": 0.2, "data.global_batch": 64, "epochs": 2, "threads": 1}
    run = rm.train("demo", data=table, schema=str(schema), run=tmp_path / "run", overrides=overrides)
    assert run.results.test.auroc is not None
    assert run.results.test.auroc > 0.65
    assert rm.load(run.dir).predict(table).shape == (6_000,)
