"""A prepared directory: rows that are encoded already, and a manifest that says of what, how, and for what use.

A directory with a manifest is complete: the manifest is written last, and the directory gets its name after that.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from recmill.data.batch import Columns, empty_columns, join_columns
from recmill.data.encode.counts import Selection
from recmill.data.prepared.checks import refuse_unlisted, refuse_wrong_facts
from recmill.data.prepared.manifest import ROWS_FORMAT, identity_of, read_rows_manifest
from recmill.data.prepared.npy import NpyLayout, NpyTable
from recmill.data.prepared.npz import MultiHotTable
from recmill.data.prepared.row_rules import RowRules
from recmill.data.prepared.sinks import Subsets
from recmill.data.stream.block import Block
from recmill.errors import DataError
from recmill.files import MANIFEST, remove_scratch, replace_dir, write_atomic, write_manifest
from recmill.settings.columns import Schema
from recmill.settings.data import SPLIT_NAMES, Access, FirstHalf, SplitName, Verify
from recmill.settings.encoding import Encoding
from recmill.settings.multi_hot import MultiHot
from recmill.settings.tree import from_tree
from recmill.verified import PREPARE_ANEW, read_verified


@dataclass(frozen=True)
class Facts:
    """What a manifest says of the rows."""

    store: str
    preset: str
    selection: Selection | None  # of a vocabulary's values
    seed: int | None
    first_half: FirstHalf | None  # None: validation and test are not the halves of anything
    schema: Schema
    encoding: Encoding
    table_rows: tuple[int, ...]
    layout: NpyLayout
    subsets: Subsets
    num_clicks: dict[SplitName, int]
    num_skipped: int
    multi_hot: MultiHot | None = None

    def num_rows(self, subset: SplitName) -> int:
        """How many rows are for that use."""
        return sum(stop - start for _, start, stop in self.subsets[subset])

    def to_json(self) -> dict[str, Any]:
        """Plain data for the manifest."""
        return {
            "format": ROWS_FORMAT,
            "store": self.store,
            "preset": self.preset,
            "selection": asdict(self.selection) if self.selection else None,
            "seed": self.seed,
            "first_half": self.first_half,
            "rows": {name: self.num_rows(name) for name in SPLIT_NAMES},
            "clicks": self.num_clicks,
            "skipped_rows": self.num_skipped,
            "table_rows": list(self.table_rows),
            "layout": self.layout.to_json(),
            "multi_hot": asdict(self.multi_hot) if self.multi_hot else None,
            "encoding": self.encoding.model_dump(mode="json", exclude_none=True),
            "schema": self.schema.model_dump(mode="json", exclude_none=True),
            "subsets": self.subsets,
        }

    @staticmethod
    def from_json(manifest: dict[str, Any], directory: Path) -> "Facts":
        """What `to_json` wrote, or a complaint about the directory."""
        try:
            schema = from_tree(Schema, manifest["schema"])
            refuse_wrong_facts(manifest, schema, directory)
            return Facts(
                manifest["store"],
                manifest["preset"],
                Selection(**selection) if (selection := manifest.get("selection")) else None,
                manifest["seed"],
                manifest.get("first_half"),
                schema,
                from_tree(Encoding, manifest["encoding"]),
                tuple(manifest["table_rows"]),
                NpyLayout(**manifest["layout"]),
                {
                    name: [(file, start, stop) for file, start, stop in manifest["subsets"][name]]
                    for name in SPLIT_NAMES
                },
                manifest["clicks"],
                manifest["skipped_rows"],
                MultiHot(tuple(rule["sizes"]), rule["distribution"]) if (rule := manifest.get("multi_hot")) else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{directory / MANIFEST} is damaged: {error!r}; {PREPARE_ANEW}") from None

    @property
    def slots_per_column(self) -> tuple[int, ...]:
        """How many ids a row has for every category column."""
        if self.multi_hot:
            return self.multi_hot.sizes
        return tuple(column.num_slots for column in self.schema.of_role("category"))


def seal(result_dir: Path, out_dir: Path, facts: Facts, versions: dict[str, str]) -> dict[str, Any]:
    """Describe a finished result, and give it its name; the manifest."""
    remove_scratch(result_dir)  # or it would be listed, and the result depend on when an earlier attempt was killed
    write_atomic(result_dir / "README.md", describe(facts))
    write_manifest(result_dir, **facts.to_json(), versions=versions)
    replace_dir(result_dir, out_dir)
    manifest: dict[str, Any] = json.loads((out_dir / MANIFEST).read_text())
    return manifest


def describe(facts: Facts) -> str:
    """A page for people."""
    lines = [
        "# Prepared rows",
        "",
        f"Preset `{facts.preset}`, stored as {facts.store}, "
        + (f"training rows shuffled with seed {facts.seed}." if facts.seed is not None else "rows in file order."),
        *(_describe_selection(facts.selection) if facts.selection else ()),
        f"Lines ignored as bad: {facts.num_skipped:,}.",
        "",
        "| subset | rows | clicks | click rate |",
        "|---|---|---|---|",
    ]
    for name in SPLIT_NAMES:
        rows, clicks = facts.num_rows(name), facts.num_clicks[name]
        lines.append(f"| {name} | {rows:,} | {clicks:,} | {clicks / rows if rows else 0.0:.4f} |")
    if facts.multi_hot:
        hotness = ",".join(map(str, facts.multi_hot.sizes))
        lines += ["", f"Ids of each column, all but the first drawn ({facts.multi_hot.distribution}): {hotness}."]
    sizes = ",".join(map(str, facts.table_rows))
    lines += ["", f"StoredTable sizes ({sum(facts.table_rows):,} rows in all):", "", f"    {sizes}", ""]
    dense = ", ".join(f"{k} = {v}" for k, v in facts.encoding.model_dump(exclude_none=True).items())
    lines += [
        f"Encoding: {dense}.",
        "",
        "`manifest.json` has the schema, and size and checksum (XXH3, 128 bits) of every file.",
        "",
    ]
    return "\n".join(lines)


def _describe_selection(selection: Selection) -> list[str]:
    told = f"Values that occur {selection.min_count:,} times or more have a row of their own"
    if selection.max_values is not None:
        told += f", the {selection.max_values:,} most frequent of a column at most (of equals, those seen first)"
    return [f"{told}."]


def read_facts(directory: Path) -> Facts:
    """What the manifest says, without a look at the files."""
    return Facts.from_json(read_rows_manifest(directory), directory)


class StoredTable(Protocol):
    """Rows of one file of the store."""

    path: Path
    ids_path: Path  # the same, or the one of several that has the ids
    num_rows: int

    def read(self, start: int, stop: int) -> Columns:
        """Some rows."""

    def fetch(self, start: int, stop: int) -> None:
        """Ask the system to read some rows from the disk, without waiting for them."""

    def close(self) -> None:
        """Let go of the file."""


@dataclass(frozen=True)
class RowSegment:
    """Neighbouring rows of a table; a stream cuts and reads it as it does lines of text."""

    source: StoredTable
    start: int
    stop: int

    @property
    def extent(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    def fetch(self) -> None:
        """Ask the system to read it from the disk, without waiting for it."""
        self.source.fetch(self.start, self.stop)

    def part(self, start: int, stop: int) -> "RowSegment":
        """Some of the rows, counted from the first."""
        return RowSegment(self.source, min(self.start + start, self.stop), min(self.start + stop, self.stop))


class RowReader:
    """Reads segments of prepared rows."""

    def __init__(self, layout: NpyLayout, rules: RowRules) -> None:
        self._layout, self._rules = layout, rules

    def room_for(self, num_rows: int) -> Columns:
        """Columns of this layout, not yet filled."""
        layout = self._layout
        return empty_columns(num_rows, layout.num_dense, layout.num_slots, layout.has_weight)

    def read(self, segments: Sequence[RowSegment]) -> Block:
        """The rows of some segments, in their order."""
        pieces = [segment.source.read(segment.start, segment.stop) for segment in segments]
        for piece, segment in zip(pieces, segments, strict=True):
            paths = (segment.source.path, segment.source.ids_path)
            self._rules.refuse_wrong(piece, paths, segment.start)
        return Block(join_columns(pieces) if pieces else self.room_for(0))


class Prepared:
    """A prepared directory, opened; close it when done."""

    def __init__(self, directory: Path, access: Access = "mapped", *, verify: Verify = "once") -> None:
        self.directory = directory
        self.facts = read_facts(directory)
        manifest = read_verified(directory, verify)
        self.identity = identity_of(manifest)
        names = dict.fromkeys(name for subset in SPLIT_NAMES for name, _, _ in self.facts.subsets[subset])
        refuse_unlisted((file for name in names for file in self._files_of(name)), manifest["files"], directory)
        self._tables: dict[str, StoredTable] = {name: self._open(name, access) for name in names}
        facts = self.facts
        self.reader = RowReader(facts.layout, RowRules.of(facts.table_rows, facts.slots_per_column))
        for subset in SPLIT_NAMES:
            for name, _, stop in self.facts.subsets[subset]:
                if stop > self._tables[name].num_rows:
                    path, rows = self._tables[name].path, self._tables[name].num_rows
                    raise DataError(f"{path} has {rows} rows, and {MANIFEST} speaks of {stop}; prepare the data anew")

    def _files_of(self, name: str) -> list[str]:
        if self.facts.multi_hot:
            return MultiHotTable.files_of(name)
        return NpyTable.files_of(name, self.facts.layout) if self.facts.store == "npy" else [name]

    def _open(self, name: str, access: Access) -> StoredTable:
        if self.facts.multi_hot:
            return MultiHotTable(self.directory, name, self.facts.multi_hot.sizes, self.facts.layout, access)
        if self.facts.store == "npy":
            return NpyTable(self.directory, name, self.facts.layout, access)
        from recmill.data.prepared.parquet import ParquetTable  # pyarrow is heavy

        return ParquetTable(self.directory / name, self.facts.layout, in_memory=access == "memory")

    def segments(self, subset: SplitName) -> tuple[RowSegment, ...]:
        """The rows of a subset."""
        return tuple(RowSegment(self._tables[name], start, stop) for name, start, stop in self.facts.subsets[subset])

    def close(self) -> None:
        """Let go of the files."""
        for table in self._tables.values():
            table.close()
