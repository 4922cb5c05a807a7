"""`recmill recommend`: lists of items for a user or a history, or for all users or many histories into Parquet."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.cli.train import Verbs
from recmill.errors import ConfigError, RunError

if TYPE_CHECKING:
    from recmill.training.sequence.task import SequenceTask


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
    parser.add_argument("--out", type=Path, metavar="FILE", help="Parquet file to write, with --all or --histories")
    parser.add_argument("--data", type=Path, metavar="DIR", help="prepared sequences, if not the run's own")
    parser.add_argument("--last", action="store_true", help="the last weights, not those best on validation")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Read the weights, make the lists, print or write them."""
    from recmill.serve import recommend
    from recmill.training.checkpoint.reshard import refuse_existing

    if (args.everybody or args.histories is not None) != (args.out is not None):
        raise ConfigError("--all and --histories write a Parquet file, --out FILE; lists for one user are printed")
    if args.k < 1:
        raise ConfigError(f"-k {args.k}: a list has at least one item")
    if args.out is not None:
        refuse_existing(args.out)
    task = open_run(args)
    prepared, sequences = task.prepared, task.prepared.sequences
    if args.everybody:
        return write_all(task, args.out, args.k)
    if args.histories is not None:
        return write_new(task, args.histories, args.out, args.k)
    if args.user is not None:
        history, strangers = recommend.find_history(prepared, args.user), list[str]()
    else:
        history, strangers = recommend.read_history(prepared, recommend.split_names(args.history))
    ids, scores = recommend.recommend(task.state.model, [history], sequences.num_items, args.k)
    listed = ids[0][ids[0] > 0].tolist()
    items = prepared.vocabulary.item_names(listed)
    rows = list(zip(items, (float(score) for score in scores[0]), strict=False))
    if not rows:
        print("recmill: no item is left: the history has them all", file=sys.stderr)
    if strangers:
        print(f"recmill: passed over, never trained on: {', '.join(strangers)}", file=sys.stderr)
    if args.json:
        print(json.dumps({"history": len(history), "items": [{"item": i, "score": s} for i, s in rows]}))
    elif rows:
        print("\n".join(f"{rank:>4}  {item}  {score:.4f}" for rank, (item, score) in enumerate(rows, start=1)))
    return 0


def open_run(args: argparse.Namespace) -> "SequenceTask":
    """The task of a finished run with its weights: the best on validation if they were kept."""
    from recmill.cli.sequences import data_assignment, holds_sequence_run, run_config_with
    from recmill.training.checkpoint.checkpoint import read_model
    from recmill.training.loop.run import find_kept_best, find_last_model
    from recmill.training.sequence.task import open_sequence_task

    if not holds_sequence_run(args.run_dir):
        raise RunError(f"{args.run_dir} is not the run directory of a sequence model")
    task = open_sequence_task(run_config_with(args.run_dir, data_assignment(args)), is_new=False)
    best = None if args.last else find_kept_best(args.run_dir)
    read_model(best or find_last_model(args.run_dir), task.state)
    return task


def write_all(task: "SequenceTask", out: Path, length: int) -> int:
    """A row for every user and place."""
    import numpy as np

    from recmill.serve.recommend import recommend_to_all

    sequences = task.prepared.sequences
    lengths = np.diff(sequences.offsets)
    users = np.flatnonzero([len(sequences.history(u, int(n))) > 0 for u, n in enumerate(lengths)])
    blocks = recommend_to_all(task.state.model, task.prepared, users, length, task.config.data.eval_batch)
    task.prepared.vocabulary.write_lists(out, blocks)
    print(f"{out}: {len(users):,} users, {min(length, sequences.num_items)} items each at most")
    if len(users) < sequences.num_users:
        print(f"{sequences.num_users - len(users):,} users have no event with an item that was trained on")
    return 0


def write_new(task: "SequenceTask", asked: Path, out: Path, length: int) -> int:
    """The same for histories of a file."""
    from recmill.serve.recommend import read_asked, recommend_to_new

    num_asked = sum(1 for _ in read_asked(asked))  # a bad line is told before anything is written
    blocks = recommend_to_new(task.state.model, task.prepared, asked, length, task.config.data.eval_batch)
    num_listed = task.prepared.vocabulary.write_lists(out, blocks, are_new=True)
    print(f"{out}: {num_listed:,} users, {min(length, task.prepared.sequences.num_items)} items each at most")
    if num_listed < num_asked:
        print(f"{num_asked - num_listed:,} histories have no item that was trained on")
    return 0
