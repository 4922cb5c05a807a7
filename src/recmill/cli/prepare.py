"""`recmill prepare`: raw logs to a directory of encoded rows, restartable and the same bytes every time."""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.cli import prepare_events
from recmill.cli.options import Verbs, add_set_option, add_time_split_options
from recmill.cli.sizes import read_size

if TYPE_CHECKING:
    from recmill.data.prepared.stages import OnProgress, Record
    from recmill.observe.console import ProgressLine

STAGE_NAMES = {
    "count": "counting values",
    "merge": "merging counts",
    "freeze": "freezing the vocabulary",
    "encode": "encoding rows",
    "shuffle": "shuffling rows",
    "pack": "packing archives",
    "read": "reading events",
    "group": "grouping them by user",
    "filter": "filtering and holding out",
}


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("prepare", help="encode raw logs once, for many runs")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="directory with day_0, day_1, …; or events, a file or more",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write")
    parser.add_argument("--preset", default="recmill", metavar="NAME", help="how columns are encoded (recmill)")
    parser.add_argument("--min-count", type=int, metavar="K", help="values that occur less often share a row")
    parser.add_argument("--max-values", type=int, metavar="K", help="only the K most frequent values of a column")
    parser.add_argument("--modulo", type=int, metavar="N", help="table rows of the oneflow presets (40000000)")
    parser.add_argument("--multi-hot", metavar="mlperf|H,H,…", help="write so many ids for each category column")
    parser.add_argument("--multi-hot-distribution", choices=("uniform", "pareto"), help="of the ids that are drawn")
    parser.add_argument("--format", choices=("npy", "parquet"), default="npy", dest="store")
    parser.add_argument("--memory", default="2GiB", metavar="SIZE", help="what it may use (2GiB)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="threads")
    parser.add_argument("--seed", type=int, metavar="S", help="shuffle the training rows (default: keep their order)")
    parser.add_argument("--schema", default="criteo", metavar="NAME|FILE", help="columns of the rows (criteo)")
    add_set_option(parser, "which lines are for what, e.g. data.holdout_frac=0.1")
    add_time_split_options(parser)
    parser.add_argument("--bad-rows", choices=("fail", "skip"), default="fail")
    parser.add_argument("--overwrite", action="store_true", help="replace the directory, once the new one is complete")
    prepare_events.add_options(parser)
    parser.set_defaults(run_verb=run)


def run(args: argparse.Namespace) -> int:
    """Prepare, and say what was found."""
    from recmill.observe.console import ProgressLine

    began = time.perf_counter()
    are_events = prepare_events.is_wanted(args)
    prepare_one = prepare_events.run if are_events else run_rows
    with ProgressLine() as line:
        manifest = prepare_one(args, StageLine(line))
    describe_one = prepare_events.describe if are_events else describe
    print(describe_one(manifest, args.out, time.perf_counter() - began))
    return 0


def run_rows(args: argparse.Namespace, on_progress: "OnProgress") -> "Record":
    """Prepare click logs; the manifest."""
    from recmill.api.data import prepare
    from recmill.data.logs.stdin_file import given_path

    given = {
        "multi_hot": args.multi_hot,
        "multi_hot_distribution": args.multi_hot_distribution,
        "test_after": args.test_after,
        "holdout_days": args.test_days,
    }
    options = [f"data.{key}={value!r}" for key, value in given.items() if value is not None]
    return prepare(
        given_path(args.data),
        out=args.out,
        preset=args.preset,
        schema=args.schema,
        store=args.store,
        overrides=[*options, *args.assignments],
        seed=args.seed,
        min_count=args.min_count,
        max_values=args.max_values,
        modulo=args.modulo,
        memory_bytes=read_size("--memory", args.memory),
        jobs=args.jobs,
        bad_rows=args.bad_rows,
        overwrite=args.overwrite,
        on_progress=on_progress,
    )


class StageLine:
    """Shows which stage is at work, how far it is, how fast, and when it will end."""

    def __init__(self, line: "ProgressLine") -> None:
        self._line = line
        self._stage, self._began, self._first_done = "", 0.0, 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """The latest of a stage."""
        from recmill.observe.console import format_duration

        if total == 0:
            return
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._began, self._first_done = stage, now, done
        elapsed, moved = now - self._began, done - self._first_done
        name = STAGE_NAMES[stage]
        if done == total:
            told = "was done before" if moved == 0 else f"done in {format_duration(elapsed)}"
            self._line.milestone(f"{name}: {told}")
        elif moved:
            left = format_duration(elapsed * (total - done) / moved)
            self._line.update(f"{name}: {done / total:.0%} · {moved / elapsed / 1e6:,.1f} M/s · {left} left")
        else:
            self._line.update(f"{name}: {done / total:.0%}")


def describe(manifest: "Record", out_dir: Path, seconds: float) -> str:
    """What was written."""
    rows, num_rows = manifest["rows"], sum(manifest["rows"].values())
    stored = sum(file["bytes"] for file in manifest["files"].values())
    counts = ", ".join(f"{count:,} for {name}" for name, count in rows.items())
    lines = [
        f"{out_dir}: {num_rows:,} rows ({counts}), {stored / 2**20:,.1f} MiB, {num_rows / seconds:,.0f} rows/s",
        f"tables of {sum(manifest['table_rows']):,} rows",
        f"next: recmill train small --data {out_dir} --run runs/{out_dir.name}",
    ]
    if manifest["skipped_rows"]:
        lines.append(f"{manifest['skipped_rows']:,} bad lines ignored")
    return "\n".join(lines)
