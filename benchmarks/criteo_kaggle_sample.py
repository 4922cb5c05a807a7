"""Models against logistic regression on a sample of Criteo's Kaggle log, in the order of time.

The last seventh of the file is held out, for models trained on the rows before it. Tuning is for
--validation alone: trained on the first five sevenths, evaluated on the sixth. Logistic regression, the floor, is
scikit-learn's on one-hot categories and the logarithms of the numbers.
"""

import argparse
import gzip
import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Report
from recmill.data.batch import Columns, join_columns
from recmill.data.logs.opening import open_splits
from recmill.data.prepared.directory import Prepared
from recmill.data.prepared.prepare import PrepareJob, prepare
from recmill.data.stream.stream import Order, Stream
from recmill.errors import DataError, MissingExtra
from recmill.metrics import ClickMetrics
from recmill.recipes.resolve import config
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import DataConfig, SplitName
from recmill.training.job import run_job

CHECKOUT = Path(__file__).resolve().parents[1]
SAMPLE = CHECKOUT / ".." / "shared" / "data" / "criteo" / "kaggle_sample_117k.txt.gz"
RECIPE = "criteo-small"
BAR = 0.004  # of AUROC, the best model above the floor

# What was chosen on the sixth seventh; LOG.md has what it was chosen among.
MIN_COUNT, FLOOR_C = 2, 0.05
MODELS: dict[str, dict[str, Any]] = {
    "dnn": {},  # the recipe itself
    "dlrm": {"bottom": [64, 8], "top": [128, 64, 1]},
    "dcn": {"bottom": [64, 8], "top": [128, 64, 1], "cross_layers": 2, "cross_rank": 32},
    "finalmlp": {"stream1": [128, 64], "stream2": [128, 64]},
}


@dataclass(frozen=True)
class Score:
    """How well some rows were told apart, and how well their probabilities were told."""

    auroc: float
    logloss: float


@dataclass(frozen=True)
class Rows:
    """A directory of files `train`, `validation` and `held_out`, and how many rows there are to train on."""

    directory: Path
    num_train: int


def cut_sample(sample: Path, out_dir: Path, *, validation: bool) -> Rows:
    """The rows to train on and those to evaluate: the last seventh, or for tuning the one before it."""
    if not sample.is_file():
        raise DataError(f"there is no {sample}; give the sample of Criteo's Kaggle log with --sample FILE")
    with gzip.open(sample) as file:
        lines = file.readlines()
    fifth, sixth = len(lines) * 5 // 7, len(lines) * 6 // 7
    train, held_out = (lines[:fifth], lines[fifth:sixth]) if validation else (lines[:sixth], lines[sixth:])
    out_dir.mkdir()
    # a preparation wants rows for validation too; nobody looks at these
    for name, rows in (("train", train), ("validation", train[-2:]), ("held_out", held_out)):
        (out_dir / name).write_bytes(b"".join(rows))
    return Rows(out_dir, len(train))


def prepare_rows(rows: Rows, out_dir: Path) -> Path:
    """Encoded by a vocabulary of the training rows, which are shuffled."""
    data = DataConfig(
        dir=str(rows.directory),
        row_schema="kaggle",
        train_files=("train",),
        validation_files=("validation",),
        test_files=("held_out",),
        table_rows=(2,) * 26,
    )
    splits = open_splits(data)
    prepare(PrepareJob(splits, data.schema_of_rows, out_dir, min_count=MIN_COUNT, seed=0))
    splits.close()
    return out_dir


def copied(columns: Columns) -> Columns:
    """Rows that stay when their batch is gone."""
    return Columns(columns.dense.copy(), columns.ids.copy(), columns.labels.copy())


def read_columns(directory: Path, split: SplitName) -> Columns:
    """All rows of a split."""
    prepared = Prepared(directory)
    with Stream(prepared.reader, prepared.segments(split), Order(global_batch=16_384)) as stream:
        columns = join_columns([copied(batch.columns) for batch in stream])
    prepared.close()
    return columns


