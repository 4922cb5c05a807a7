"""`recmill evaluate`: the metrics of a finished run on a split, or on all rows of new files, and of parts of them."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.cli.options import (
    Verbs,
    add_bad_rows_option,
    add_layers_option,
    add_set_option,
    add_weights_options,
    import_layers,
)
from recmill.errors import ConfigError

if TYPE_CHECKING:
    from recmill.api.slices import Slices
    from recmill.slices import SliceMetrics

_WIDTH = 28  # of a value in a table


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("evaluate", help="evaluate the model of a run")
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="run directory")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="NEW",
        help="a file or directory to evaluate all rows of, if not the run's own data",
    )
    parser.add_argument(
        "--split",
        choices=("all", "train", "validation", "test"),
        help="the part to evaluate (test; with --data, of a click model: all)",
    )
    parser.add_argument(
        "--max-batches",
        type=int,
        metavar="N",
        help="evaluate the first N batches only; 0: all (as the run's settings say)",
    )
    add_slice_options(parser)
    add_weights_options(parser)
    add_bad_rows_option(parser)
    add_set_option(parser, "how to evaluate, if not as the run did, e.g. protocol.candidates=popularity of sequences")
    add_layers_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run_verb=run)


def add_slice_options(parser: argparse.ArgumentParser) -> None:
    """Parts of the rows, of click models."""
    parts = parser.add_argument_group("parts of the rows (click models), with 95 %% confidence intervals")
    parts.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="COLUMN",
        help="metrics for each value of a column; may be repeated",
    )
    parts.add_argument(
        "--max-values", type=int, default=10, metavar="N", help="of --by: the N most frequent, the rest as one (10)"
    )
    parts.add_argument("--group", metavar="COLUMN", help="GAUC: AUROC within each value of a column, such as a user")
    parts.add_argument(
        "--top", type=float, nargs="+", default=[], metavar="PERCENT", help="recall and lift of the highest scores"
    )


def run(args: argparse.Namespace) -> int:
    """Read the weights, evaluate, print."""
    from recmill.api.evaluate import evaluate
    from recmill.cli.show import print_rankings
    from recmill.data.logs.stdin_file import given_path
    from recmill.recipes.resolve import read_run_config
    from recmill.settings.families import CLICK, family_of

    is_click = family_of(read_run_config(args.run_dir)) is CLICK
    overrides = [*option_assignments(args, is_click=is_click), *args.assignments]
    found = evaluate(
        args.run_dir,
        split=args.split,
        weights=args.weights,
        data=None if args.data is None else given_path(args.data),
        overrides=overrides,
        model=import_layers(args.layers),
        max_batches=args.max_batches,
        by=args.by,
        group=args.group,
        top=args.top,
        max_values=args.max_values,
    )
    if args.json:
        print(json.dumps(found.as_dict()))
    elif is_click:
        first, *more = found.description.splitlines()
        print("\n".join([f"{first}  {found.weights}", *more]))
        if found.slices is not None:
            print_slices(found.slices)
    else:
        print_rankings(found.split, {found.weights: found.result, **found.comparisons["baselines"]})
    return 0


def option_assignments(args: argparse.Namespace, *, is_click: bool) -> list[str]:
    """The settings that options of click models stand for; a sequence model has no use for them."""
    if not is_click and args.max_batches is not None:
        raise ConfigError(
            f"--max-batches {args.max_batches} is for click models; "
            f"for some users alone: --set data.max_{args.split or 'test'}_users=N"
        )
    if not is_click and args.bad_rows is not None:
        raise ConfigError(f"--bad-rows {args.bad_rows} does nothing for a sequence model; leave it out")
    return [] if args.bad_rows is None else [f"data.bad_rows={args.bad_rows}"]


def print_slices(slices: "Slices") -> None:
    """Tables of the parts that were asked for."""
    print("\nwith 95 % confidence intervals:")
    print_table("", [("all", slices.overall)])
    for column, found in slices.by.items():
        print_table(column, found)
    if slices.group is not None:
        group = slices.group
        print(
            f"\nGAUC by {slices.group_column}  {group.gauc}  ({group.num_groups_used:,} of {group.num_groups:,} values "
            f"have both labels, with {100 * group.rows_frac:.1f} % of the rows)"
        )
    if slices.top:
        print(f"\n{'top':>6}  {'rows':>10}  {'recall':<26}  lift")
        for each in slices.top:
            print(f"{each.percent:>4g} %  {each.num_rows:>10,}  {each.recall!s:<26}  {each.lift}")


def print_table(column: str, rows: "list[tuple[str, SliceMetrics]]") -> None:
    """A line for each value: rows, clicks and the metrics."""
    print(f"\n{column[:_WIDTH]:<{_WIDTH}}  {'rows':>10}  {'clicks':>9}  {'auroc':<25}  {'logloss':<25}  calibration")
    from recmill.data.values.known import escaped

    for value, found in rows:
        shown = escaped(value)
        name = shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 1]}…"
        numbers = f"{found.auroc!s:<25}  {found.logloss!s:<25}  {found.calibration}"
        print(f"{name:<{_WIDTH}}  {found.num_rows:>10,}  {found.num_clicks:>9,}  {numbers}")
