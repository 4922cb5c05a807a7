"""`recmill recommend`: lists of items for a user or a history, or for all users or many histories into a file."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recmill.cli.options import Verbs, add_weights_options
from recmill.errors import ConfigError

if TYPE_CHECKING:
    from recmill.serve.sequence_model import Recommended, SequenceModel


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("recommend", help="list items for users, with the model of a run")
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="run directory of a sequence model")
    whom = parser.add_mutually_exclusive_group(required=True)
    whom.add_argument("--user", metavar="ID", help="a user of the prepared sequences, by all that he or she did")
    whom.add_argument("--history", metavar="ITEM,…", help="items as the files call them, oldest first")
    whom.add_argument(
        "--histories", type=Path, metavar="FILE", help='lines of {"user": "anna", "history": [12, 7]}, oldest first'
    )
    whom.add_argument("--all", action="store_true", dest="everybody", help="every user of the prepared sequences")
    parser.add_argument("-k", type=int, default=20, metavar="N", help="items of a list (20)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write with --all or --histories: .parquet or .csv"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="prepared sequences, if not the run's own")
    parser.add_argument(
        "--titles",
        type=Path,
        metavar="FILE",
        help="items and their titles, to show them in lists: movies.dat, a CSV, …",
    )
    add_weights_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Read the weights, make the lists, print or write them."""
    from recmill.serve.model import load_sequence_model

    if (args.everybody or args.histories is not None) != (args.out is not None):
        raise ConfigError("--all and --histories write a file, --out FILE; lists for one user are printed")
    model = load_sequence_model(args.run_dir, weights=args.weights, data=args.data)
    if args.out is None:
        return print_list(model, args)
    written = model.write_lists(args.out, args.k, histories=args.histories, titles=args.titles)
    out = sys.stderr if args.out == Path("-") else sys.stdout
    print(f"{args.out}: {written.num_users:,} users, {written.length} items each at most", file=out)
    if written.num_popular:
        whose = "users" if args.everybody else "histories"
        print(f"{written.num_popular:,} {whose} have no item that was trained on: the most popular ones", file=out)
    return 0


def print_list(model: "SequenceModel", args: argparse.Namespace) -> int:
    """The list of one user or history."""
    from recmill.serve.recommend import split_names

    whom = {"user": args.user} if args.user is not None else {"history": split_names(args.history)}
    listed = model.recommend(**whom, k=args.k, titles=args.titles)
    if not listed.items:
        print("recmill: no item is left: the history has them all", file=sys.stderr)
    if listed.unknown:
        print(f"recmill: ignored, never trained on: {', '.join(listed.unknown)}", file=sys.stderr)
    if listed.source == "popularity":
        print("recmill: the history has no item that was trained on: the most popular items", file=sys.stderr)
    if args.json:
        print(json.dumps({"history": listed.history_length, "source": listed.source, "items": describe_items(listed)}))
    elif listed.items:
        print("\n".join(list_lines(listed)))
    return 0


def describe_items(listed: "Recommended") -> list[dict[str, Any]]:
    """The items of a list as JSON has them."""
    items = [{"item": item, "score": score} for item, score in zip(listed.items, listed.scores, strict=True)]
    if listed.titles is None:
        return items
    return [{**each, "title": title} for each, title in zip(items, listed.titles, strict=True)]


def list_lines(listed: "Recommended") -> list[str]:
    """The items of a list as people read them."""
    titles = [None] * len(listed.items) if listed.titles is None else listed.titles
    rows = zip(listed.items, listed.scores, titles, strict=True)
    return [
        f"{rank:>4}  {item}  {score:.4f}" + (f"  {title}" if title else "")
        for rank, (item, score, title) in enumerate(rows, start=1)
    ]
