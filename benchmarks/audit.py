"""Raw Criteo text to what its columns hold: `recmill audit` and a polars program on the same file.

polars tells a part of what recmill does: the share of missing fields of every column; minimum, maximum and quantiles of
the numbers; distinct values and the most frequent ones of the categories. It holds the whole file in memory for that.
recmill's memory is bounded, and it looks at repeated rows, equal columns and columns that give the label away as well.
What both tell is compared before anything is timed, where recmill's bound made no estimate of it.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.read import polars_frame
from benchmarks.report import Report, add_common_options, alternate, median_ratio
from recmill.data.audit.audit import AuditInput, audit_files
from recmill.data.audit.profile import NUM_TOP_VALUES, QUANTILES
from recmill.data.audit.report import AuditReport, Limits
from recmill.data.synthetic.clicks import write_criteo
from recmill.memory import keep_freed_memory
from recmill.settings.criteo import CRITEO
from recmill.settings.synthetic import SynthSpec


@dataclass(frozen=True)
class PolarsAudit:
    """By column: the share of missing fields, facts of the numbers, and distinct values with the top ones' rows."""

    missing_frac: dict[str, float]
    numbers: dict[str, list[float]]  # minimum, maximum and the quantiles
    categories: dict[str, tuple[int, list[int]]]


def audit_with_recmill(path: Path, threads: int) -> AuditReport:
    """The command's own work."""
    return audit_files(AuditInput((path,), (), CRITEO, threads=threads), Limits())


def audit_with_polars(path: Path) -> PolarsAudit:
    """One query for the numbers, and one for each category that counts its values once for all that is told of them."""
    frame = polars_frame(path)
    missing = frame.null_count().row(0, named=True)
    facts = {
        name: frame.lazy().select(
            pl.col(name).min().alias("min"),
            pl.col(name).max().alias("max"),
            *(pl.col(name).quantile(q, "equiprobable").alias(str(q)) for q in QUANTILES),
        )
        for name in CRITEO.dense_names
    }
    counts = {name: frame.lazy().select(name).drop_nulls().group_by(name).len() for name in CRITEO.category_names}
    told = dict(zip([*facts, *counts], pl.collect_all([*facts.values(), *counts.values()]), strict=True))
    return PolarsAudit(
        {name: count / frame.height for name, count in missing.items() if name != "label"},
        {name: list(told[name].row(0)) for name in facts},
        {name: (told[name].height, told[name]["len"].top_k(NUM_TOP_VALUES).to_list()) for name in counts},
    )


def count_equal_columns(ours: AuditReport, theirs: PolarsAudit) -> int:
    """How many columns were compared in all that is told of them; a difference is an error."""
    num_compared = 0
    for number in ours.dense:
        assert number.missing_frac == theirs.missing_frac[number.name], number.name
        if number.quantile_method == "exact":
            told = [number.minimum, number.maximum, *(number.quantiles or {}).values()]
            np.testing.assert_array_equal(told, theirs.numbers[number.name], number.name)
            num_compared += 1
    for category in ours.categories:
        assert category.missing_frac == theirs.missing_frac[category.name], category.name
        if category.distinct_method == "exact":
            told_rows = sorted((top.rows for top in category.top_values), reverse=True)
            num_distinct, top_rows = theirs.categories[category.name]
            assert (category.num_distinct, told_rows) == (num_distinct, sorted(top_rows, reverse=True)), category.name
            num_compared += 1
    return num_compared


def measure(path: Path, *, threads: int, rounds: int) -> Report:
    """Both, turn by turn."""
    ours, theirs = audit_with_recmill(path, threads), audit_with_polars(path)
    num_rows, num_compared = ours.train.num_rows, count_equal_columns(ours, theirs)
    del ours, theirs
    contenders: dict[str, Callable[[], object]] = {
        "recmill": lambda: audit_with_recmill(path, threads),
        "polars": lambda: audit_with_polars(path),
    }
    timings = alternate(contenders, rounds=rounds)
    report = Report("audit")
    for name, timing in timings.items():
        report.figures[f"{name} rows/s"] = num_rows / timing.median_s
        report.figures[f"{name} spread"] = timing.spread_frac
    report.ratios["recmill/polars"] = median_ratio(timings, "recmill", "polars")
    report.notes = {
        "rows": num_rows,
        "MB": round(path.stat().st_size / 1e6, 1),
        "rounds": rounds,
        "threads": threads,
        "columns compared": f"{num_compared} of {len(CRITEO.dense_names) + len(CRITEO.category_names)}",
    }
    return report


def main(argv: Sequence[str]) -> int:
    """`recmill bench audit`."""
    parser = argparse.ArgumentParser(prog="recmill bench audit", description=__doc__)
    add_common_options(parser, rounds=7)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the synthetic file (1,000,000)")
    parser.add_argument("--threads", type=int, default=2, help="threads of recmill's audit (2)")
    args = parser.parse_args(argv)
    keep_freed_memory()  # as the command does; it serves both contenders
    with tempfile.TemporaryDirectory() as scratch:
        write_criteo(SynthSpec(rows=args.rows, days=1, seed=0), Path(scratch) / "data")
        measure(Path(scratch) / "data" / "day_0", threads=args.threads, rounds=args.rounds).show(as_json=args.json)
    return 0
