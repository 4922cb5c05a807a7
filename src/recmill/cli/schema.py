"""`recmill schema`: a first schema for files of one's own, and a look at any schema."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.cli.options import Verbs, add_column_options, add_unpacking_option, asked_of

if TYPE_CHECKING:
    from recmill.data.infer.schema import Inferred


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
    parser.add_argument("--label", metavar="COLUMN", help="the column to predict")
    add_column_options(parser, "")
    add_unpacking_option(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace the .toml file if it is there")
    parser.set_defaults(run_verb=run_infer)
    parser = actions.add_parser("show", help="print a schema as it is understood")
    parser.add_argument("name", metavar="NAME|FILE", help="criteo, criteo-unlabelled, kaggle or a .toml file")
    parser.set_defaults(run_verb=run_show)


def run_infer(args: argparse.Namespace) -> int:
    """Read a sample, guess, write or print."""
    from recmill.data.infer.schema import infer_schema
    from recmill.data.logs.stdin_file import given_path
    from recmill.errors import ConfigError
    from recmill.files import write_atomic

    if args.out is not None and args.out.exists() and not args.overwrite:
        raise ConfigError(f"{args.out} is there already; choose another name or pass --overwrite")
    if args.out is not None and not args.out.parent.is_dir():
        raise ConfigError(f"there is no directory {args.out.parent} to write {args.out.name} into")
    args.files = [given_path(path) for path in args.files]
    name = args.out.stem if args.out is not None else args.files[0].name.partition(".")[0]
    found = infer_schema(args.files, name=name, asked=asked_of(args), max_unpacked_bytes=args.max_unpacked_bytes)
    if args.out is None:
        print(found.text, end="")
        return 0
    write_atomic(args.out, found.text)
    print(f"{args.out}: look at its guesses, then\nnext: {next_command(args.files, args.out, found)}", file=sys.stderr)
    return 0


def next_command(files: Sequence[Path], schema_path: Path, found: "Inferred") -> str:
    """The command that trains on the files with the schema, for a shell."""
    words = ["recmill", "train", "auto", "--data", files[0]]
    if len(files) > 1:
        folder = Path(os.path.commonpath([path.parent for path in files]))
        names = [str(path.relative_to(folder)) for path in files]
        words = ["recmill", "train", "auto", "--data", folder, "--set", f"data.train_files={json.dumps(names)}"]
    words += ["--schema", schema_path, "--run", f"runs/{schema_path.stem}"]
    if found.num_bad:
        words += ["--bad-rows", "skip"]
    return shlex.join(map(str, words))


def run_show(args: argparse.Namespace) -> int:
    """Print the schema in the form of its file."""
    from recmill.data.infer.schema_file import render
    from recmill.settings.schemas import find_schema

    print(render(find_schema(args.name)), end="")
    return 0
