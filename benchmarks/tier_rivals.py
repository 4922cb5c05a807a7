"""LMDB and RocksDB in the place of our files of rows, behind the same cache and in the same trainer."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from numpy.typing import NDArray
from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch

from recmill.embeddings.store.layout import Arena, RecordLayout
from recmill.embeddings.store.log import Records, Traffic, no_wait

_MAP_BYTES = 16 << 30


class KeyedRows(ABC):
    """A store that finds a row by its number; subclasses say how. A row's place is its number."""

    place_shift = 63
    can_write = True

    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self.traffic = Traffic()
        self.live = np.zeros(1, np.int64)

    def append(
        self, rows: NDArray[np.int64], steps: NDArray[np.int64], arena: Arena, slots: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Put rows that lie in these slots."""
        del steps
        content = np.concatenate([arena.weights[slots], arena.state[slots]], axis=1)
        keys = rows.astype(">u8").tobytes()
        size = self._layout.record_bytes
        values = content.tobytes()
        self.put_all([(keys[8 * i : 8 * i + 8], values[size * i : size * i + size]) for i in range(len(rows))])
        self.traffic.bytes_written += len(values)
        return rows

    def start_fetch(self, places: NDArray[np.int64], arena: Arena, slots: NDArray[np.int64]) -> Callable[[], None]:
        """Get rows, in the order of their keys, and copy them into these slots."""
        order = np.argsort(places)
        keys = places[order].astype(">u8").tobytes()
        found = self.get_all([keys[8 * i : 8 * i + 8] for i in range(len(places))])
        values = np.frombuffer(b"".join(found), np.float32).reshape(len(places), self._layout.num_floats)
        arena.weights[slots[order]] = values[:, : self._layout.dim]
        arena.state[slots[order]] = values[:, self._layout.dim :]
        self.traffic.records_read += len(places)
        return no_wait

    @abstractmethod
    def put_all(self, items: list[tuple[bytes, bytes]]) -> None:
        """Write all of them."""

    @abstractmethod
    def get_all(self, keys: list[bytes]) -> list[bytes]:
        """The values of keys that are all there."""

    def next_to_move(self, *, all_of_them: bool = False) -> tuple[Records, NDArray[np.int64]] | None:
        """They do that by themselves."""
        del all_of_them
        return None

    def forget(self) -> None:
        """Nothing of it."""
        self.live[:] = 0

    @abstractmethod
    def forget_pages(self) -> None:
        """Have nothing of it in the system's page cache."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the files."""


class RocksRows(KeyedRows):
    """RocksDB, which reads past the page cache."""

    def __init__(self, layout: RecordLayout, directory: Path, cache_bytes: int) -> None:
        super().__init__(layout)
        options, table = Options(raw_mode=True), BlockBasedOptions()
        options.create_if_missing(True)
        options.set_use_direct_reads(True)
        options.set_use_direct_io_for_flush_and_compaction(True)
        table.set_block_cache(Cache(cache_bytes))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        options.increase_parallelism(os.cpu_count() or 2)
        self._db = Rdict(str(directory), options)

    def put_all(self, items: list[tuple[bytes, bytes]]) -> None:
        """One batch of writes."""
        batch = WriteBatch(raw_mode=True)
        for key, value in items:
            batch.put(key, value)
        self._db.write(batch)

    def get_all(self, keys: list[bytes]) -> list[bytes]:
        """One call for all."""
        found: Any = self._db.get([*keys]) if keys else []
        return list(found)

    def forget_pages(self) -> None:
        """It has none there."""

    def close(self) -> None:
        """Let go of the files."""
        self._db.close()


class LmdbRows(KeyedRows):
    """LMDB, which maps its file; its pages are thrown out between steps, as if memory were full."""

    def __init__(self, layout: RecordLayout, directory: Path, cache_bytes: int) -> None:
        super().__init__(layout)
        del cache_bytes  # it has the system's page cache alone
        self._dir = directory
        self._open()

    def _open(self) -> None:
        self._env = lmdb.open(str(self._dir), map_size=_MAP_BYTES, sync=False, readahead=False)

    def put_all(self, items: list[tuple[bytes, bytes]]) -> None:
        """One transaction, without waiting for the disk."""
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(items)

    def get_all(self, keys: list[bytes]) -> list[bytes]:
        """One transaction, in the order of the keys."""
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            return [value for _, value in cursor.getmulti(keys)]

    def forget_pages(self) -> None:
        """Unmap the file, have it on the disk, and drop its pages."""
        self._env.sync(True)
        self._env.close()
        with (self._dir / "data.mdb").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._open()

    def close(self) -> None:
        """Let go of the files."""
        self._env.close()
