"""The same audit over prepared rows: numbers as they are stored, ids as categories, splits as the manifest has them.

Beyond what raw rows may have wrong, stored rows may be damaged: an id outside its table, a number that is not finite, a
label that is neither 0 nor 1, other clicks than the manifest counts. Training on such rows would be wrong.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recmill.data.audit.audit import Audit, AuditedSplit
from recmill.data.audit.report import AuditReport, Limits, PreparedFacts
from recmill.data.batch import Columns
from recmill.data.logs.raw import read_ahead
from recmill.data.prepared.directory import Facts, Prepared, RowSegment
from recmill.data.text.fields import ABSENT_CATEGORY, RawColumns
from recmill.files import MANIFEST
from recmill.settings.columns import Schema
from recmill.settings.data import SPLIT_NAMES, SplitName

CHUNK_ROWS = 1 << 15


def audit_prepared(
    directory: Path, limits: Limits, *, threads: int, on_progress: Callable[[int], None] | None = None
) -> AuditReport:
    """Read all rows of a prepared directory once; validation and test rows alike are held out from training."""
    with closing(Prepared(directory, "streamed")) as prepared, ThreadPoolExecutor(threads) as pool:
        facts = prepared.facts
        audit, damage = Audit(_with_ids(facts.schema), pool), Damage(facts)
        for subset in SPLIT_NAMES:
            split: AuditedSplit = "train" if subset == "train" else "test"
            pieces = [piece for segment in prepared.segments(subset) for piece in _cut(segment)]
            tasks = (partial(piece.source.read, piece.start, piece.stop) for piece in pieces)
            with closing(read_ahead(tasks, pool, threads + 1)) as chunks:
                for piece, columns in zip(pieces, chunks, strict=True):
                    damage.look_at(columns, subset, piece)
                    audit.take(raw_columns(_own_ids(columns, facts), facts.schema), split)
                    if on_progress:
                        on_progress(audit.num_rows)
        rows = {subset: facts.num_rows(subset) for subset in SPLIT_NAMES}
        return audit.report(limits, prepared=PreparedFacts(facts.preset, facts.table_rows, rows, damage.findings()))


def _with_ids(schema: Schema) -> Schema:
    """The schema of rows whose categories are ids."""
    columns = [c.with_({"kind": "int"}) if c.role == "category" else c for c in schema.columns]
    return schema.with_({"columns": columns})


def _cut(segment: RowSegment) -> list[RowSegment]:
    return [segment.part(at, at + CHUNK_ROWS) for at in range(0, segment.extent, CHUNK_ROWS)]


def _own_ids(columns: Columns, facts: Facts) -> Columns:
    """Of multi-hot rows the first id of each column: the others are drawn, and follow from it."""
    if facts.multi_hot is None:
        return columns
    firsts = np.cumsum((0, *facts.multi_hot.sizes[:-1]))
    return columns._replace(ids=np.ascontiguousarray(columns.ids[:, firsts]))


def raw_columns(columns: Columns, schema: Schema) -> RawColumns:
    """Stored rows as the audit takes them; a number that is not finite counts as missing."""
    numbers = np.where(np.isfinite(columns.dense), columns.dense, np.nan).astype(np.float64)
    is_absent = (columns.ids == -1) & np.array(schema.slots_may_be_absent, np.bool_)
    values = np.where(is_absent, ABSENT_CATEGORY, columns.ids.view(np.uint64))
    return RawColumns(columns.labels, np.asfortranarray(numbers), np.asfortranarray(values))


class Damage:
    """What stored rows hold that no preparation writes: how often, and where first."""

    def __init__(self, facts: Facts) -> None:
        self._facts, schema = facts, facts.schema
        hotness = facts.multi_hot.sizes if facts.multi_hot else (1,) * schema.num_slots
        self._names = np.repeat(schema.slot_names, hotness).tolist()
        self._sizes = np.repeat([facts.table_rows[column] for column in schema.slot_columns], hotness)
        self._least = np.repeat(np.where(schema.slots_may_be_absent, -1, 0), hotness)
        self._counts = dict[str, int]()
        self._firsts = dict[str, str]()
        self._clicks = dict[SplitName, int].fromkeys(SPLIT_NAMES, 0)

    def look_at(self, columns: Columns, subset: SplitName, piece: RowSegment) -> None:
        """Take some rows of a subset."""
        self._clicks[subset] += int((columns.labels == 1).sum())
        schema = self._facts.schema
        if schema.has_label:
            self._note("label: values other than 0 and 1", ~np.isin(columns.labels, (0, 1)), columns.labels, piece)
        for name, numbers in zip(schema.dense_names, columns.dense.T, strict=True):
            self._note(f"{name}: numbers that are not finite", ~np.isfinite(numbers), numbers, piece)
        is_outside = (columns.ids < self._least) | (columns.ids >= self._sizes)
        for slot, name in enumerate(self._names):
            finding = f"{name}: ids outside its table of {self._sizes[slot]:,} rows"
            self._note(finding, is_outside[:, slot], columns.ids[:, slot], piece)

    def _note(self, finding: str, is_wrong: NDArray[np.bool_], values: NDArray[np.generic], piece: RowSegment) -> None:
        if not is_wrong.any():
            return
        first = int(np.flatnonzero(is_wrong)[0])
        path = piece.source.path
        name = path.with_name(path.name.removesuffix("_labels.npy"))  # one of three arrays of the same rows
        self._firsts.setdefault(finding, f"{values[first]} in row {piece.start + first + 1} of {name}")
        self._counts[finding] = self._counts.get(finding, 0) + int(is_wrong.sum())

    def findings(self) -> tuple[str, ...]:
        """The findings, each with the way out."""
        return tuple(self._findings())

    def _findings(self) -> Iterator[str]:
        for finding, count in self._counts.items():
            yield f"{finding} ({count:,}, the first is {self._firsts[finding]}); prepare the data anew"
        for subset, found in self._clicks.items():
            stated = self._facts.num_clicks[subset]
            if found != stated:
                yield f"{subset} rows have {found:,} clicks, and {MANIFEST} says {stated:,}; prepare the data anew"
