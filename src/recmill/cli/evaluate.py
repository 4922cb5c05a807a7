"""`recmill evaluate`: the metrics of a finished run on a split."""

import argparse
import json
from pathlib import Path

from recmill.cli.options import (
    Verbs,
    add_bad_rows_option,
    add_layers_option,
    add_set_option,
    add_weights_options,
    import_layers,
)
from recmill.errors import ConfigError


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("evaluate", help="evaluate the model of a run")
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--data", type=Path, metavar="DIR", help="directory of the logs, if not the run's own")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument(
        "--max-batches",
        type=int,
        metavar="N",
        help="evaluate the first N batches only; 0: all (as the run's settings say)",
    )
    add_weights_options(parser)
    add_bad_rows_option(parser)
    add_set_option(parser, "how to evaluate, if not as the run did, e.g. protocol.candidates=popularity of sequences")
    add_layers_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Read the weights, evaluate, print."""
    from recmill.api.evaluate import evaluate
    from recmill.cli.show import print_rankings
    from recmill.recipes.resolve import read_run_config
    from recmill.settings.families import CLICK, family_of

    is_click = family_of(read_run_config(args.run_dir)) is CLICK
    overrides = [*option_assignments(args, is_click=is_click), *args.assignments]
    found = evaluate(
        args.run_dir,
        split=args.split,
        weights=args.weights,
        data=args.data,
        overrides=overrides,
        model=import_layers(args.layers),
    )
    if args.json:
        print(json.dumps(found.as_dict()))
    elif is_click:
        print(f"{found.description}  {found.weights}")
    else:
        print_rankings(args.split, {found.weights: found.result, **found.comparisons["baselines"]})
    return 0


def option_assignments(args: argparse.Namespace, *, is_click: bool) -> list[str]:
    """The settings that options of click models stand for; a sequence model has no use for them."""
    if not is_click and args.max_batches is not None:
        raise ConfigError(
            f"--max-batches {args.max_batches} is for click models; "
            f"for some users alone: --set data.max_{args.split}_users=N"
        )
    if not is_click and args.bad_rows is not None:
        raise ConfigError(f"--bad-rows {args.bad_rows} does nothing for a sequence model; leave it out")
    limit = [] if args.max_batches is None else [f"data.max_{args.split}_batches={args.max_batches}"]
    return limit + ([] if args.bad_rows is None else [f"data.bad_rows={args.bad_rows}"])
