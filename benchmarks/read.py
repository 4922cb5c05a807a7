"""Raw Criteo text to arrays: recmill, polars and pyarrow on the same file, to the same arrays.

All produce dense float32 after log(x+3) with 0 for an empty field, ids int64 after the modulo with 0 for an empty
field, and labels; the arrays are compared before anything is timed.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from benchmarks.report import Report, add_common_options, alternate, median_ratio
from recmill.data.criteo import CRITEO, PUBLISHED_TABLE_ROWS
from recmill.data.encode import Encoding
from recmill.data.reader import TextReader, read_all
from recmill.data.source import Source
from recmill.data.split import whole
from recmill.data.synthetic import SynthSpec, write_criteo
from recmill.memory import keep_freed_memory


class Arrays(NamedTuple):
    """What every contender makes."""

    dense: NDArray[np.float32]
    ids: NDArray[np.int64]
    labels: NDArray[np.float32]


def read_with_recmill(path: Path, threads: int) -> Arrays:
    """Our kernel, one segment per thread at a time."""
    reader = TextReader(CRITEO, Encoding(category_missing="value_zero"), PUBLISHED_TABLE_ROWS)
    source = Source(path)
    columns = read_all(reader, [whole(source)], threads=threads).columns
    source.close()
    return Arrays(*columns)


def read_with_polars(path: Path) -> Arrays:
    """read_csv and expressions."""
    names = [column.name for column in CRITEO.columns]
    types = {name: pl.String if name.startswith("cat") else pl.Int64 for name in names}
    frame = pl.read_csv(path, separator="\t", has_header=False, new_columns=names, schema_overrides=types)
    dense = frame.select((pl.col(name).fill_null(0) + 3).log().cast(pl.Float32) for name in CRITEO.dense_names)
    ids = frame.select(
        pl.col(name).str.to_integer(base=16, strict=False).fill_null(0) % rows
        for name, rows in zip(CRITEO.category_names, PUBLISHED_TABLE_ROWS, strict=True)
    )
    labels = frame["label"].cast(pl.Float32)
    return Arrays(dense.to_numpy(), ids.to_numpy(), labels.to_numpy())


def read_with_pyarrow(path: Path) -> Arrays:
    """read_csv and compute kernels; hex has none, so numpy decodes the digits."""
    names = [column.name for column in CRITEO.columns]
    types = {name: pa.string() if name.startswith("cat") else pa.int64() for name in names}
    table = pa.csv.read_csv(
        path,
        read_options=pa.csv.ReadOptions(column_names=names),
        parse_options=pa.csv.ParseOptions(delimiter="\t"),
        convert_options=pa.csv.ConvertOptions(column_types=types, strings_can_be_null=True),
    )
    dense = np.empty((table.num_rows, len(CRITEO.dense_names)), np.float32)
    for i, name in enumerate(CRITEO.dense_names):
        dense[:, i] = pc.ln(pc.add(pc.fill_null(table[name], 0), 3)).to_numpy()
    ids = np.empty((table.num_rows, len(CRITEO.category_names)), np.int64)
    for i, (name, rows) in enumerate(zip(CRITEO.category_names, PUBLISHED_TABLE_ROWS, strict=True)):
        ids[:, i] = decode_hex(pc.fill_null(table[name], "00000000").combine_chunks()) % rows
    return Arrays(dense, ids, table["label"].to_numpy().astype(np.float32))


def decode_hex(texts: pa.Array) -> NDArray[np.int64]:
    """Strings of eight hexadecimal digits to numbers."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    digits = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[texts.offset] : offsets[texts.offset + len(texts)]]
    nibbles = (digits & 15) + 9 * (digits >> 6)
    pairs = (nibbles[0::2] << 4 | nibbles[1::2]).reshape(-1, 4)
    return pairs.view(">u4").ravel().astype(np.int64)


def measure(path: Path, *, rounds: int, threads: int) -> Report:
    """All three, turn by turn."""
    contenders: dict[str, Callable[[], Arrays]] = {
        "recmill": lambda: read_with_recmill(path, threads),
        "polars": lambda: read_with_polars(path),
        "pyarrow": lambda: read_with_pyarrow(path),
    }
    ours, *others = (work() for work in contenders.values())
    for theirs in others:
        np.testing.assert_allclose(ours.dense, theirs.dense, rtol=3e-7)
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
    num_rows, num_bytes = len(ours.labels), path.stat().st_size
    del ours, others, theirs
    timings = alternate(contenders, rounds=rounds)
    report = Report("read")
    for name, timing in timings.items():
        report.figures[f"{name} rows/s"] = num_rows / timing.median_s
        report.figures[f"{name} MB/s"] = num_bytes / timing.median_s / 1e6
        report.figures[f"{name} spread"] = timing.spread_frac
    for rival in ("polars", "pyarrow"):
        report.ratios[f"recmill/{rival}"] = median_ratio(timings, "recmill", rival)
    report.notes = {"rows": num_rows, "MB": round(num_bytes / 1e6, 1), "threads": threads, "rounds": rounds}
    return report


def main(argv: Sequence[str]) -> int:
    """`recmill bench read`."""
    parser = argparse.ArgumentParser(prog="recmill bench read", description=__doc__)
    add_common_options(parser, rounds=11)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the synthetic file (1,000,000)")
    parser.add_argument("--file", type=Path, help="a Criteo text file to read instead")
    parser.add_argument("--threads", type=int, default=2, help="threads of recmill's reader (2)")
    args = parser.parse_args(argv)
    keep_freed_memory()  # as every training run does; it serves all contenders
    with tempfile.TemporaryDirectory() as scratch:
        path = args.file
        if path is None:
            write_criteo(SynthSpec(rows=args.rows, days=1, seed=0), Path(scratch) / "data")
            path = Path(scratch) / "data" / "day_0"
        measure(path, rounds=args.rounds, threads=args.threads).show(as_json=args.json)
    return 0
