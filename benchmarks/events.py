"""Goodreads' CSV to sequences by user: recmill and a straightforward pandas program, in turns on the same file.

Both keep users with 20 events or more, number users and items, hold out the last two events and write files; the
sequences are compared. recmill's largest resident memory is that of the command in a process of its own. Without --data
a file of the same layout is made up.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plain_events import prepare_with_pandas
from benchmarks.prepare import TELL_PEAK
from benchmarks.report import Report, add_common_options, alternate, median_ratio
from recmill.data.events.prepare import EventJob, open_prepared_sequences, prepare_events
from recmill.errors import FailureError, MissingExtra
from recmill.settings.events import EVENT_PRESETS


def prepare_with_recmill(csv_path: Path, out_dir: Path) -> dict[str, Any]:
    """The command's own work."""
    preset = EVENT_PRESETS["goodreads"]
    return prepare_events(EventJob(csv_path, out_dir, preset.schemas, preset.rules, preset.name))


def write_likeness(path: Path, num_rows: int) -> None:
    """Users with about a hundred books each, popular ones more often, in Goodreads' layout."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(num_rows), rng.geometric(1 / 100, num_rows))[:num_rows]
    books = np.minimum(rng.pareto(0.8, num_rows) * 50, 300_000).astype(np.int64)
    with path.open("w", encoding="ascii") as file:
        file.write("user_id,book_id,is_read,rating,is_reviewed\n")
        rows = zip(users.tolist(), books.tolist(), rng.integers(0, 6, num_rows).tolist(), strict=True)
        file.writelines(f"{user},{book},{int(rating > 0)},{rating},0\n" for user, book, rating in rows)


def refuse_other_sequences(ours: Path, theirs: Any) -> None:
    """The same users in the same order with the same ids."""
    sequences = open_prepared_sequences(ours).sequences
    train = np.concatenate([np.asarray(items) for items in theirs["train"]])
    lengths = np.array([len(items) for items in theirs["train"]])
    if not np.array_equal(lengths, sequences.train_lengths):
        raise FailureError("the two preparations differ in the lengths of users")
    starts = np.repeat(sequences.offsets[:-1] - (np.cumsum(lengths) - lengths), lengths)
    if not np.array_equal(sequences.events[starts + np.arange(len(train))], train):
        raise FailureError("the two preparations differ in the events of users")
    for name, places in (("validation", sequences.validation_at), ("test", sequences.test_at)):
        if not np.array_equal(sequences.events[sequences.offsets[:-1] + places], theirs[name]):
            raise FailureError(f"the two preparations differ in the events for {name}")


def tell_peak_gib(csv_path: Path, out_dir: Path) -> float:
    """The largest resident memory of the command."""
    words = ["prepare", "--preset", "goodreads", "--data", str(csv_path), "--out", str(out_dir), "--overwrite"]
    told = subprocess.run([sys.executable, "-c", TELL_PEAK, *words], check=True, capture_output=True, text=True).stdout
    return int(told.split()[-2]) / 2**20


def main(argv: Sequence[str]) -> int:
    """`recmill bench events`."""
    parser = argparse.ArgumentParser(
        prog="recmill bench events", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_common_options(parser, rounds=3)
    parser.add_argument("--data", type=Path, metavar="FILE", help="goodreads_interactions.csv, plain or .gz")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the file made up without --data (2,000,000)")
    args = parser.parse_args(argv)
    if importlib.util.find_spec("pandas") is None:
        raise MissingExtra(
            "bench events measures pandas too: pip install --constraint constraints.txt 'recmill[bench]'"
        )
    with tempfile.TemporaryDirectory() as scratch:
        csv_path = args.data or Path(scratch) / "goodreads.csv"
        if args.data is None:
            write_likeness(csv_path, args.rows)
        ours, theirs, frames = Path(scratch) / "recmill", Path(scratch) / "pandas", list[Any]()
        contenders = {
            "recmill": lambda: prepare_with_recmill(csv_path, ours),
            "pandas": lambda: frames.append(prepare_with_pandas(csv_path, theirs)),
        }

        def clean() -> None:
            frames.clear()
            shutil.rmtree(ours, ignore_errors=True)
            shutil.rmtree(theirs, ignore_errors=True)

        timings = alternate(contenders, rounds=args.rounds, clean=clean)
        manifest = prepare_with_recmill(csv_path, ours) if not ours.exists() else {}
        manifest = manifest or open_prepared_sequences(ours).manifest
        refuse_other_sequences(ours, frames[0] if frames else prepare_with_pandas(csv_path, theirs))
        report = Report("events")
        report.figures = {f"{name} s": timing.median_s for name, timing in timings.items()}
        report.figures["recmill GiB"] = tell_peak_gib(csv_path, ours)
        report.figures["recmill events/s"] = manifest["read"] / timings["recmill"].median_s
        report.ratios["recmill/pandas"] = median_ratio(timings, "recmill", "pandas")
        counts = {name: manifest[name] for name in ("read", "users", "items", "events", "future_items")}
        report.notes = {"file": csv_path.name, **counts, "rounds": args.rounds}
        report.show(as_json=args.json)
    return 0
