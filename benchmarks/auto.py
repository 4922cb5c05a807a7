"""`train auto` over several seeds, against logistic regression on the same encoded rows: recmill's and scikit-learn's.

`recmill bench auto --kind shop --json`, `--kind clicks`, or `--data FILE [--schema S] [--label COLUMN]`.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import recmill as rm
from benchmarks.criteo_kaggle_sample import score_floor
from benchmarks.report import Report
from recmill.files import ROWS

LEAST_LEAD, CALIBRATION = 0.003, (0.9, 1.1)


@dataclass(frozen=True)
class Outcome:
    """What one seed gave, on test rows."""

    model: float
    own_regression: float
    other_regression: float | None
    calibration: float
    seconds: float
    num_warnings: int

    @property
    def lead(self) -> float:
        """Over the better of the regressions."""
        return self.model - max(self.own_regression, self.other_regression or 0.0)


def run_seed(args: argparse.Namespace, seed: int, scratch: Path) -> Outcome:
    """Train with a seed; a synthetic table is another one for each."""
    data = args.data
    if data is None:
        rm.synth(args.kind, scratch / "data", rows=args.rows, seed=seed)
        data = scratch / "data" / "table.csv"
    started_s = time.perf_counter()
    run = rm.train(
        "auto", data=data, schema=args.schema, label=args.label, run=scratch / "run", overrides={"seed": seed}
    )
    seconds, results = time.perf_counter() - started_s, run.results
    model = results.test_of_best or results.test
    own, calibration = results.baselines["logistic_regression"].auroc, model.calibration
    assert model.auroc is not None
    assert own is not None
    assert calibration is not None
    other = None if args.own_only else score_floor(run.dir / ROWS).auroc
    return Outcome(model.auroc, own, other, calibration, seconds, len(results.warnings))


def tell(outcomes: Sequence[Outcome], args: argparse.Namespace) -> Report:
    """Every seed, and whether the bars hold on all of them."""
    report = Report("auto")
    for seed, outcome in enumerate(outcomes):
        report.figures[f"seed {seed} auroc"] = outcome.model
        report.figures[f"seed {seed} logistic regression auroc"] = outcome.own_regression
        if outcome.other_regression is not None:
            report.figures[f"seed {seed} scikit-learn auroc"] = outcome.other_regression
        report.figures[f"seed {seed} lead"] = outcome.lead
        report.figures[f"seed {seed} calibration"] = outcome.calibration
        report.figures[f"seed {seed} seconds"] = outcome.seconds
        report.figures[f"seed {seed} warnings"] = outcome.num_warnings
    report.notes = {
        "data": str(args.data or f"synth table --kind {args.kind} --rows {args.rows}"),
        "least lead": min(outcome.lead for outcome in outcomes),
        "lead of 0.003 on every seed": all(outcome.lead >= LEAST_LEAD for outcome in outcomes),
        "calibration within 0.9 and 1.1 on every seed": all(
            CALIBRATION[0] <= outcome.calibration <= CALIBRATION[1] for outcome in outcomes
        ),
    }
    return report


def main(argv: Sequence[str]) -> int:
    """`recmill bench auto`."""
    parser = argparse.ArgumentParser(prog="recmill bench auto", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--kind", choices=("clicks", "shop"), default="shop", help="of the synthetic table (shop)")
    parser.add_argument("--rows", type=int, default=100_000, help="of the synthetic table (100,000)")
    parser.add_argument("--data", type=Path, help="a file in place of a synthetic table")
    parser.add_argument("--schema", help="of that file; inferred if not given")
    parser.add_argument("--label", help="of that file")
    parser.add_argument("--seeds", type=int, default=5, help="how many (5)")
    parser.add_argument(
        "--own-only", action="store_true", help="leave out scikit-learn, which takes minutes on long logs"
    )
    args = parser.parse_args(argv)
    outcomes = []
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as scratch:
            outcomes.append(run_seed(args, seed, Path(scratch)))
    tell(outcomes, args).show(as_json=args.json)
    return 0
