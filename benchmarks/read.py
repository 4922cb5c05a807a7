"""Raw Criteo text to arrays: recmill, polars and pyarrow on the same file, to the same arrays.

All produce dense float32 after log(x+3) with 0 for an empty field, ids int64 after the modulo with 0 for an empty
field, and labels; the arrays are compared before anything is timed. With --vocabulary ids are rows of a vocabulary that
lies ready: recmill looks them up, polars joins them; recmill's modulo is timed beside them. With --with-ray the
published Ray Data pipeline (`ray_read.py`) takes turns with them; its turn lasts half a minute at the default size.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from benchmarks.ray_read import open_ray
from benchmarks.report import Report, add_common_options, alternate, median_ratio
from recmill.data.encode.counts import CensusFile, PartCensus, Selection, merge_column, merge_runs
from recmill.data.encode.vocabulary import Vocabulary, VocabularyWriter
from recmill.data.logs.raw import read_raw
from recmill.data.logs.text_file import Source
from recmill.data.stream.text_reader import TextReader, read_all
from recmill.data.synthetic.clicks import write_criteo
from recmill.errors import ConfigError, MissingExtra
from recmill.memory import keep_freed_memory
from recmill.settings.criteo import CRITEO, PUBLISHED_TABLE_ROWS
from recmill.settings.encoding import Encoding
from recmill.settings.synthetic import SynthSpec


class Arrays(NamedTuple):
    """What every contender makes."""

    dense: NDArray[np.float32]
    ids: NDArray[np.int64]
    labels: NDArray[np.float32]


def read_with_recmill(path: Path, threads: int) -> Arrays:
    """Our kernel, one segment per thread at a time."""
    reader = TextReader(CRITEO, Encoding(category_missing="value_zero"), PUBLISHED_TABLE_ROWS)
    source = Source(path)
    columns = read_all(reader, [source.whole()], threads=threads).columns
    source.close()
    return Arrays(*columns[:3])


def read_with_polars(path: Path) -> Arrays:
    """read_csv and expressions."""
    frame = polars_frame(path)
    dense = frame.select((pl.col(name).fill_null(0) + 3).log().cast(pl.Float32) for name in CRITEO.dense_names)
    ids = frame.select(
        pl.col(name).str.to_integer(base=16, strict=False).fill_null(0) % rows
        for name, rows in zip(CRITEO.category_names, PUBLISHED_TABLE_ROWS, strict=True)
    )
    labels = frame["label"].cast(pl.Float32)
    return Arrays(dense.to_numpy(), ids.to_numpy(), labels.to_numpy())


def freeze_vocabulary(path: Path, directory: Path) -> Vocabulary:
    """The values of a file as `recmill prepare --preset torchrec` counts them: rows in the order of their first use."""
    census = PartCensus(CRITEO.slot_columns, 0, missing_is_zero=True)
    with closing(Source(path)) as source:
        for start in range(0, source.num_bytes, 8 << 20):
            census.add(read_raw(source.whole().part(start, start + (8 << 20)), CRITEO).raw)
    census.write(directory / "census")
    files = [CensusFile(directory / "census", len(CRITEO.category_names))]
    writer = VocabularyWriter(directory / "vocabulary", missing_is_zero=True)
    for column, name in enumerate(CRITEO.category_names):
        lengths = merge_column(files, column, Selection(by_frequency=False), 1 << 30, directory / "runs")
        writer.add(name, sum(lengths), merge_runs(directory / "runs", lengths, 1 << 30), num_bits=32)
    writer.finish()
    return Vocabulary(directory / "vocabulary")


def look_up_with_recmill(path: Path, vocabulary: Vocabulary, threads: int) -> Arrays:
    """The same kernel, with a look-up in place of the modulo."""
    encoding = Encoding(category="vocabulary", category_missing="value_zero")
    reader = TextReader(CRITEO, encoding, vocabulary.table_rows, vocabulary=vocabulary)
    with closing(Source(path)) as source:
        return Arrays(*read_all(reader, [source.whole()], threads=threads).columns[:3])


def mapping_frames(path: Path) -> dict[str, pl.DataFrame]:
    """What polars joins with: every column's values and their rows."""
    frame = polars_frame(path).select(pl.col(CRITEO.category_names).fill_null("00000000"))
    return {
        name: frame.select(name).unique(maintain_order=True).with_row_index("row", offset=2)
        for name in CRITEO.category_names
    }


def join_with_polars(path: Path, rows: dict[str, pl.DataFrame]) -> Arrays:
    """read_csv, a join for every column, and 1 for what it does not find."""
    frame = polars_frame(path)
    dense = frame.select((pl.col(name).fill_null(0) + 3).log().cast(pl.Float32) for name in CRITEO.dense_names)
    columns = [
        frame.select(pl.col(name).fill_null("00000000"))
        .join(mapping, on=name, how="left", maintain_order="left")["row"]
        .fill_null(1)
        .cast(pl.Int64)
        .alias(name)
        for name, mapping in rows.items()
    ]
    return Arrays(dense.to_numpy(), pl.DataFrame(columns).to_numpy(), frame["label"].cast(pl.Float32).to_numpy())