def score_floor(directory: Path) -> Score:
    """Logistic regression, to its optimum, which no seed changes."""
    try:
        from scipy.sparse import csr_matrix, hstack
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import OneHotEncoder, StandardScaler
    except ImportError as error:
        raise MissingExtra(f"the floor needs scikit-learn ({error}): make install-full") from None
    train, held_out = read_columns(directory, "train"), read_columns(directory, "test")
    scaler, encoder = StandardScaler().fit(train.dense), OneHotEncoder(handle_unknown="ignore").fit(train.ids)

    def features(columns: Columns) -> Any:
        return hstack([csr_matrix(scaler.transform(columns.dense)), encoder.transform(columns.ids)]).tocsr()

    model = LogisticRegression(C=FLOOR_C, max_iter=1000).fit(features(train), train.labels)
    return score(model.decision_function(features(held_out)), held_out.labels)


def score(logits: NDArray[Any], labels: NDArray[np.float32]) -> Score:
    """By recmill's own metrics, which all contenders share."""
    metrics = ClickMetrics()
    metrics.update(logits.astype(np.float32), labels)
    result = metrics.result()
    assert result.auroc is not None
    assert result.logloss is not None
    return Score(result.auroc, result.logloss)


def settings_of(kind: str, prepared_dir: Path, num_train: int, *, seed: int, threads: int | None) -> TrainConfig:
    """The recipe's, with another model in the place of its own."""
    overrides = {"model": {"kind": kind, **MODELS[kind]}, "data.holdout_frac": None, "seed": seed, "threads": threads}
    settings = config(RECIPE, data=prepared_dir, overrides=overrides)
    second_epoch = math.ceil(num_train / settings.data.global_batch)
    settings = settings.with_({"average.from_step": second_epoch})
    assert isinstance(settings, TrainConfig)
    return settings


def score_model(config: TrainConfig, run_dir: Path) -> Score:
    """Train, and evaluate once."""
    held_out = run_job(config, run_dir)["test"]
    return Score(held_out["auroc"], held_out["logloss"])


def tell(scores: Mapping[str, Sequence[Score]], seeds: int, *, validation: bool) -> Report:
    """Means with their deviations, and the best model's distance from the floor."""
    report = Report(
        "criteo-kaggle-sample", notes={"seeds": seeds, "evaluated on": "sixth" if validation else "last seventh"}
    )
    for name, of_seeds in scores.items():
        for measure in ("auroc", "logloss"):
            values = [getattr(each, measure) for each in of_seeds]
            report.figures[f"{name} {measure}"] = statistics.mean(values)
            report.figures[f"{name} {measure} deviation"] = statistics.stdev(values) if len(values) > 1 else 0.0
    means = {name: report.figures[f"{name} auroc"] for name in scores}
    models = {name: mean for name, mean in means.items() if name != "floor"}
    if "floor" in means and models:
        best = max(models, key=lambda name: models[name])
        report.notes |= {"best": best, "best above the floor": round(models[best] - means["floor"], 5), "bar": BAR}
        for name, mean in models.items():
            report.notes[f"{name} above the floor"] = round(mean - means["floor"], 5)
    return report


def main(argv: Sequence[str]) -> int:
    """`recmill bench criteo-kaggle-sample`."""
    parser = argparse.ArgumentParser(prog="recmill bench criteo-kaggle-sample", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--sample", type=Path, default=SAMPLE, metavar="FILE", help="the sample, packed by gzip")
    parser.add_argument("--seeds", type=int, default=3, help="runs of every model (3)")
    parser.add_argument("--models", nargs="+", choices=("floor", *MODELS), default=["floor", *MODELS])
    parser.add_argument("--threads", type=int, help="of every run (all cores)")
    parser.add_argument("--validation", action="store_true", help="for tuning: the last seventh is not touched")
    args = parser.parse_args(argv)
    scores: dict[str, list[Score]] = {}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        rows = cut_sample(args.sample, scratch / "raw", validation=args.validation)
        prepared_dir = prepare_rows(rows, scratch / "rows")
        if "floor" in args.models:
            scores["floor"] = [score_floor(prepared_dir)]
        for kind in args.models:
            for seed in range(args.seeds if kind != "floor" else 0):
                config = settings_of(kind, prepared_dir, rows.num_train, seed=seed, threads=args.threads)
                scores.setdefault(kind, []).append(score_model(config, scratch / f"{kind}_{seed}"))
    tell(scores, args.seeds, validation=args.validation).show(as_json=args.json)
    return 0
