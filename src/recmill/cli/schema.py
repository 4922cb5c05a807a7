"""`recmill schema`: a first schema for files of one's own, and a look at any schema."""

import argparse
import sys
from pathlib import Path

from recmill.cli.options import Verbs


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    actions = verbs.add_parser("schema", help="guess or show the columns of a file").add_subparsers(
        title="actions", metavar="ACTION", required=True
    )
    parser = actions.add_parser("infer", help="write a first schema from the beginning of some files")
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="text (plain, .gz or .zst), .jsonl or .parquet; - for standard input",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the .toml file to write; without it, print")
    parser.add_argument("--label", metavar="NAME", help="the column to predict")
    parser.add_argument("--overwrite", action="store_true", help="replace the .toml file if it is there")
    parser.set_defaults(run_verb=run_infer)
    parser = actions.add_parser("show", help="print a schema as it is understood")
    parser.add_argument("name", metavar="NAME|FILE", help="criteo, criteo-unlabelled, kaggle or a .toml file")
    parser.set_defaults(run_verb=run_show)


def run_infer(args: argparse.Namespace) -> int:
    """Read a sample, guess, write or print."""
    from recmill.data.logs.formats import infer_schema
    from recmill.data.logs.stdin_file import given_path
    from recmill.errors import ConfigError
    from recmill.files import write_atomic

    if args.out is not None and args.out.exists() and not args.overwrite:
        raise ConfigError(f"{args.out} is there already; choose another name or pass --overwrite")
    if args.out is not None and not args.out.parent.is_dir():
        raise ConfigError(f"there is no directory {args.out.parent} to write {args.out.name} into")
    args.files = [given_path(path) for path in args.files]
    name = args.out.stem if args.out is not None else args.files[0].name.partition(".")[0]
    text = infer_schema(args.files, name=name, label=args.label)
    if args.out is None:
        print(text, end="")
        return 0
    write_atomic(args.out, text)
    data = args.files[0] if len(args.files) == 1 else args.files[0].parent
    files = "" if len(args.files) == 1 else f" --set 'data.train_files={[path.name for path in args.files]}'"
    print(
        f"{args.out}: look at its guesses, then\n"
        f"next: recmill train auto --data {data}{files} --schema {args.out} "
        f"--run runs/{args.out.stem}",
        file=sys.stderr,
    )
    return 0


def run_show(args: argparse.Namespace) -> int:
    """Print the schema in the form of its file."""
    from recmill.data.logs.infer import render
    from recmill.settings.schemas import find_schema

    print(render(find_schema(args.name)), end="")
    return 0
