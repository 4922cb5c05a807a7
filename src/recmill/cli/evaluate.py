"""`recmill evaluate`: the metrics of a finished run on a split."""

import argparse
import json
from pathlib import Path

from recmill.cli.train import Verbs, add_set_option


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("evaluate", help="judge the model of a run")
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--data", type=Path, metavar="DIR", help="directory of the logs, if not the run's own")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument(
        "--max-batches",
        type=int,
        metavar="N",
        help="judge the first N batches only; 0: all (as the run's settings say)",
    )
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument("--best", action="store_true", help="the weights with the best validation score, not the last")
    weights.add_argument("--model", type=Path, metavar="DIR", help="the weights of this checkpoint or model directory")
    parser.add_argument("--bad-rows", choices=("fail", "skip"), help="what to do with a line that cannot be a row")
    add_set_option(parser, "how to judge, if not as the run did, e.g. protocol.candidates=popularity of sequences")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Read the weights, evaluate, print."""
    from recmill.cli import sequences
    from recmill.settings.changes import refuse_other_model

    refuse_other_model(args.assignments, args.split)
    if sequences.holds_sequence_run(args.run_dir):
        return sequences.evaluate(args, find_weights(args))
    from recmill.cli.train import option_assignments
    from recmill.settings.clicks import TrainConfig
    from recmill.settings.tree import from_tree, with_assignments
    from recmill.training.checkpoint.checkpoint import read_model
    from recmill.training.click.assemble import assemble
    from recmill.training.click.evaluate import evaluate
    from recmill.training.click.inputs import Inputs
    from recmill.training.loop.run import read_run_config

    tree = read_run_config(args.run_dir).model_dump(mode="json", exclude_none=True)
    limit = [] if args.max_batches is None else [f"data.max_{args.split}_batches={args.max_batches}"]
    config = from_tree(TrainConfig, with_assignments(tree, [*option_assignments(args), *limit, *args.assignments]))
    with Inputs(config) as inputs:
        parts = assemble(config)
        read_model(find_weights(args), parts)
        evaluation = evaluate(parts, inputs, args.split)
    print(json.dumps({"split": args.split, **evaluation.as_dict()}) if args.json else evaluation.describe())
    return 0


def find_weights(args: argparse.Namespace) -> Path:
    """The directory of the weights to judge: the run's last or best ones, or those of --model."""
    from recmill.training.checkpoint.saved_state import open_state
    from recmill.training.loop.run import find_best_model, find_last_model

    if args.model is not None:
        return open_state(args.model).directory
    return find_best_model(args.run_dir) if args.best else find_last_model(args.run_dir)
