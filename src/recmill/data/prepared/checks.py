"""Whether what a directory says of its rows can be true: a manifest may be intact and still be wrong."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from recmill.errors import DataError
from recmill.files import MANIFEST
from recmill.settings.columns import Schema
from recmill.settings.data import SPLIT_NAMES
from recmill.settings.multi_hot import problems_of_sizes
from recmill.verified import PREPARE_ANEW

_MAX_TABLE_ROWS = 1 << 40
_MAX_ROWS = 1 << 48


def is_count(value: object, most: int = _MAX_ROWS, least: int = 0) -> bool:
    """Whether it is a whole number in that range, and not true or false."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def refuse_wrong_facts(manifest: Mapping[str, Any], schema: Schema, directory: Path) -> None:
    """Complain about the first thing that a manifest of rows says and that cannot be true."""
    if complaint := next(_wrong_facts(manifest, schema), None):
        raise DataError(f"{directory / MANIFEST} is damaged: {complaint}; {PREPARE_ANEW}")


def _wrong_facts(manifest: Mapping[str, Any], schema: Schema) -> Iterator[str]:
    categories = schema.of_role("category")
    if manifest["store"] not in ("npy", "parquet"):
        yield f"store is {manifest['store']!r}"
    rows = manifest["table_rows"]
    if not isinstance(rows, list) or not all(is_count(each, _MAX_TABLE_ROWS, 1) for each in rows):
        yield "table_rows are not numbers of rows"
    elif len(rows) != len(categories):
        yield f"table_rows are of {len(rows)} columns, and the schema has {len(categories)} of categories"
    yield from _wrong_layout(manifest, schema)
    for name in ("clicks", "rows"):
        counts = manifest.get(name, {})
        if not isinstance(counts, dict) or not all(is_count(counts.get(split, 0)) for split in SPLIT_NAMES):
            yield f"{name} are not numbers"
    if not is_count(manifest["skipped_rows"]):
        yield "skipped_rows is not a number"
    yield from _wrong_ranges(manifest)


def _wrong_layout(manifest: Mapping[str, Any], schema: Schema) -> Iterator[str]:
    layout, rule = manifest["layout"], manifest.get("multi_hot")
    num_slots = schema.num_slots
    if rule is not None:
        if not isinstance(rule["sizes"], list) or not all(is_count(size) for size in rule["sizes"]):
            yield "multi_hot.sizes are not numbers"
            return
        yield from problems_of_sizes(rule["sizes"], schema)
        if rule["distribution"] not in ("uniform", "pareto") or manifest["store"] != "npy":
            yield "multi_hot is not as any version writes it"
        num_slots = sum(rule["sizes"])
    stated = {name: layout.get(name) for name in ("num_dense", "num_slots")}
    expected = {"num_dense": len(schema.dense_names), "num_slots": num_slots}
    if stated != expected or any(isinstance(value, bool) for value in stated.values()):
        yield f"layout is {stated}, and that of the schema {expected}"
    if layout.get("ids_dtype", "int32") not in ("int32", "int64"):
        yield f"layout.ids_dtype is {layout['ids_dtype']!r}"
    if layout.get("has_weight", False) is not schema.has_weight:
        yield "layout.has_weight is not what the schema says"


def _wrong_ranges(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Rows of files: each for one use at most, and as many as are stated."""
    by_file = dict[str, list[tuple[int, int]]]()
    for split in SPLIT_NAMES:
        num_rows = 0
        for name, start, stop in manifest["subsets"][split]:
            if not isinstance(name, str) or not is_count(start) or not is_count(stop, least=start):
                yield f"subsets.{split} has rows {start!r} to {stop!r} of {name!r}"
                return
            by_file.setdefault(name, []).append((start, stop))
            num_rows += stop - start
        if (stated := manifest.get("rows", {}).get(split, num_rows)) != num_rows:
            yield f"subsets.{split} has {num_rows} rows, and rows.{split} is {stated}"
    for name, ranges in by_file.items():
        for before, after in pairwise(sorted(ranges)):
            if after[0] < before[1]:
                yield f"subsets has row {after[0]} of {name!r} twice"


def refuse_unlisted(names: Iterable[str], listed: Mapping[str, Any], directory: Path) -> None:
    """Complain about a file that rows are read from and that the manifest does not list: it may lie anywhere."""
    for name in names:
        if name not in listed:
            raise DataError(f"{directory / MANIFEST} is damaged: it lists no file {name!r}; {PREPARE_ANEW}")
