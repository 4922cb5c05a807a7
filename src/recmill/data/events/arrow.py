"""Sequences as Arrow files, mapped into memory as they are: one of users with their events, one of items."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recmill.data.events.grouping import Places
from recmill.data.events.schema import read_int
from recmill.data.events.windows import Sequences, problems_of
from recmill.errors import DataError
from recmill.files import finished_file
from recmill.regular import require_regular
from recmill.settings.data import Verify
from recmill.verified import PREPARE_ANEW, check_once

# Of users: ids (U, K), 0 where there is no item left, and their scores.
Lists = tuple[NDArray[np.int64], NDArray[np.float32]]
SEQUENCES = "sequences.arrow"
ITEMS = "items.arrow"


def write_sequences(
    directory: Path, users: Any, offsets: NDArray[np.int64], events: NDArray[np.int32], places: Places
) -> None:
    """Users (an Arrow array) with their events and what those are for; nothing of it is copied."""
    columns = {
        "user": users,
        "events": pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(events)),
        **{name: pa.array(values) for name, values in places._asdict().items()},
    }
    _write(directory / SEQUENCES, columns)


def write_items(directory: Path, items: Any, counts: NDArray[np.int64]) -> None:
    """Items (an Arrow array) 1, 2, … and how often each occurs in training events."""
    _write(directory / ITEMS, {"item": items, "count": pa.array(counts)})


def _write(path: Path, columns: dict[str, Any]) -> None:
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def _open(path: Path, columns: dict[str, Any]) -> Any:
    """The only batch of a file, which has columns of these kinds and no nulls."""
    require_regular(path, PREPARE_ANEW)
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        if file.num_record_batches != 1 or file.schema.names != list(columns):
            raise ValueError("it has other columns or parts")
        batch = file.get_batch(0)
        batch.validate()
        for name, is_kind in columns.items():
            if not is_kind(batch.column(name).type) or batch.column(name).null_count:
                raise ValueError(f"{name} is {batch.column(name).type}, or has no value somewhere")
    except (pa.ArrowException, OSError, ValueError, TypeError, IndexError, KeyError, MemoryError) as error:
        told = str(error).strip().partition("\n")[0]
        raise DataError(f"{path} is damaged: {told}; {PREPARE_ANEW}") from None
    return batch


def _is_name(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


class Catalogue:
    """The users and items of a prepared directory by the names they had in the files."""

    def __init__(self, users: Any, items: Any) -> None:
        self._users, self._items = users, items

    @property
    def items_hash(self) -> str:
        """Of all items in the order of their ids."""
        digest = hashlib.sha256(str(self._items.type).encode())
        for buffer in self._items.buffers():
            digest.update(buffer or b"")
        return digest.hexdigest()

    def find_user(self, name: str) -> int | None:
        """The number of a user."""
        wanted = _as_value(name, self._users.type)
        place = -1 if wanted is None else pc.index(self._users, pa.scalar(wanted, self._users.type)).as_py()
        return None if place < 0 else int(place)

    def find_items(self, names: Sequence[str]) -> NDArray[np.int64]:
        """The ids of some items; 0 for those that no training event has."""
        wanted = pa.array([_as_value(name, self._items.type) for name in names], self._items.type)
        places = pc.index_in(wanted, value_set=self._items, skip_nulls=True)
        found: NDArray[np.int64] = places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        return found

    def user_names(self) -> list[int | str]:
        """What the files call the users."""
        names: list[int | str] = self._users.to_pylist()
        return names

    def item_names(self, ids: Sequence[int]) -> list[int | str]:
        """What the files call some items."""
        names: list[int | str] = self._items.take(pa.array([i - 1 for i in ids], pa.int64())).to_pylist()
        return names

    def write_items_of_ids(self, path: Path) -> int:
        """Write a Parquet file of ids, from 1 on, and the items they stand for; how many."""
        ids = pa.array(np.arange(1, len(self._items) + 1))
        with finished_file(path) as scratch:
            pq.write_table(pa.table({"id": ids, "item": self._items}), scratch, compression="zstd")
        return len(self._items)

    def lists_schema(self, *, are_new: bool = False, has_titles: bool = False) -> Any:
        """Of a table with a row for each user and place: user, rank, item, score, source (model or popularity).

        With titles they are the last column.
        """
        user_type = pa.string() if are_new else self._users.type
        fields = [("user", user_type), ("rank", pa.int32()), ("item", self._items.type), ("score", pa.float32())]
        return pa.schema([*fields, ("source", pa.string()), *([("title", pa.string())] if has_titles else [])])

    def lists_table(self, users: NDArray[np.int64] | list[str], lists: Lists, is_popular: NDArray[np.bool_]) -> Any:
        """The lists of some users as such a table: numbers of known users, or names of new ones.

        Places without an item are left out.
        """
        lists_UK, scores_UK = lists
        are_new, is_item = isinstance(users, list), lists_UK.ravel() > 0
        names = pa.array(users, pa.string()) if are_new else self._users.take(pa.array(users))
        ranks = np.tile(np.arange(1, lists_UK.shape[1] + 1, dtype=np.int32), len(users))
        columns = [
            names.take(pa.array(np.repeat(np.arange(len(users)), lists_UK.shape[1])[is_item])),
            pa.array(ranks[is_item]),
            self._items.take(pa.array(lists_UK.ravel()[is_item] - 1)),
            pa.array(scores_UK.ravel()[is_item]),
            pa.array(np.repeat(np.where(is_popular, "popularity", "model"), lists_UK.shape[1])[is_item]),
        ]
        return pa.table(columns, schema=self.lists_schema(are_new=are_new))


def add_titles(lists: Any, titles: Mapping[str, str]) -> Any:
    """A table of lists with the titles of its items; null where an item has none."""
    found = [titles.get(str(item)) for item in lists.column("item").to_pylist()]
    return lists.append_column("title", pa.array(found, pa.string()))


def _as_value(name: str, kind: Any) -> int | str | None:
    """A name as the values of a column are, None if it cannot be one of them."""
    return read_int(name) if pa.types.is_integer(kind) else name


def open_sequences(directory: Path, verify: Verify = "once") -> tuple[Sequences, NDArray[np.int64], Catalogue]:
    """The sequences, mapped; how often each item occurs in training events; and the names."""
    paths = (directory / SEQUENCES, directory / ITEMS)
    lists_type, place_type = pa.large_list(pa.int32()), pa.int32()
    places = dict.fromkeys(Places._fields, place_type.equals)
    users = _open(paths[0], {"user": _is_name, "events": lists_type.equals, **places})
    items = _open(paths[1], {"item": _is_name, "count": pa.int64().equals})
    lists = users.column("events")
    train_lengths, validation_at, test_at = (users.column(name).to_numpy() for name in Places._fields)
    sequences = Sequences(
        lists.values.to_numpy(), lists.offsets.to_numpy(), train_lengths, validation_at, test_at, items.num_rows
    )
    counts = items.column("count").to_numpy()

    def check_users() -> None:
        _refuse_invalid(paths[0], users)
        if complaint := next(problems_of(sequences), None):
            raise DataError(f"{paths[0]} is damaged: {complaint}; {PREPARE_ANEW}")

    def check_items() -> None:
        _refuse_invalid(paths[1], items)
        if len(counts) and counts.min() < 0:
            raise DataError(f"{paths[1]} is damaged: an item occurs {counts.min()} times; {PREPARE_ANEW}")

    # kernels index by what the files say; a look at all of it, once
    known_for = {paths[0]: f"sequences of {items.num_rows}", paths[1]: "items"}
    check_once(
        directory,
        dict(zip(paths, (check_users, check_items), strict=True)),
        known_for,
        is_remembered=verify != "always",
    )
    return sequences, counts, Catalogue(users.column("user"), items.column("item"))


def _refuse_invalid(path: Path, batch: Any) -> None:
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        told = str(error).strip().partition("\n")[0]
        raise DataError(f"{path} is damaged: {told}; {PREPARE_ANEW}") from None
