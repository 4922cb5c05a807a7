"""Raw text to a judged model, as the demo does it."""

from pathlib import Path

import numpy as np
import pytest

from recmill.data.synthetic.clicks import ClickWorld, write_criteo
from recmill.metrics import ClickMetrics, ClickResult
from recmill.recipes.demo import SYNTH_SCALE
from recmill.recipes.resolve import config
from recmill.settings.clicks import TrainConfig
from recmill.settings.criteo import scaled_table_rows
from recmill.settings.synthetic import SynthSpec
from recmill.training.click.inputs import Inputs
from recmill.training.job import run_job
from tests.laws.learns import assert_learns

# A third of the demo's rows: more and larger steps, and smaller tables, whose rows start further from zero.
FOR_FEWER_ROWS = (
    f"data.table_rows={[max(1000, rows) for rows in scaled_table_rows(SYNTH_SCALE)]}",
    "data.global_batch=256",
    "tables.kind=adagrad",
    "tables.lr=0.2",
    "schedule.decay_start_step=600",
    "schedule.decay_steps=400",
)


def train_demo(data_dir: Path, run_dir: Path, *assignments: str) -> ClickResult:
    test = run_job(config("demo", data=data_dir, overrides=assignments), run_dir)["test"]
    return ClickResult(**{name: test[name] for name in ClickResult.__dataclass_fields__})


def make_world(data_dir: Path, rows: int, seed: int) -> ClickWorld:
    return write_criteo(SynthSpec(rows=rows, days=6, seed=seed, scale=SYNTH_SCALE), data_dir)


def best_auroc(world: ClickWorld) -> float:
    assert world.best_possible.test.auroc is not None
    return world.best_possible.test.auroc


def test_a_model_learns_the_planted_pairs_from_raw_text(tmp_path: Path) -> None:
    world = make_world(tmp_path / "data", 300_000, seed=11)
    result = train_demo(tmp_path / "data", tmp_path / "run", *FOR_FEWER_ROWS)
    assert_learns(result, best_auroc=best_auroc(world), within=0.02)
    assert world.best_without_pairs.test.auroc is not None
    assert result.auroc is not None
    assert result.auroc > world.best_without_pairs.test.auroc + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_demo_comes_within_0_015_of_the_best_possible(seed: int, tmp_path: Path) -> None:
    world = make_world(tmp_path / "data", 1_000_000, seed=seed)
    result = train_demo(tmp_path / "data", tmp_path / "run", f"seed={seed}")
    assert_learns(result, best_auroc=best_auroc(world), within=0.015)


@pytest.mark.slow
def test_a_linear_model_cannot_reach_the_best_possible(tmp_path: Path) -> None:
    """Logistic regression on all dense features and one-hot categories: it ends where the rule without pairs does."""
    from scipy.sparse import csr_matrix, hstack
    from sklearn.linear_model import LogisticRegression

    world = make_world(tmp_path / "data", 200_000, seed=5)
    settings = config("demo", data=tmp_path / "data")
    assert isinstance(settings, TrainConfig)
    first_columns = np.concatenate([[0], np.cumsum(settings.data.num_table_rows)])

    def features(split: str) -> tuple[csr_matrix, np.ndarray]:
        with Inputs(settings) as inputs, inputs.open_evaluation(split) as stream:  # type: ignore[arg-type]
            columns = [batch.columns for batch in stream]
        ids = np.concatenate([c.ids for c in columns]) + first_columns[:-1]
        places = np.arange(0, ids.size + 1, ids.shape[1])
        one_hot = csr_matrix((np.ones(ids.size, np.float32), ids.ravel(), places), (len(ids), int(first_columns[-1])))
        dense = csr_matrix(np.concatenate([c.dense for c in columns]) / 10)  # of the size of the others
        return hstack([dense, one_hot]).tocsr(), np.concatenate([c.labels for c in columns])

    model = LogisticRegression(C=0.1, max_iter=2000, tol=1e-3).fit(*features("train"))
    test_features, test_labels = features("test")
    metrics = ClickMetrics()
    metrics.update(model.decision_function(test_features).astype(np.float32), test_labels)
    linear = metrics.result().auroc
    assert linear is not None
    assert world.best_without_pairs.test.auroc is not None
    assert 0.68 < linear < world.best_without_pairs.test.auroc + 0.01 < best_auroc(world) - 0.05
