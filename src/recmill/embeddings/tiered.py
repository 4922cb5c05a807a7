"""The engine of one CPU process whose tables need not fit into memory: a cache of rows over a store that holds all.

It makes the same updates as `LocalTables`, bit for bit, whatever is in the cache.
"""

import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recmill.embeddings.engine import RowEngine
from recmill.embeddings.piece import Piece, What
from recmill.embeddings.rules import Storage
from recmill.embeddings.store.cache import RowCache, Settling
from recmill.embeddings.store.host import HostRows
from recmill.embeddings.store.kind import StoreKind
from recmill.embeddings.store.layout import Arena
from recmill.embeddings.store.log import SegmentLog
from recmill.embeddings.store.segment import SegmentFile
from recmill.embeddings.store.stored import take_segments
from recmill.embeddings.table import TableSpec
from recmill.settings.optimizers import TableOptimizer
from recmill.settings.run import TableStore

_ASIDE_BYTES = 64 << 20  # of rows that an evaluation reads at a time
_PORTION_BYTES = 16 << 20


class TieredTables(RowEngine):
    """Embedding tables of one dimension, some of whose rows are in memory."""

    def __init__(
        self, specs: Sequence[TableSpec], dim: int, optimizer: TableOptimizer, store: TableStore, *, seed: int
    ) -> None:
        kind = StoreKind(tuple(specs), dim, optimizer, seed)
        self.log: SegmentLog | None = None
        self.host: HostRows | None = None
        if store.kind == "cached_ssd":
            self.log = SegmentLog(kind.layout, num_rows=kind.num_rows, store_key=kind.store_key)
        else:
            self.host = HostRows(kind.layout, kind.num_rows)
        backing = self.log or self.host
        assert backing is not None
        self.kind = kind
        self.cache = RowCache(kind.bounds, kind.layout, backing, kind.first_values, store.cache_memory)
        self.waited_s = 0.0  # for rows of a batch whose turn had come
        self.current: Settling | None = None  # the batch that is trained on
        no_rows = np.zeros(len(specs) + 1, np.int64)  # all tables share the cache: their slots are counted from 0
        super().__init__(specs, dim, optimizer, Storage(*self.cache.arena, no_rows, kind.bounds.first_slot))

    def compile(self) -> None:
        """Have the kernels compiled, or loaded from their cache, now rather than within the first step."""
        super().compile()
        ids = np.empty((0, self.num_slots), np.int64)
        batch = Settling(self.cache.announce(ids), ids)
        self.cache.settle(batch)
        self.cache.finished(batch.number)
        self.cache.translate(ids)

    def close(self) -> None:
        """Let go of the files."""
        self.cache.backing.close()

    def begin(self, batch: Settling) -> None:
        """The batch that is trained on next; its rows are in the cache when this returns."""
        began = time.perf_counter()
        batch.wait()
        self.waited_s += time.perf_counter() - began
        self.current = batch

    def look_up(self, ids: NDArray[np.int64]) -> Tensor:
        """The rows of ids (B, S), those of a table's slots pooled, as (B, F, D).

        The backward pass updates those of the batch that is trained on, or of a part of it. Others can be looked up to
        score them.
        """
        if self.current is not None and (first := _first_line(ids, self.current.ids)) is not None:
            return self._look_up_places(self.current.slots[first : first + len(ids)])
        self._bounds.refuse_outside(ids)
        self.cache.wait()
        slots, num_missing = self.cache.translate(ids)
        if num_missing == 0:
            return self._look_up_places(slots)
        most = max(1, _ASIDE_BYTES // (self.kind.layout.record_bytes * max(1, self.num_slots)))
        return torch.cat([self._look_up_copies(ids[first : first + most]) for first in range(0, len(ids), most)])

    def _look_up_copies(self, ids: NDArray[np.int64]) -> Tensor:
        distinct, places = np.unique(self.cache.rows_of(ids), return_inverse=True)
        places = places.reshape(ids.shape)
        if len(distinct) and distinct[0] < 0:  # there are slots without an id
            distinct, places = distinct[1:], places - 1
        aside = self.cache.read_aside(distinct)
        self.cache.keep(distinct, aside)
        out_BFD = np.empty((len(ids), len(self.specs), self.dim), np.float32)
        self._gather(places, self._storage._replace(weights=aside.weights, state=aside.state), out_BFD)
        sums_BFD = torch.from_numpy(out_BFD)
        return sums_BFD / self._count_for_means(places).unsqueeze(2) if self._is_averaged else sums_BFD

    def _apply_gradient(self, places: NDArray[np.int64], gradient_BFD: NDArray[np.float32]) -> None:
        super()._apply_gradient(places, gradient_BFD)
        self.cache.note_changes(places, self.num_updates)

    def write_into(self, directory: Path) -> None:
        """From now on rows may leave the cache for files in this directory."""
        if self.log is not None:
            self.log.write_into(directory)

    def _require_writable(self) -> None:
        """Weights that were not saved from a store need a place while they are used."""
        if self.log is not None and not self.log.can_write:
            directory = tempfile.mkdtemp(prefix="recmill-store-")
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)  # a model is never told that it ends
            self.log.write_into(Path(directory))

    def finished_files(self) -> list[SegmentFile]:
        """The files that hold all rows as they are now; none if the host's memory holds them."""
        if self.log is None:
            return []
        self.cache.flush()
        return self.log.finished_files()

    def restore_files(self, paths: Sequence[Path], digests: Mapping[str, str]) -> None:
        """Be as these files say; they are read where they lie, and linked to where rows are written."""
        assert self.log is not None
        directory = self.log.directory
        self.cache.forget()
        take_segments(self.log, self.cache.residency.where, paths, digests)
        if directory is not None:
            self.log.write_into(directory)

    def portions(self) -> Iterator[list[Piece]]:
        """All rows, some at a time; what these are filled with is what counts. Before the first step."""
        self._require_writable()
        self.cache.let_all_go()
        self.current = None
        step = max(1, _PORTION_BYTES // self.kind.layout.record_bytes)
        for table, spec in enumerate(self.specs):
            for first in range(0, spec.num_rows, step):
                rows = int(self._bounds.first_row[table]) + np.arange(first, min(first + step, spec.num_rows))
                values = self.cache.read_aside(rows)
                before = Arena(*(part.copy() for part in values))
                yield list(_pieces(spec, first, values))
                is_new = np.zeros(len(rows), np.bool_)
                for part, part_before in zip(values, before, strict=True):
                    is_new |= (part.view(np.uint32) != part_before.view(np.uint32)).any(axis=1)
                if is_new.any():
                    self._write_rows(rows[is_new], Arena(*(part[is_new] for part in values)))

    def _write_rows(self, rows: NDArray[np.int64], values: Arena) -> None:
        """Rows from elsewhere, of which it is known only that they changed no later than now."""
        steps = np.full(len(rows), self.num_updates, np.int64)
        self.cache.place_rows(rows, self.cache.backing.append(rows, steps, values, np.arange(len(rows))))

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the tables."""
        return {spec.name: (spec.num_rows, self.dim) for spec in self.specs}

    def pieces(self) -> list[Piece]:
        """All tables, each whole, if the host's memory holds them, to be read; none if files do."""
        if self.host is None:
            return []
        self.cache.flush()
        self.cache.write_first_values()
        found = list[Piece]()
        for table, spec in enumerate(self.specs):
            rows = slice(*(int(row) for row in self._bounds.first_row[table : table + 2]))
            found += _pieces(spec, 0, Arena(*(part[rows] for part in self.host.all_rows)))
        return found

    def pieces_to_save(self) -> list[Piece]:
        """The same as `pieces`: nobody else has them."""
        return self.pieces()

    def weights(self, name: str) -> NDArray[np.float32]:
        """A table's rows, (rows, D), a copy."""
        return self._rows_of(name).weights

    def state(self, name: str) -> NDArray[np.float32]:
        """What the optimizer keeps for a table's rows, (rows, state width), a copy."""
        return self._rows_of(name).state

    def _rows_of(self, name: str) -> Arena:
        table = [spec.name for spec in self.specs].index(name)
        return self.cache.read_aside(np.arange(*self._bounds.first_row[table : table + 2]))

    def log_values(self) -> dict[str, float]:
        """What the cache and the store have done since the run was started or resumed."""
        uses, traffic = self.cache.uses, self.cache.backing.traffic
        found = {
            "store_hit_rate": hit_rate(uses.distinct.sum(), uses.read.sum()),
            "store_rows_read": int(uses.read.sum()),
            "store_rows_created": int(uses.created.sum()),
            "store_bytes_read": traffic.bytes_read,
            "store_bytes_written": traffic.bytes_written,
            "store_rows_moved": traffic.records_moved,
            "store_wait_s": round(self.waited_s, 4),
        }
        if self.log is not None:
            found["store_disk_bytes"] = self.log.num_bytes
        for table, spec in enumerate(self.specs):
            found[f"store_hit_rate.{spec.name}"] = hit_rate(uses.distinct[table], uses.read[table])
        return found

    def are_finite(self) -> bool:
        """Whether every weight is a number."""
        is_used = self.cache.residency.slot_row >= 0
        return not self.cache.has_bad_numbers and bool(np.isfinite(self.cache.arena.weights[is_used]).all())


def hit_rate(num_looked_up: int, num_read: int) -> float:
    """The share of the different rows of batches that did not have to be read."""
    return round(1 - int(num_read) / max(1, int(num_looked_up)), 5)


def _pieces(spec: TableSpec, first_row: int, values: Arena) -> Iterator[Piece]:
    whats: tuple[tuple[What, NDArray[np.float32]], ...] = ("weights", values.weights), ("state", values.state)
    for what, array in whats:
        if array.size:
            shape = (spec.num_rows, array.shape[1])
            yield Piece(spec.name, what, shape, first_row, 0, torch.from_numpy(array))


def _first_line(part: NDArray[np.int64], whole: NDArray[np.int64]) -> int | None:
    """Where some lines of an array begin that share its memory; None of others."""
    if part.strides != whole.strides or part.shape[1:] != whole.shape[1:] or not whole.size:
        return None
    first, rest = divmod(part.ctypes.data - whole.ctypes.data, whole.strides[0])
    return first if rest == 0 and 0 <= first <= len(whole) - len(part) else None
