"""`recmill audit`: what is wrong with the data, in one pass and before anyone trains on it."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.cli.options import Verbs, add_set_option, add_time_split_options

if TYPE_CHECKING:
    from rich.table import Table

    from recmill.data.audit.profile import CategoryProfile
    from recmill.data.audit.report import AuditReport

TRAINING_WOULD_BE_WRONG = 2


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "audit",
        help="what is wrong with the data, before training on it",
        description="One pass over raw or prepared rows. Exit status 2 if training on them would be wrong: no rows, "
        "bad lines, one label only, test rows that are training rows, a column that gives the label away, "
        "prepared rows that are damaged.",
    )
    parser.add_argument(
        "source", nargs="?", metavar="RECIPE|FILE|RUN", help="look at the rows as training with these settings would"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="directory of logs or prepared rows; a file, a pattern, - for a pipe"
    )
    add_set_option(parser, "which lines are for what, e.g. data.holdout_frac=0.1")
    add_time_split_options(parser)
    parser.add_argument("--files", nargs="+", default=[], metavar="PATTERN", help="training files, instead of days")
    parser.add_argument("--test-files", nargs="+", default=[], metavar="PATTERN", help="test files, with --files")
    parser.add_argument("--schema", metavar="NAME|FILE", help="columns of the rows; auto infers them (criteo)")
    parser.add_argument(
        "--coverage", type=float, default=0.99, metavar="P", help="share of rows that suggested tables cover (0.99)"
    )
    parser.add_argument(
        "--max-overlap", type=float, default=0.01, metavar="P", help="share of test rows that may be in training (0.01)"
    )
    parser.add_argument(
        "--bad-rows",
        choices=("fail", "skip"),
        help="what training will do with lines that cannot be rows: stop, or ignore them (as the settings say)",
    )
    parser.add_argument(
        "--max-bad-frac",
        type=float,
        metavar="P",
        help="share of lines that may be ignored with --bad-rows skip, as data.max_bad_frac (0.01)",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="T")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Look at the files and print what was found."""
    from recmill.api.audit import audit
    from recmill.data.logs.stdin_file import given_path

    started_s = time.perf_counter()
    options = [] if args.test_after is None else [f"data.test_after={args.test_after!r}"]
    options += [] if args.test_days is None else [f"data.holdout_days={args.test_days}"]
    report = audit(
        None if args.data is None else given_path(args.data),
        source=args.source,
        overrides=[*options, *args.assignments],
        files=tuple(args.files),
        test_files=tuple(args.test_files),
        schema=args.schema,
        coverage=args.coverage,
        max_overlap=args.max_overlap,
        bad_rows=args.bad_rows,
        max_bad_frac=args.max_bad_frac,
        threads=args.threads,
        on_progress=_show_progress if sys.stderr.isatty() else None,
    )
    seconds = time.perf_counter() - started_s
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if args.json:
        print(json.dumps(report.as_dict()))
    else:
        print_report(report, seconds)
    return TRAINING_WOULD_BE_WRONG if report.reasons else 0


def _show_progress(num_rows: int) -> None:
    print(f"\r{num_rows:,} rows ", end="", file=sys.stderr, flush=True)


def print_report(report: "AuditReport", seconds: float) -> None:
    """Tables for the columns, then what is noteworthy, then whether one may train on them."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 160  # a file has no edge
    for name, facts in (("train", report.train), ("test", report.test)):
        rate = "" if facts.click_rate is None or not report.has_label else f", click rate {facts.click_rate:.4f}"
        held_out = _held_out(report) if name == "test" else ""
        console.print(f"{name:5} {facts.num_rows:,} rows{held_out}{rate}")
    num_rows = report.train.num_rows + report.test.num_rows
    console.print(f"read  {num_rows / seconds:,.0f} rows/s")
    if report.train.num_rows and report.dense:
        console.print(_dense_table(report))
    if report.train.num_rows and report.categories:
        console.print(_category_table(report, num_top=3 if console.width >= 120 else 1))
        console.print(_table_sizes(report), markup=False)
    for line in (*report.bad.first, *report.notes):
        console.print(f"note  {line}", markup=False)
    for reason in report.reasons:
        console.print(f"WRONG {reason}", markup=False)
    if not report.reasons:
        console.print("nothing found that forbids training on this")


def _held_out(report: "AuditReport") -> str:
    if report.prepared is None:
        return ""
    return f" ({report.prepared.rows['validation']:,} validation, {report.prepared.rows['test']:,} test)"


def _table_sizes(report: "AuditReport") -> str:
    if report.prepared is not None:
        return f"table rows of the manifest: {','.join(map(str, report.prepared.table_rows))}"
    sizes = ",".join(str(column.table_rows) for column in report.categories)
    return f"table rows for {report.limits.coverage_frac:.2%} of the values: {sizes}"


def _dense_table(report: "AuditReport") -> "Table":
    from recmill.data.audit.profile import QUANTILES

    is_exact = all(column.quantile_method == "exact" for column in report.dense)
    worst = max(column.quantile_error_frac for column in report.dense)
    precision = "exact quantiles" if is_exact else f"≈ quantiles within {worst:.1e} of their value"
    table = _new_table(
        f"numbers of the training rows, {precision}",
        ("column", "missing", "min", *(f"{q:.0%}" for q in QUANTILES), "max", "AUROC"),
    )
    for column in report.dense:
        quantiles = column.quantiles or {}
        mark = "" if column.quantile_method == "exact" else "≈"
        told = [_number(quantiles.get(str(q)), mark) for q in QUANTILES]
        missing = f"{column.missing_frac:.1%}"
        table.add_row(
            column.name, missing, _number(column.minimum), *told, _number(column.maximum), _number(column.auroc)
        )
    return table


def _category_table(report: "AuditReport", *, num_top: int) -> "Table":
    coverage = f"cover {report.limits.coverage_frac:.2%}"
    table = _new_table(
        "categories of the training rows, most frequent values",
        ("column", "missing", "distinct", coverage, "AUROC", "top values"),
    )
    for column in report.categories:
        mark = "" if column.distinct_method == "exact" else "≈"
        error = f" ± {column.distinct_error_frac:.2%}" if mark else ""
        table.add_row(
            column.name,
            f"{column.missing_frac:.1%}",
            f"{mark}{column.num_distinct:,}{error}",
            f"{mark}{column.covering_values:,}",
            _number(column.auroc),
            _top_values(column, num_top),
        )
    return table


def _top_values(column: "CategoryProfile", num_top: int) -> str:
    from rich.markup import escape

    from recmill.data.values.known import one_line

    return "  ".join(f"{escape(one_line(top.value))} {top.frac:.1%}" for top in column.top_values[:num_top])


def _new_table(title: str, headings: tuple[str, ...]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in headings:
        is_text = heading in ("column", "top values")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    return table


def _number(value: float | None, mark: str = "") -> str:
    if value is None:
        return ""
    return f"{mark}{value:.0f}" if float(value).is_integer() else f"{mark}{value:.4g}"
