"""`recmill split`: one long text file to parts of equally many lines, day_0, day_1, …."""

import argparse
import time
from pathlib import Path

from recmill.cli.options import Verbs, add_unpacking_option


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("split", help="cut one long text file into day_0, day_1, … of equally many lines")
    parser.add_argument("file", type=Path, metavar="FILE", help="the text (plain, .gz or .zst)")
    parser.add_argument("--parts", type=int, default=24, metavar="N", help="how many parts (24)")
    parser.add_argument("--rows", type=int, default=5_000_000, metavar="M", help="lines of each part (5,000,000)")
    parser.add_argument(
        "--schema",
        metavar="NAME|FILE",
        help="columns of the rows, so that no row is cut inside quotes and a header is repeated",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write")
    parser.add_argument("--overwrite", action="store_true", help="replace the directory, once the new one is complete")
    add_unpacking_option(parser)
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Cut the file and say what was written and what was not."""
    from recmill.data.logs.cut import cut_file
    from recmill.settings.schemas import find_schema

    started_s = time.perf_counter()
    cut = cut_file(
        args.file,
        args.out,
        num_parts=args.parts,
        part_rows=args.rows,
        overwrite=args.overwrite,
        max_unpacked_bytes=args.max_unpacked_bytes,
        schema=None if args.schema is None else find_schema(args.schema),
    )
    seconds = time.perf_counter() - started_s
    print(
        f"{args.out}: {cut.num_rows:,} rows in {cut.num_parts:,} parts of {cut.part_rows:,}, {cut.num_bytes:,} bytes, "
        f"{cut.num_rows / seconds:,.0f} rows/s; {cut.left_over_rows:,} lines at the end of {args.file} dropped"
    )
    return 0
