"""Raw Criteo text to the arrays of TorchRec's scripts: recmill, TorchRec's own functions and a polars pipeline.

All write day_i_dense.npy, day_i_sparse.npy with ids in the order in which values are first seen, and day_i_labels.npy;
the arrays are compared. TorchRec's functions take minutes, so they have one turn. With --peak the command is run with
--memory 1GiB on two sizes of input instead, and its largest resident memory is told; with --identical the bytes of
runs with one and two jobs and of one that is killed three times are compared.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.report import Report, Timing, add_common_options, alternate, median_ratio
from recmill.data.logs.split import find_days, split_by_day
from recmill.data.prepared.prepare import PrepareJob, prepare
from recmill.data.synthetic.clicks import write_criteo
from recmill.settings.criteo import CRITEO
from recmill.settings.synthetic import SynthSpec

DAYS = 2
# A child's ru_maxrss would begin with what its parent had resident when it was forked.
TELL_PEAK = """
import sys
from recmill.cli.main import main
status = main(sys.argv[1:])
print("\\n" + next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.exit(status)
"""
# polars' allocator gives memory back in the background; without a pause the next turn pays for it, 0.7 s of CPU time.
SETTLE_S = 3
TORCHREC = """
import sys
from torchrec.datasets.criteo import BinaryCriteoUtils
data_dir, out_dir, days = sys.argv[1], sys.argv[2], int(sys.argv[3])
for day in range(days):
    paths = [f"{out_dir}/day_{day}_{kind}.npy" for kind in ("dense", "sparse", "labels")]
    BinaryCriteoUtils.tsv_to_npys(f"{data_dir}/day_{day}", *paths)
sparse = [f"{out_dir}/day_{day}_sparse.npy" for day in range(days)]
BinaryCriteoUtils.sparse_to_contiguous(sparse, out_dir, frequency_threshold=0, output_file_suffix=".npy")
"""


def prepare_with_recmill(data_dir: Path, out_dir: Path, *, overwrite: bool = False) -> dict[str, object]:
    """The command's own work."""
    splits = split_by_day(find_days(data_dir))
    manifest = prepare(PrepareJob(splits, CRITEO, out_dir, "torchrec"), overwrite=overwrite)
    splits.close()
    return manifest


def prepare_with_polars(data_dir: Path, out_dir: Path) -> None:
    """Everything in memory: unique values in their order, a join for every column, and numpy for the files."""
    out_dir.mkdir(exist_ok=True)
    names = [column.name for column in CRITEO.columns]
    types = {name: pl.String if name.startswith("cat") else pl.Int64 for name in names}
    days = [
        pl.read_csv(
            data_dir / f"day_{day}", separator="\t", has_header=False, new_columns=names, schema_overrides=types
        )
        for day in range(DAYS)
    ]
    frame = pl.concat(days)
    numbers = frame.select(pl.col(CRITEO.dense_names).fill_null(0))
    lowest = min(numbers.min().row(0))
    dense = numbers.select((pl.all() - lowest + 2).log().cast(pl.Float32)).to_numpy()
    columns = []
    for name in CRITEO.category_names:
        values = frame.select(pl.col(name).fill_null("00000000"))
        rows = values.unique(maintain_order=True).with_row_index("row", offset=2)
        columns.append(values.join(rows, on=name, how="left", maintain_order="left")["row"].to_numpy().astype(np.int32))
    sparse = np.stack(columns, axis=1)
    labels = frame["label"].to_numpy().astype(np.int32).reshape(-1, 1)
    start = 0
    for day, part in enumerate(days):
        rows_of_day = slice(start, start + part.height)
        for kind, array in (("dense", dense), ("sparse", sparse), ("labels", labels)):
            np.save(out_dir / f"day_{day}_{kind}.npy", array[rows_of_day])
        start += part.height


def prepare_with_torchrec(data_dir: Path, out_dir: Path) -> float:
    """Its scripts' functions in a process of their own; the seconds they took, the imports not counted."""
    out_dir.mkdir(exist_ok=True)
    program = f"import time, torchrec.datasets.criteo\nbegan = time.perf_counter()\n{TORCHREC}\n"
    program += "print('\\nseconds', time.perf_counter() - began)"
    command = [sys.executable, "-W", "ignore", "-c", program, str(data_dir), str(out_dir), str(DAYS)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(told.split()[-1])


def refuse_other_arrays(ours: Path, theirs: Path) -> None:
    """The same ids and labels, and dense values to float32's precision."""
    for day in range(DAYS):
        for kind in ("sparse", "labels"):
            a, b = (np.load(d / f"day_{day}_{kind}.npy", mmap_mode="r") for d in (ours, theirs))
            np.testing.assert_array_equal(a, b)
        a, b = (np.load(d / f"day_{day}_dense.npy", mmap_mode="r") for d in (ours, theirs))
        np.testing.assert_allclose(a, b, rtol=3e-7, atol=1e-7)


def measure(scratch: Path, *, num_rows: int, rounds: int, with_torchrec: bool) -> Report:
    """The three on the same rows."""
    data_dir = scratch / "data"
    write_criteo(SynthSpec(rows=num_rows, days=DAYS, seed=0, scale=0.01), data_dir)
    contenders = {
        "recmill": lambda: prepare_with_recmill(data_dir, scratch / "recmill"),
        "polars": lambda: prepare_with_polars(data_dir, scratch / "polars"),
    }

    def clean() -> None:
        for name in contenders:
            shutil.rmtree(scratch / name, ignore_errors=True)
        time.sleep(SETTLE_S)

    timings = alternate(contenders, rounds=rounds, clean=clean)
    prepare_with_recmill(data_dir, scratch / "recmill", overwrite=True)
    prepare_with_polars(data_dir, scratch / "polars")
    refuse_other_arrays(scratch / "recmill", scratch / "polars")
    report = Report("prepare")
    if with_torchrec:
        seconds = prepare_with_torchrec(data_dir, scratch / "torchrec")
        timings["torchrec"] = Timing((seconds,) * rounds)
        refuse_other_arrays(scratch / "recmill", scratch / "torchrec")
    for name, timing in timings.items():
        report.figures[f"{name} rows/s"] = num_rows / timing.median_s
        report.figures[f"{name} spread"] = timing.spread_frac
    for rival in list(timings)[1:]:
        report.ratios[f"recmill/{rival}"] = median_ratio(timings, "recmill", rival)
    report.notes = {"rows": num_rows, "rounds": rounds, "torchrec rounds": int(with_torchrec)}
    return report


def measure_peak(scratch: Path, sizes: Sequence[int]) -> Report:
    """The largest resident memory of `recmill prepare --memory 1GiB` on inputs of several sizes."""
    report = Report("prepare")
    peaks = list[float]()
    for num_rows in sizes:
        data_dir, out_dir = scratch / "data", scratch / "out"
        write_criteo(SynthSpec(rows=num_rows, days=DAYS, seed=0, scale=0.01), data_dir, overwrite=True)
        options = ["--memory", "1GiB", "--overwrite"]
        command = [sys.executable, "-c", TELL_PEAK, *_command(data_dir, out_dir, *options)[3:]]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        peaks.append(int(told.split()[-2]) / 2**20)
        report.figures[f"peak GiB at {num_rows:,} rows"] = peaks[-1]
    report.ratios["largest/smallest"] = max(peaks) / min(peaks)
    report.notes = {"memory": "1GiB", "preset": "torchrec"}
    return report


def compare_bytes(scratch: Path, num_rows: int) -> Report:
    """One job, two jobs, and two jobs killed three times: how many different results there are."""
    data_dir = scratch / "data"
    write_criteo(SynthSpec(rows=num_rows, days=DAYS, seed=0, scale=0.01), data_dir)
    digests = list[str]()
    kills = 0
    for name, options, kill_at in (("one", "1", ()), ("two", "2", ()), ("killed", "2", (10, 60, 110))):
        command = _command(data_dir, scratch / name, "--seed", "5", "--memory", "64MiB", "--jobs", options)
        for num_records in kill_at:
            kills += _kill_when(command, scratch / f".{name}.preparing", num_records)
        if not (scratch / name).exists():
            subprocess.run(command, check=True, capture_output=True)
        manifest = json.loads((scratch / name / "manifest.json").read_text())
        digests.append(json.dumps(manifest["files"], sort_keys=True))
    report = Report("prepare")
    report.figures["different results"] = len(set(digests))
    report.notes = {"rows": num_rows, "runs": f"1 job, 2 jobs, 2 jobs killed {kills} times"}
    return report


def _kill_when(command: Sequence[str], work_dir: Path, num_records: int) -> bool:
    """Start the command and kill it once so many parts are done; whether it was still running."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None and len(list(work_dir.glob("*-*.json"))) < num_records:
        time.sleep(0.005)
    was_running = child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    return was_running


def _command(data_dir: Path, out_dir: Path, *options: str) -> list[str]:
    program = [sys.executable, "-m", "recmill", "prepare", "--preset", "torchrec"]
    return [*program, "--data", str(data_dir), "--out", str(out_dir), *options]


def main(argv: Sequence[str]) -> int:
    """`recmill bench prepare`."""
    parser = argparse.ArgumentParser(prog="recmill bench prepare", description=__doc__)
    add_common_options(parser, rounds=3)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of the synthetic log (2,000,000)")
    parser.add_argument("--without-torchrec", action="store_true", help="leave out the contender that takes minutes")
    parser.add_argument("--peak", action="store_true", help="measure memory at --rows and at ten times as many")
    parser.add_argument("--identical", action="store_true", help="compare bytes, after kills too")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if args.peak:
            report = measure_peak(scratch, (args.rows, 10 * args.rows))
        elif args.identical:
            report = compare_bytes(scratch, min(args.rows, 500_000))
        else:
            report = measure(scratch, num_rows=args.rows, rounds=args.rounds, with_torchrec=not args.without_torchrec)
        report.show(as_json=args.json)
    return 0