def polars_frame(path: Path) -> pl.DataFrame:
    """Criteo's columns as polars reads them: integers and strings."""
    names = [column.name for column in CRITEO.columns]
    types = {name: pl.String if name.startswith("cat") else pl.Int64 for name in names}
    return pl.read_csv(path, separator="\t", has_header=False, new_columns=names, schema_overrides=types)


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


def modulo_contenders(path: Path, threads: int) -> dict[str, Callable[[], Arrays]]:
    """Ids by modulo."""
    return {
        "recmill": lambda: read_with_recmill(path, threads),
        "polars": lambda: read_with_polars(path),
        "pyarrow": lambda: read_with_pyarrow(path),
    }


@contextmanager
def vocabulary_contenders(
    path: Path, threads: int, directory: Path, *, with_ray: bool
) -> Iterator[dict[str, Callable[[], Arrays]]]:
    """Ids by vocabulary; Ray's processes last as long as the context."""
    vocabulary, rows = freeze_vocabulary(path, directory), mapping_frames(path)
    contenders = {
        "recmill": lambda: look_up_with_recmill(path, vocabulary, threads),
        "polars": lambda: join_with_polars(path, rows),
    }
    with ExitStack() as open_parts:
        if with_ray:
            tables = {
                name: pa.table({"value": mapping[name].to_arrow().cast(pa.string()), "row": mapping["row"].to_arrow()})
                for name, mapping in rows.items()
            }
            read_with_ray = open_parts.enter_context(open_ray(path, tables, directory, num_cpus=threads))
            contenders["ray"] = lambda: Arrays(*read_with_ray())
        yield contenders


def refuse_without_ray(*, vocabulary: bool) -> None:
    """Complain before anything is written."""
    if not vocabulary:
        raise ConfigError("--with-ray is about ids that are looked up; give --vocabulary too")
    if find_spec("ray") is None:
        raise MissingExtra(
            "--with-ray needs ray, which is not installed: "
            ".venv/bin/pip install --constraint constraints.txt --editable '.[ray]'"
        )


def measure(
    path: Path, contenders: dict[str, Callable[[], Arrays]], beside: dict[str, Callable[[], Arrays]], *, rounds: int
) -> Report:
    """All contenders, turn by turn, and those beside them that need not make the same arrays."""
    ours, *others = (work() for work in contenders.values())
    for theirs in others:
        np.testing.assert_allclose(ours.dense, theirs.dense, rtol=3e-7)
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
    num_rows, num_bytes = len(ours.labels), path.stat().st_size
    del ours, others, theirs
    timings = alternate({**contenders, **beside}, rounds=rounds)
    report = Report("read")
    for name, timing in timings.items():
        report.figures[f"{name} rows/s"] = num_rows / timing.median_s
        report.figures[f"{name} MB/s"] = num_bytes / timing.median_s / 1e6
        report.figures[f"{name} spread"] = timing.spread_frac
    for rival in list(timings)[1:]:
        report.ratios[f"recmill/{rival}"] = median_ratio(timings, "recmill", rival)
    report.notes = {"rows": num_rows, "MB": round(num_bytes / 1e6, 1), "rounds": rounds}
    return report


def main(argv: Sequence[str]) -> int:
    """`recmill bench read`."""
    parser = argparse.ArgumentParser(prog="recmill bench read", description=__doc__)
    add_common_options(parser, rounds=11)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the synthetic file (1,000,000)")
    parser.add_argument("--file", type=Path, help="a Criteo text file to read instead")
    parser.add_argument("--threads", type=int, default=2, help="threads of recmill's reader (2)")
    parser.add_argument("--vocabulary", action="store_true", help="look ids up in a vocabulary")
    parser.add_argument(
        "--with-ray", action="store_true", help="with --vocabulary: against Ray Data too, which is slow"
    )
    args = parser.parse_args(argv)
    if args.with_ray:
        refuse_without_ray(vocabulary=args.vocabulary)
    keep_freed_memory()  # as every training run does; it serves all contenders
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as open_parts:
        path = args.file
        if path is None:
            write_criteo(SynthSpec(rows=args.rows, days=1, seed=0), Path(scratch) / "data")
            path = Path(scratch) / "data" / "day_0"
        if args.vocabulary:
            opened = vocabulary_contenders(path, args.threads, Path(scratch), with_ray=args.with_ray)
            contenders = open_parts.enter_context(opened)
            beside = {"modulo": lambda: read_with_recmill(path, args.threads)}
        else:
            contenders, beside = modulo_contenders(path, args.threads), {}
        report = measure(path, contenders, beside, rounds=args.rounds)
        report.notes["threads"] = args.threads
        report.show(as_json=args.json)
    return 0
