"""`recmill predict`: the probability of a click for new rows, with the model of a run."""

import argparse
import sys
from pathlib import Path

from recmill.cli.options import Verbs, add_layers_option, add_unpacking_option, add_weights_options, import_layers


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "predict",
        help="predict clicks for new rows, with the model of a run",
        description="Scores rows with or without a label, in their order: raw text (plain, .gz or .zst), Parquet, JSON "
        "lines or a prepared directory. The label is not read.",
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="run directory of a click model, or exported weights")
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, metavar="NEW", help="files, a directory, or - for standard input"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("-"), metavar="FILE", help=".parquet or .csv; - for CSV on this screen (-)"
    )
    add_weights_options(parser)
    parser.add_argument(
        "--id-column", action="append", default=[], metavar="C", help="a column of the input to carry along, e.g. an id"
    )
    parser.add_argument(
        "--bad-rows",
        choices=("fail", "skip"),
        default="fail",
        help="stop at a row that cannot be read, or give it no prediction and the reason (fail)",
    )
    add_unpacking_option(parser)
    add_layers_option(parser)
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Read the weights, score the rows, write the table."""
    from recmill.data.logs.stdin_file import given_path
    from recmill.observe.console import ProgressLine
    from recmill.serve.model import load_click_model

    model = load_click_model(args.run_dir, weights=args.weights, model=import_layers(args.layers))
    if args.max_unpacked_bytes is not None:  # in place of what the run was trained with
        model.config = model.config.with_({"data.max_unpacked_bytes": args.max_unpacked_bytes})
    paths = [given_path(path) for path in args.data]
    rows = paths[0] if len(paths) == 1 else paths
    written = model.write_predictions(
        rows, args.out, id_columns=args.id_column, bad_rows=args.bad_rows, line=ProgressLine()
    )
    where = "" if args.out == Path("-") else f"{args.out}: "
    bad = f", {written.num_bad:,} bad rows without a prediction" if written.num_bad else ""
    print(f"{where}{written.num_rows:,} rows predicted by the {model.weights.describe()}{bad}", file=sys.stderr)
    return 0
