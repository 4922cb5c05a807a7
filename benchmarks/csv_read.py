"""Plain and quoted CSV to arrays: recmill and polars on the same rows, to the same arrays.

The rows are synthetic Criteo rows with commas between the fields. In the quoted file every field stands in quotes. All
produce dense float32 after log(x+3) with 0 for an empty field, ids after the modulo with 0 for an empty field, and
labels; the arrays are compared before anything is timed.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.read import Arrays
from benchmarks.report import Report, add_common_options, alternate, median_ratio
from recmill.data.logs.header import open_source
from recmill.data.stream.text_reader import TextReader, read_all
from recmill.data.synthetic.clicks import write_criteo
from recmill.memory import keep_freed_memory
from recmill.settings.columns import Schema
from recmill.settings.criteo import CRITEO, PUBLISHED_TABLE_ROWS
from recmill.settings.encoding import Encoding
from recmill.settings.synthetic import SynthSpec

PLAIN = CRITEO.with_({"separator": ","})
QUOTED = PLAIN.with_({"quoted": True})


def read_with_recmill(path: Path, schema: Schema, threads: int) -> Arrays:
    """Our kernel; opening a quoted file includes the pass that looks for line breaks inside quotes."""
    reader = TextReader(schema, Encoding(category_missing="value_zero"), PUBLISHED_TABLE_ROWS)
    with closing(open_source(path, schema)) as source:
        columns = read_all(reader, [source.whole()], threads=threads).columns
        return Arrays(columns.dense, columns.ids, columns.labels)


def read_with_polars(path: Path) -> Arrays:
    """read_csv and expressions."""
    names = [column.name for column in CRITEO.columns]
    types = {name: pl.String if name.startswith("cat") else pl.Int64 for name in names}
    frame = pl.read_csv(path, has_header=False, new_columns=names, schema_overrides=types)
    dense = frame.select((pl.col(name).fill_null(0) + 3).log().cast(pl.Float32) for name in CRITEO.dense_names)
    ids = frame.select(
        pl.col(name).str.to_integer(base=16, strict=False).fill_null(0) % rows
        for name, rows in zip(CRITEO.category_names, PUBLISHED_TABLE_ROWS, strict=True)
    )
    return Arrays(dense.to_numpy(), ids.to_numpy(), frame["label"].cast(pl.Float32).to_numpy())


def write_files(num_rows: int, directory: Path) -> tuple[Path, Path]:
    """The same rows, plain and with every field in quotes."""
    write_criteo(SynthSpec(rows=num_rows, days=1, seed=0), directory / "data")
    plain, quoted = directory / "plain.csv", directory / "quoted.csv"
    with (directory / "data" / "day_0").open("rb") as rows, plain.open("wb") as one, quoted.open("wb") as other:
        for line in rows:
            one.write(line.replace(b"\t", b","))
            other.write(b'"' + line.rstrip(b"\n").replace(b"\t", b'","') + b'"\n')
    return plain, quoted


def measure(plain: Path, quoted: Path, *, threads: int, rounds: int) -> Report:
    """All, turn by turn."""
    contenders: dict[str, Callable[[], Arrays]] = {
        "recmill plain": partial(read_with_recmill, plain, PLAIN, threads),
        "recmill quoted": partial(read_with_recmill, quoted, QUOTED, threads),
        "polars plain": partial(read_with_polars, plain),
        "polars quoted": partial(read_with_polars, quoted),
    }
    first, *others = (work() for work in contenders.values())
    num_rows = len(first.labels)
    for other in others:
        np.testing.assert_allclose(first.dense, other.dense, rtol=3e-7)
        np.testing.assert_array_equal(first.ids, other.ids)
        np.testing.assert_array_equal(first.labels, other.labels)
    del first, others, other
    timings = alternate(contenders, rounds=rounds)
    report = Report("csv")
    for name, timing in timings.items():
        report.figures[f"{name} rows/s"] = num_rows / timing.median_s
        report.figures[f"{name} spread"] = timing.spread_frac
    report.ratios["quoted/plain"] = median_ratio(timings, "recmill quoted", "recmill plain")
    for kind in ("plain", "quoted"):
        report.ratios[f"recmill/polars {kind}"] = median_ratio(timings, f"recmill {kind}", f"polars {kind}")
    report.notes = {"rows": num_rows, "rounds": rounds, "threads": threads}
    return report


def main(argv: Sequence[str]) -> int:
    """`recmill bench csv-read`."""
    parser = argparse.ArgumentParser(prog="recmill bench csv-read", description=__doc__)
    add_common_options(parser, rounds=5)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the synthetic files (1,000,000)")
    parser.add_argument("--threads", type=int, default=2, help="threads of recmill's reader (2)")
    args = parser.parse_args(argv)
    keep_freed_memory()  # as every training run does; it serves all contenders
    with tempfile.TemporaryDirectory() as scratch:
        plain, quoted = write_files(args.rows, Path(scratch))
        measure(plain, quoted, threads=args.threads, rounds=args.rounds).show(as_json=args.json)
    return 0
