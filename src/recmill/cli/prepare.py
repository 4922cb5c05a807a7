"""`recmill prepare`: raw logs to a directory of encoded rows, restartable and the same bytes every time."""

import argparse
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from recmill.cli import prepare_events
from recmill.cli.train import Verbs, add_set_option
from recmill.errors import ConfigError

if TYPE_CHECKING:
    from recmill.data.prepared.stages import Record
    from recmill.observe.console import ProgressLine
    from recmill.settings.data import DataConfig

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MIN_MEMORY_BYTES = 64 << 20
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
    parser.add_argument("--bad-rows", choices=("fail", "skip"), default="fail")
    parser.add_argument("--overwrite", action="store_true", help="replace the directory, once the new one is complete")
    prepare_events.add_options(parser)
    parser.set_defaults(run_verb=run)


def memory_bytes(text: str) -> int:
    """`512MiB`, `2G`, `1.5GiB` or a number of bytes."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ConfigError(f"--memory {text!r} is not a size; write 2GiB, 512MiB or a number of bytes")
    size = int(float(match[1]) * _UNITS[match[2].upper()])
    if size < _MIN_MEMORY_BYTES:
        raise ConfigError(f"--memory {text} is too little to work in; give at least {_MIN_MEMORY_BYTES >> 20}MiB")
    return size


def run(args: argparse.Namespace) -> int:
    """Prepare, and say what was found."""
    from recmill.data.logs.opening import open_splits
    from recmill.data.prepared.prepare import PrepareJob, prepare
    from recmill.observe.console import ProgressLine

    if args.jobs < 1:
        raise ConfigError(f"--jobs {args.jobs}: it takes at least one thread")
    if prepare_events.is_wanted(args):
        began = time.perf_counter()
        with ProgressLine() as line:
            manifest = prepare_events.run(args, StageLine(line))
        print(prepare_events.describe(manifest, args.out, began))
        return 0
    memory, data = memory_bytes(args.memory), data_config(args)
    splits = open_splits(data)
    began = time.perf_counter()
    try:
        with ProgressLine() as line:
            job = PrepareJob(
                splits,
                data.schema_of_rows,
                args.out,
                args.preset,
                args.store,
                memory_bytes=memory,
                jobs=args.jobs,
                seed=args.seed,
                bad_rows=args.bad_rows,
                min_count=args.min_count,
                max_values=args.max_values,
                modulo=args.modulo,
                multi_hot=data.multi_hot_rule,
                on_progress=StageLine(line),
            )
            manifest = prepare(job, overwrite=args.overwrite)
    finally:
        splits.close()
    print(describe(manifest, args.out, time.perf_counter() - began))
    return 0


def data_config(args: argparse.Namespace) -> "DataConfig":
    """Which files and lines; the sizes of the tables are found by counting, and not asked for."""
    from recmill.cli.train import schema_assignments
    from recmill.settings.data import DataConfig
    from recmill.settings.schemas import find_schema
    from recmill.settings.tree import from_tree, with_assignments

    schema = find_schema(args.schema)
    tree = {"data": {"dir": str(args.data), "table_rows": [2] * len(schema.category_names)}}
    multi_hot = {"multi_hot": args.multi_hot, "multi_hot_distribution": args.multi_hot_distribution}
    options = [f"data.{key}={value!r}" for key, value in multi_hot.items() if value is not None]
    assignments = [*schema_assignments(args.schema), *options, *args.assignments]
    resolved = with_assignments(tree, assignments)
    if strangers := [key for key in resolved if key != "data"]:
        raise ConfigError(f"--set {strangers[0]}: only settings of [data] matter here, such as data.holdout_frac")
    return from_tree(DataConfig, resolved["data"])


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
        f"tables of {sum(manifest['table_rows']):,} rows; next: recmill train RECIPE --data {out_dir} --run DIR",
    ]
    if manifest["skipped_rows"]:
        lines.append(f"{manifest['skipped_rows']:,} bad lines passed over")
    return "\n".join(lines)
