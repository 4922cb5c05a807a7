"""Raw Parquet rows that others wrote, the door to pyarrow for them: columns checked for their types, as plain arrays.

The columns that a schema names are found by their names and checked when a file is opened.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recmill.data.text.cells import TAKEN, Cells, Lists, Moments, Numbers, Texts, padded
from recmill.errors import DataError
from recmill.settings.columns import ROLE_KINDS, Column, Schema

# What a type of Parquet is read as.
READ_AS = {
    "int": (pa.types.is_integer, pa.types.is_boolean),
    "float": (pa.types.is_floating,),
    "time": (pa.types.is_timestamp, pa.types.is_date),
    "string": (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    ),
}
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # of timestamps, in a second

# What pyarrow raises about a file that is no Parquet, or is damaged: names of columns need not be UTF-8.
UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)


def open_file(path: Path, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """A file to be read by one thread; what is known of it need not be read again."""
    try:
        return pq.ParquetFile(path, metadata=metadata, memory_map=True)
    except FileNotFoundError:
        raise DataError(f"{path} cannot be read: No such file or directory") from None
    except UNREADABLE as error:
        raise DataError(
            f"{path} is not a complete Parquet file: {_first_line(error)}; was it cut short, or is it another format?"
        ) from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


class CellType(NamedTuple):
    """What a column is read as, None if it cannot be; and whether it is one of lists."""

    read_as: str | None
    is_list: bool


def cell_type(arrow_type: pa.DataType) -> CellType:
    """What the type of a column means here."""
    if pa.types.is_dictionary(arrow_type):
        return cell_type(arrow_type.value_type)
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type):
        inner = cell_type(arrow_type.value_type)
        return CellType(None if inner.is_list or inner.read_as in ("float", "time") else inner.read_as, True)
    return CellType(next((name for name, tests in READ_AS.items() if any(t(arrow_type) for t in tests)), None), False)


def _way_out(found: CellType, column: Column) -> str | None:
    """What to change so that a column can be read; None if it can."""
    if found.read_as is None:
        return 'cast it to a number, a string or a list of either when the file is written, or set role = "ignored"'
    if found.is_list and column.role != "category":
        return 'a list can only be a category; write one number for each row, or set role = "ignored"'
    if found.is_list and not column.is_several:
        return "give max_values, how many values of a list are used"
    if found.is_list and column.inner_separator is not None:
        return "leave out inner_separator, which a list does not need"
    if not found.is_list and column.is_several and (column.inner_separator is None or found.read_as != "string"):
        return "leave out max_values and inner_separator, or give the inner_separator of a string"
    if column.time_format == "iso" and found.read_as in ("int", "float"):
        return "set time_format to how these numbers are times: epoch_s, epoch_ms, YYMMDDHH or YYYYMMDD"
    if found.read_as in TAKEN[column.role, str(column.kind)]:
        return None
    if found.read_as == "time":
        return 'set role = "time" and kind = "time", with columns that are parts of it, or set role = "ignored"'
    kinds = [kind for role, kind in ROLE_KINDS if role == column.role and found.read_as in TAKEN[role, str(kind)]]
    if kinds:
        return f'set kind = "{kinds[0]}"' + (", and what is positive" if column.role == "label" else "")
    return 'cast it when the file is written, or set role = "ignored"'


def is_read(column: Column) -> bool:
    """Whether a column is for anything."""
    return column.role != "ignored"


class ParquetLog:
    """A file of one's own columns, those of a schema found by their names; may be shared by threads."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.path = path
        file = open_file(path)
        self._metadata = file.metadata
        used = {schema.field_of(column).name: schema.field_of(column) for column in schema.columns if is_read(column)}
        self._names = list(used)
        for column in used.values():
            self._refuse_other_type(file.schema_arrow, column, schema)
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        self._starts = np.cumsum([0, *groups])
        self.num_rows, self.num_groups = int(self._starts[-1]), len(groups)
        file.close()

    def _refuse_other_type(self, found: pa.Schema, column: Column, schema: Schema) -> None:
        places = found.get_all_field_indices(column.name)
        if len(places) != 1:
            near = get_close_matches(column.name, found.names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"its columns are {', '.join(found.names)}"
            told = "no column" if not places else f"{len(places)} columns"
            raise DataError(f"{self.path} has {told} {column.name!r}, which schema {schema.name} reads; {hint}")
        arrow_type = found.field(places[0]).type
        if way_out := _way_out(cell_type(arrow_type), column):
            wanted = f"a {column.role} column of kind {column.kind}"
            raise DataError(
                f"{self.path}: column {column.name} is of type {arrow_type}, which schema {schema.name} cannot read as "
                f"{wanted}; {way_out}"
            )

    def first_row(self, group: int) -> int:
        """Where a group begins."""
        return int(self._starts[group])

    def groups_of(self, start: int, stop: int) -> range:
        """The groups in which rows lie."""
        if start >= stop:
            return range(0)
        first = int(np.searchsorted(self._starts, start, "right")) - 1
        return range(first, int(np.searchsorted(self._starts, stop, "left")))

    def read_group(self, group: int, max_rows: int) -> Iterator[tuple[int, dict[str, Cells]]]:
        """The rows of a group in their order, some at a time: their number, and their columns."""
        file = open_file(self.path, self._metadata)
        try:
            for batch in file.iter_batches(max_rows, row_groups=[group], columns=self._names, use_threads=False):
                yield batch.num_rows, {name: cells_of(batch.column(name)) for name in self._names}
        except UNREADABLE as error:
            raise DataError(
                f"{self.path} is damaged in its row group {group + 1} of {self.num_groups}: {_first_line(error)}; "
                "write the file anew"
            ) from None
        finally:
            file.close()

    def read_cells(self, rows: Sequence[int], name: str) -> list[Any]:
        """The values of a column in one or more ascending rows, as Python has them; a group is read once."""
        values, file = list[Any](), open_file(self.path, self._metadata)
        for group in self.groups_of(rows[0], rows[-1] + 1):
            first, end = self.first_row(group), self.first_row(group + 1)
            here = [row - first for row in rows if first <= row < end]
            if here:
                values += plain_values(file.read_row_group(group, columns=[name]).column(name).take(here))
        file.close()
        return values


def cells_of(array: pa.Array) -> Cells:
    """The values of a column as plain arrays."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    found = cell_type(array.type)
    if found.is_list:
        array = array.cast(pa.large_list(array.type.value_type))
        offsets = np.array(array.offsets)
        items = cells_of(array.values)
        assert isinstance(items, Numbers | Texts)
        return Lists(offsets[:-1], offsets[1:], is_null, items)
    if found.read_as == "time":
        return Moments(_seconds(array), is_null)
    if found.read_as == "string":
        return _texts_of(array.cast(pa.large_binary()), is_null)
    if found.read_as == "float":
        array = array.cast(pa.float64())
    elif not pa.types.is_uint64(array.type):
        array = array.cast(pa.int64())
    return Numbers(np.array(array.fill_null(0)), is_null)


def _seconds(array: pa.Array) -> Any:
    """The whole seconds since 1970 of dates and timestamps, 0 for null."""
    if pa.types.is_date32(array.type):
        return np.array(array.cast(pa.int32()).fill_null(0)).astype(np.int64) * 86400
    unit = "ms" if pa.types.is_date64(array.type) else array.type.unit
    return np.array(array.cast(pa.int64()).fill_null(0)) // _UNITS[unit]


def plain_values(array: pa.ChunkedArray) -> list[Any]:
    """Values as Python has them; of times, which it does not always have, their text in whole seconds."""
    if cell_type(array.type) != CellType("time", False):
        values: list[Any] = array.to_pylist()
        return values
    is_date, found = pa.types.is_date(array.type), list[Any]()
    for chunk in array.chunks:
        chunk = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
        texts = np.datetime_as_string(_seconds(chunk).astype("datetime64[s]"), unit="D" if is_date else "s").tolist()
        found += [
            text if is_valid else None for text, is_valid in zip(texts, chunk.is_valid().to_pylist(), strict=True)
        ]
    return found


def _texts_of(array: pa.LargeBinaryArray, is_null: Any) -> Texts:
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return padded(np.frombuffer(data or b"", np.uint8), places if len(array) else np.zeros(1, np.int64), is_null)


class Sample(NamedTuple):
    """The first values of a column, and its type."""

    type_name: str
    type: CellType
    values: list[Any]


def read_sample(path: Path, num_rows: int) -> dict[str, Sample]:
    """The first rows of a file, column by column."""
    file = open_file(path)
    schema, pieces, room = file.schema_arrow, list[pa.RecordBatch](), num_rows
    try:
        for batch in file.iter_batches(min(num_rows, 1 << 12), use_threads=False):
            pieces.append(batch.slice(0, room))
            room -= pieces[-1].num_rows
            if room == 0:
                break
    except UNREADABLE as error:
        raise DataError(f"{path} is damaged: {_first_line(error)}; write the file anew") from None
    table = pa.Table.from_batches(pieces, schema)
    file.close()
    return {
        field.name: Sample(str(field.type), cell_type(field.type), plain_values(table.column(i)))
        for i, field in enumerate(schema)
    }


def parquet_names(path: Path) -> list[str]:
    """The names of the columns of a file."""
    names: list[str] = open_file(path).schema_arrow.names
    return names


def parquet_lists(path: Path) -> set[str]:
    """The columns of a file that hold lists."""
    return {field.name for field in open_file(path).schema_arrow if cell_type(field.type).is_list}


def read_columns(path: Path, names: Sequence[str], start: int, stop: int) -> list[pa.Array]:
    """Some columns of neighbouring rows, as they are in the file; row groups that do not hold them are not read."""
    file, first, groups = open_file(path), 0, list[int]()
    for group in range(file.num_row_groups):
        num_rows = file.metadata.row_group(group).num_rows
        if first + num_rows <= start:
            first += num_rows
        elif not groups or sum(file.metadata.row_group(g).num_rows for g in groups) + first < stop:
            groups.append(group)
    table = file.read_row_groups(groups, columns=list(names)).slice(start - first, stop - start)
    return [table.column(name).combine_chunks() for name in names]


def read_texts(path: Path, names: Sequence[str], start: int, stop: int, max_rows: int) -> Iterator[list[list[Any]]]:
    """Columns of texts, or of lists of them, of neighbouring rows, some at a time: the bytes of each row, or a list."""
    file, first = open_file(path), 0
    try:
        for group in range(file.num_row_groups):
            num_rows = file.metadata.row_group(group).num_rows
            if first < stop and first + num_rows > start:
                at = first
                for batch in file.iter_batches(max_rows, row_groups=[group], columns=list(names), use_threads=False):
                    begin, end = max(start - at, 0), min(stop - at, batch.num_rows)
                    at += batch.num_rows
                    if begin < end:
                        part = batch.slice(begin, end - begin)
                        yield [_plain_texts(cells_of(part.column(name))) for name in names]
                    if at >= stop:
                        break
            first += num_rows
    except UNREADABLE as error:
        raise DataError(f"{path} is damaged: {_first_line(error)}; write the file anew") from None
    finally:
        file.close()


def _plain_texts(cells: Cells) -> list[Any]:
    """The bytes of each text, or a list of them; None for null, and where there are no texts."""
    if isinstance(cells, Lists):
        items = _plain_texts(cells.items)
        return [items[begin:end] for begin, end in zip(cells.begins.tolist(), cells.ends.tolist(), strict=True)]
    if not isinstance(cells, Texts):
        return [None] * len(cells.is_null)
    data, places = cells.data.tobytes(), zip(cells.begins.tolist(), cells.ends.tolist(), strict=True)
    return [None if null else data[a:b] for (a, b), null in zip(places, cells.is_null.tolist(), strict=True)]
