"""`recmill sort`: files of rows, in any order, to files in the order of their times."""

import argparse
import shlex
import time
from pathlib import Path

from recmill.cli.options import Verbs, add_unpacking_option
from recmill.cli.sizes import read_size


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("sort", help="sort files of rows by their times")
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="files, directories or patterns; - for standard input"
    )
    parser.add_argument("--schema", required=True, metavar="NAME|FILE", help="columns of the rows")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write")
    parser.add_argument("--by", metavar="COLUMN", help="a time or number to sort by (the column of role time)")
    parser.add_argument("--memory", metavar="SIZE", help="what it may use (a quarter of the free memory)")
    parser.add_argument("--part-size", default="1GiB", metavar="SIZE", help="the most bytes of a written file (1GiB)")
    parser.add_argument("--overwrite", action="store_true", help="replace the directory, once the new one is complete")
    add_unpacking_option(parser)
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Sort, and say what was written."""
    from recmill.api.data import sort
    from recmill.data.logs.stdin_file import given_path

    started_s = time.perf_counter()
    done = sort(
        [given_path(path) for path in args.files],
        out=args.out,
        schema=args.schema,
        by=args.by,
        memory_bytes=None if args.memory is None else read_size("--memory", args.memory),
        part_bytes=read_size("--part-size", args.part_size),
        overwrite=args.overwrite,
        max_unpacked_bytes=args.max_unpacked_bytes,
    )
    seconds = time.perf_counter() - started_s
    files = "1 file" if done.num_files == 1 else f"{done.num_files:,} files"
    print(
        f"{args.out}: {done.num_rows:,} rows in {files} in the order of {done.column}, "
        f"{done.num_rows / seconds:,.0f} rows/s"
    )
    if done.num_keyless:
        audit = ["recmill", "audit", "--data", str(args.out), "--files", "part_*", "--schema", args.schema]
        print(
            f"{done.num_keyless:,} lines have no {done.column} that can be read; each stays behind the line above "
            f"(`{shlex.join(audit)}` names bad lines)"
        )
    return 0
