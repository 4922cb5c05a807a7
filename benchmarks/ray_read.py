"""The published Ray Data pipeline for Criteo text, as a contender of `recmill bench read --vocabulary --with-ray`.

read_csv → fill what is missing → look values up with Arrow's index_in in tables that lie in the object store → stack,
consumed block by block and in order. It differs from the published one in three ways. A missing category is looked up
as 00000000 rather than as an empty text, and types are given rather than guessed, so that the ids are those of the
other contenders. Its text lies in several files, because Ray reads one file with one task. And functions are given
whole blocks, because index_in builds its hash table anew for every call.

Workers import this file: it imports nothing of recmill, which would be compiled in each of them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

LABEL = "label"
DENSE_NAMES = [f"int_{i}" for i in range(13)]
CATEGORY_NAMES = [f"cat_{i}" for i in range(26)]
COLUMN_NAMES = [LABEL, *DENSE_NAMES, *CATEGORY_NAMES]
MISSING_CATEGORY = "00000000"
UNKNOWN_ROW = 1

Array = NDArray[Any]


def fill_missing(block: pa.Table) -> pa.Table:
    """0 for numbers, the text of the value 0 for categories."""
    fills = {name: MISSING_CATEGORY if name in CATEGORY_NAMES else 0 for name in COLUMN_NAMES}
    return pa.table({name: pc.fill_null(block[name], fill) for name, fill in fills.items()})


def look_up(block: pa.Table, tables_ref: Any) -> pa.Table:
    """Categories to their rows; 1 for values that are not in the table."""
    import ray

    tables = ray.get(tables_ref)
    columns = {name: block[name] for name in COLUMN_NAMES}
    for name in CATEGORY_NAMES:
        places = pc.index_in(block[name], value_set=tables[name]["value"])
        rows = pc.fill_null(pc.take(tables[name]["row"], places), UNKNOWN_ROW)
        columns[name] = rows.cast(pa.int32())
    return pa.table(columns)


def stack(block: dict[str, Array]) -> dict[str, Array]:
    """Columns to the arrays of a batch."""
    dense = np.stack([block[name] for name in DENSE_NAMES], axis=1)
    return {
        "dense": np.log(dense + 3).astype(np.float32),
        "sparse": np.stack([block[name] for name in CATEGORY_NAMES], axis=1),
        "label": block[LABEL],
    }


def read(paths: list[str], tables_ref: Any) -> tuple[Array, Array, Array]:
    """The pipeline, and its blocks laid end to end: dense, ids, labels."""
    import ray

    types = {name: pa.string() if name in CATEGORY_NAMES else pa.int64() for name in COLUMN_NAMES}
    rows = (
        ray.data.read_csv(
            paths,
            read_options=pa.csv.ReadOptions(column_names=COLUMN_NAMES),
            parse_options=pa.csv.ParseOptions(delimiter="\t"),
            convert_options=pa.csv.ConvertOptions(column_types=types, strings_can_be_null=True),
        )
        .map_batches(fill_missing, batch_format="pyarrow", batch_size=None)
        .map_batches(look_up, batch_format="pyarrow", batch_size=None, fn_args=(tables_ref,))
        .map_batches(stack, batch_format="numpy", batch_size=None)
    )
    blocks = list(rows.iter_batches(batch_size=None, batch_format="numpy"))
    dense, ids, labels = (np.concatenate([block[name] for block in blocks]) for name in ("dense", "sparse", "label"))
    return dense, ids, labels


def cut_lines(path: Path, directory: Path, num_parts: int) -> list[str]:
    """The lines of a file in several files, in their order."""
    text = path.read_bytes()
    directory.mkdir()
    paths, start = list[str](), 0
    for part in range(num_parts):
        stop = text.find(b"\n", len(text) * (part + 1) // num_parts - 1) + 1 or len(text)
        paths.append(str(directory / f"part_{part}"))
        Path(paths[-1]).write_bytes(text[start:stop])
        start = stop
    return paths


@contextmanager
def open_ray(
    path: Path, tables: Mapping[str, pa.Table], directory: Path, *, num_cpus: int
) -> Iterator[Callable[[], tuple[Array, Array, Array]]]:
    """A Ray of its own with the tables in its object store; what reads the file."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(
        address="local",
        num_cpus=num_cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=str(directory / "ray"),
    )
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        paths = cut_lines(path, directory / "parts", 2 * num_cpus)
        yield partial(read, paths, ray.put(dict(tables)))
    finally:
        ray.shutdown()
