"""`recmill calibrate`: fit probabilities to the validation split of a run, for its predictions."""

import argparse
import json
from pathlib import Path

from recmill.cli.options import Verbs, add_layers_option, add_weights_options, import_layers


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "calibrate",
        help="fit the probabilities of a run to its validation split",
        description="Fits a map from logits to probabilities on the validation split and keeps it in the run. "
        "`recmill predict` uses it from then on, and `recmill evaluate` shows the metrics before and after.",
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="run directory of a click model")
    parser.add_argument(
        "--kind",
        choices=("isotonic", "platt", "none"),
        default="isotonic",
        help="a function that never decreases (default), a sigmoid of two numbers for few rows, or none: remove it",
    )
    add_weights_options(parser)
    add_layers_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Fit, keep, print."""
    from recmill.api.calibrate import calibrate

    found = calibrate(args.run_dir, args.kind, weights=args.weights, model=import_layers(args.layers))
    if found is None:
        print(f"{args.run_dir}: predictions are those of the model, without a calibration")
        return 0
    if args.json:
        print(json.dumps(found.as_dict()))
        return 0
    for name, result in (("before", found.before), ("after", found.after)):
        print(f"{name:<6}  logloss {result['logloss']:.5f}  calibration {result['calibration']:.5f}  validation")
    print(f"{found.path}: {found.kind}, fitted on {found.before.num_rows:,} validation rows with the {found.weights}")
    return 0
