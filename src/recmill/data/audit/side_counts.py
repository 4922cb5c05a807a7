"""What the rows of a segment do not show once they are read: values cut off from lists, and the labels of bad lines."""

import threading
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.opening import open_log
from recmill.data.logs.raw import read_raw
from recmill.data.logs.raw_format import RawChunk, RawSegment, RawSource
from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY, RawColumns
from recmill.settings.columns import MAX_VALUES, Column, Schema

_KEPT_FRAC = 0.99


@dataclass(frozen=True)
class AuditChunk:
    """The rows of a segment, the labels that its bad lines have, and how long its lists are."""

    rows: RawChunk
    bad_labels: int = 0  # bad lines whose label can be read
    bad_clicks: int = 0  # and is positive
    lengths: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # rows of 0, 1, 2 … values, by column


class ChunkReader:
    """Reads parts of one file, and where it matters their labels or lists a second time; for threads.

    An open Parquet file has the columns of its own schema and no others, so that it is opened again for that.
    """

    def __init__(self, schema: Schema, max_unpacked_bytes: int | None = None) -> None:
        self.schema, self._max_unpacked_bytes = schema, max_unpacked_bytes
        self._others = dict[str, RawSource]()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let go of files that were opened again."""
        for source in self._others.values():
            source.close()

    def _read_again(self, segment: RawSegment, schema: Schema, purpose: str) -> RawColumns:
        if schema.format != "parquet":
            return read_raw(segment, schema).raw
        with self._lock:
            if purpose not in self._others:
                self._others[purpose] = open_log(segment.source.path, schema, self._max_unpacked_bytes)
        whole = self._others[purpose].whole()
        return read_raw(whole.part(segment.start - whole.start, segment.stop - whole.start), schema).raw

    def __call__(self, segment: RawSegment) -> AuditChunk:
        """A segment, read."""
        rows = read_raw(segment, self.schema)
        labels, clicks = 0, 0
        if rows.num_bad and self.schema.has_label:
            found = self._read_again(segment, self._labels_only, "labels").labels
            labels, clicks = len(found) - len(rows.raw.labels), int(found.sum()) - int(rows.raw.labels.sum())
        return AuditChunk(rows, labels, clicks, self._count_lengths(segment))

    @cached_property
    def _labels_only(self) -> Schema:
        """The same files, of which nothing but the label is read."""
        fields = [
            each if each.role == "label" else Column(name=each.name, role="ignored") for each in self.schema.fields
        ]
        return self.schema.with_({"columns": fields})

    @cached_property
    def _long_lists(self) -> Schema | None:
        """The same files, of which nothing but columns of several values is read, and of these more."""
        fields = [
            self._longer(each) if each.is_several else Column(name=each.name, role="ignored")
            for each in self.schema.fields
        ]
        return self.schema.with_({"columns": fields}) if any(each.is_several for each in fields) else None

    def _longer(self, column: Column) -> Column:
        most = min(MAX_VALUES, max(64, 4 * (column.max_values or 1)))
        # of text any value counts: those beyond the limit are not looked at when a row is trained on
        kind = "string" if self.schema.format == "text" else column.kind
        return column.with_({"max_values": most, "kind": kind})

    def _count_lengths(self, segment: RawSegment) -> dict[str, NDArray[np.int64]]:
        schema = self._long_lists
        if schema is None:
            return {}
        values, at = self._read_again(segment, schema, "lists").values, 0
        found = dict[str, NDArray[np.int64]]()
        for column in schema.of_role("category"):
            of_column = values[:, at : at + column.num_slots]
            at += column.num_slots
            lengths = ((of_column != ABSENT_CATEGORY) & (of_column != MISSING_CATEGORY)).sum(axis=1)
            found[column.name] = np.bincount(lengths, minlength=column.num_slots + 1)
        return found


def _ignored(column: Column) -> Column:
    return Column(name=column.name, role="ignored")


@dataclass(frozen=True)
class ListProfile:
    """A column of several values over the training rows: those that have more of them than are used."""

    name: str
    max_values: int
    rows_cut: int
    frac_cut: float
    max_values_for_99: int  # of so many values, 99 % of the rows lose none
    is_bound: bool  # they may need more

    def describe(self) -> str:
        """How many rows lose values, and what would keep them."""
        least = "at least " if self.is_bound else ""
        return (
            f"{self.name}: {self.rows_cut:,} training rows ({self.frac_cut:.2%}) have more than max_values = "
            f"{self.max_values} values and lose the others; 99 % of the rows lose none with max_values = "
            f"{least}{self.max_values_for_99}"
        )


def list_profiles(schema: Schema, lengths: dict[str, NDArray[np.int64]]) -> tuple[ListProfile, ...]:
    """What is cut off from each column of several values."""
    found = list[ListProfile]()
    for column in schema.of_role("category"):
        counts = lengths.get(column.name)
        if counts is None or column.max_values is None or counts.sum() == 0:
            continue
        cut, total = int(counts[column.max_values + 1 :].sum()), int(counts.sum())
        enough = int(np.searchsorted(np.cumsum(counts), _KEPT_FRAC * total))
        is_bound = enough >= len(counts) - 1
        found.append(ListProfile(column.name, column.max_values, cut, cut / total, max(1, enough), is_bound))
    return tuple(found)
