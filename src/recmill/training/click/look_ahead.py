"""Batches whose rows are in the cache when they are trained on: what is to come is read early, so that it is known.

1. Batches are taken from the stream until those at hand use more rows than the cache holds. What does not fit into a
   few MiB of memory waits in a file.
2. The next few have their rows brought, while the one before them is trained on.
3. A batch that is handed out is finished when the next one is asked for.
"""

import os
import tempfile
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from recmill.data.batch import Batch, Columns
from recmill.data.stream.stream import Stream
from recmill.embeddings.store.cache import Settling
from recmill.embeddings.tiered import TieredTables
from recmill.errors import ConfigError

_MOST_BATCHES = 256
_BROUGHT_AHEAD = 4
_MEMORY_BYTES = 8 << 20
_MOST_SOON = 2.5  # rows that known batches use, for each that the cache holds
_PAGE_BYTES = 4096


@dataclass
class _Waiting:
    """A batch on its way to be trained on."""

    batch: Batch
    number: int
    spooled_at: int | None  # where in the file its columns are
    settling: Settling | None = None


class LookAhead:
    """The batches of a stream, for tables in tiers; close it, or use it with `with`."""

    def __init__(self, stream: Stream, tables: TieredTables) -> None:
        self._stream = stream
        self._tables = tables
        self._cache = tables.cache
        self._waiting: deque[_Waiting] = deque()
        self._is_over = False
        self._handed: int | None = None
        self._most_batches = _MOST_BATCHES if tables.log is not None else _BROUGHT_AHEAD
        directory = tables.log.directory if tables.log is not None else None
        self._spool = Spool(directory) if directory is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cache.wait()
        if self._spool:
            self._spool.close()

    @property
    def trailing_skipped(self) -> int:
        """How many bad rows were ignored behind the last one."""
        return self._stream.trailing_skipped

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if self._handed is not None:
            self._cache.finished(self._handed)
        self._read_ahead()
        if not self._waiting:
            raise StopIteration
        self._settle_ahead()
        first = self._waiting.popleft()
        assert first.settling is not None
        self._tables.begin(first.settling)
        self._handed = first.number
        return first.batch

    def _read_ahead(self) -> None:
        """Take batches from the stream, as many as it is of use to know."""
        while not self._is_over and len(self._waiting) <= self._most_batches:
            if len(self._waiting) > _BROUGHT_AHEAD and self._cache.num_soon > _MOST_SOON * self._cache.num_slots:
                return
            batch = next(self._stream, None)
            if batch is None:
                self._is_over = True
                return
            number, spooled_at = self._cache.announce(batch.columns.ids), None
            num_bytes = sum(column.nbytes for column in batch.columns)
            if self._spool and num_bytes * len(self._waiting) > _MEMORY_BYTES:
                spooled_at = self._spool.put(batch.columns)
                nothing = Columns._make(column[:0].copy() for column in batch.columns)  # a view would keep all
                batch = replace(batch, columns=nothing)
            self._waiting.append(_Waiting(batch, number, spooled_at))

    def _settle_ahead(self) -> None:
        """Have the rows of the next few batches brought; those of the first one in any case."""
        for place in range(min(_BROUGHT_AHEAD, len(self._waiting))):
            each = self._waiting[place]
            if each.spooled_at is not None and self._spool:
                each.batch = replace(each.batch, columns=self._spool.take(each.spooled_at))
                each.spooled_at = None
            each.settling = each.settling or Settling(each.number, each.batch.columns.ids)
            if not self._cache.settle(each.settling):
                if place == 0:
                    raise self._too_small(each.batch)
                return

    def _too_small(self, batch: Batch) -> ConfigError:
        rows = self._cache.rows_of(batch.columns.ids)
        num_rows = len(np.unique(rows[rows >= 0]))
        needed = num_rows * self._cache.layout.record_bytes
        return ConfigError(
            f"store.cache_memory holds {self._cache.num_slots:,} rows, and a batch of {batch.num_rows:,} rows uses "
            f"{num_rows:,} rows of the tables; set store.cache_memory={-(-2 * needed >> 20)}MiB or more, or lower "
            "data.global_batch"
        )


class Spool:
    """Columns of batches that wait in a file without a name, in places of one size."""

    def __init__(self, directory: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 closed by `close`
        self._free: list[int] = []
        self._num_places = 0
        self._place_bytes = 0
        self._empty: dict[int, Columns] = {}  # what lies in a place: its columns, without their numbers

    def close(self) -> None:
        """Forget all."""
        self._file.close()

    def put(self, columns: Columns) -> int:
        """Keep columns; where they are."""
        num_bytes = sum(column.nbytes for column in columns)
        if not self._num_places:
            self._place_bytes = -(-num_bytes // _PAGE_BYTES) * _PAGE_BYTES
        assert num_bytes <= self._place_bytes, "the first batch is a full one"
        place = self._free.pop() if self._free else self._num_places
        self._num_places = max(self._num_places, place + 1)
        content = [np.ascontiguousarray(column).data.cast("B") for column in columns if column.size]
        os.pwritev(self._file.fileno(), content, place * self._place_bytes)
        self._empty[place] = Columns._make(np.empty((0, *column.shape), column.dtype) for column in columns)
        return place

    def take(self, place: int) -> Columns:
        """What is in a place, which is free afterwards."""
        shapes = self._empty.pop(place)
        columns = Columns._make(np.empty(like.shape[1:], like.dtype) for like in shapes)
        content = [column.data.cast("B") for column in columns if column.size]
        offset = place * self._place_bytes
        found = os.preadv(self._file.fileno(), content, offset)
        assert found == sum(column.nbytes for column in columns)
        os.posix_fadvise(self._file.fileno(), offset, self._place_bytes, os.POSIX_FADV_DONTNEED)
        self._free.append(place)
        return columns
