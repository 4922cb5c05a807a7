"""Events to plain columns, by polars: text and Parquet in, filtered rows, vocabularies and codes out."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recmill.data.events.even_lines import count_even_lines
from recmill.data.events.grouping import count_codes
from recmill.data.events.schema import BYTE_ORDER_MARK, MICROSECONDS, BadEvent, parse_lines, way_out
from recmill.data.events.times import EXAMPLE, read_iso
from recmill.data.logs.bad_rows import SHOWN
from recmill.data.logs.text_file import Segment
from recmill.errors import DataError
from recmill.settings.data import BadRowPolicy
from recmill.settings.events import EventRules, EventSchema

_TYPES: dict[str, type[pl.DataType]] = {"int": pl.Int64, "float": pl.Float64, "string": pl.String, "iso": pl.Int64}
_WRITTEN_TYPES: dict[str, type[pl.DataType]] = {**_TYPES, "iso": pl.String}
# What polars and Python read alike; other ways of writing a time are left to Python.
_PLAIN_ISO = (
    r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-][01][0-9]:[0-5][0-9])?)?$"
)
# Integers so close together are counted and coded by a table of all numbers between them: no hashing, no sorting.
_DIRECT_SPAN = 1 << 25
_GAP = "\0gap"  # between two separators in a row; no column can be called so


def roles_of(schema: EventSchema, rules: EventRules) -> tuple[str, ...]:
    """What is read of every event: its user and item, and what order and filters look at."""
    wanted = {
        "time": rules.order == "time",
        "rating": rules.min_rating is not None,
        "is_read": rules.only_read,
    }
    for role, is_wanted in wanted.items():
        if is_wanted and getattr(schema, role) is None:
            option = {"time": "--order time", "rating": "--min-rating", "is_read": "--only-read"}[role]
            raise DataError(f"{option} needs a column {role}, and schema {schema.name} has none")
    return ("user", "item", *(role for role, is_wanted in wanted.items() if is_wanted))


class BadEvents(NamedTuple):
    """How many lines or rows were ignored as bad, and the first of them for a message."""

    num_bad: int = 0
    first: tuple[str, ...] = ()


def read_text(
    segment: Segment, schema: EventSchema, roles: tuple[str, ...], bad_rows: BadRowPolicy
) -> tuple[pl.DataFrame, BadEvents]:
    """The events of some lines, one column for each role, and the lines that were ignored as bad."""
    text = segment.source.buffer[segment.start : segment.stop].tobytes()
    frame = _read_plain(text, schema, roles)
    if frame is not None:
        return frame, BadEvents()
    first_line = segment.source.line_number(segment.start)
    values, bad = parse_lines(text, first_line, schema, roles, until_bad=bad_rows == "fail")
    if bad and bad_rows == "fail":
        raise bad[0].complain(segment.source.path)
    first = tuple(each.describe(segment.source.path) for each in bad[:SHOWN])
    frame = pl.DataFrame(values, schema={role: _TYPES[schema.kind_of(role)] for role in roles})
    return frame, BadEvents(len(bad), first)


def _read_plain(text: bytes, schema: EventSchema, roles: tuple[str, ...]) -> pl.DataFrame | None:
    """The events, or None if any line is out of the ordinary."""
    if schema.quoted and b'"' in text:
        return None
    if text.startswith(BYTE_ORDER_MARK):
        return None  # that of the file has been passed; polars would take off one more
    if b"\r" in text and text.count(b"\r") != text.count(b"\r\n"):
        return None  # polars would take it off the end of any field
    gaps = [f"{_GAP}{i}" for i in range(len(schema.columns) - 1)] if len(schema.separator) == 2 else []
    names = (
        [name for pair in zip(schema.columns, [*gaps, None], strict=True) for name in pair if name]
        if gaps
        else list(schema.columns)
    )
    columns = {getattr(schema, role): schema.kind_of(role) for role in roles}
    looked_at = [*columns, *gaps]
    try:
        frame = pl.read_csv(
            io.BytesIO(text),
            has_header=False,
            separator=schema.separator[0],
            quote_char=None,
            schema={name: _WRITTEN_TYPES[columns.get(name, "string")] for name in names},
            columns=sorted(names.index(name) for name in looked_at),
        )
    except pl.exceptions.PolarsError:
        return None
    nulls = frame.null_count().row(0, named=True)
    # polars fills up where fields are missing, and does not mind an empty one too many at the end of a line
    even_lines = count_even_lines(np.frombuffer(text, np.uint8), ord(schema.separator[0]), len(names) - 1)
    if even_lines != frame.height or any(nulls[name] for name in columns):
        return None
    if any(nulls[name] != frame.height for name in gaps):
        return None
    frame = frame.select(pl.col(getattr(schema, role)).alias(role) for role in roles)
    if "is_read" in roles and not frame["is_read"].is_between(0, 1).all():
        return None
    if "time" in roles and schema.time_kind == "iso":
        frame = frame.with_columns(_read_plain_times(frame["time"]))
        if frame["time"].has_nulls():
            return None
    numbers = [role for role in roles if schema.kind_of(role) == "float"]
    are_sane = [bool((frame[role].abs() < 2**43).all()) for role in numbers]
    return frame if all(are_sane) else None


def _read_plain_times(texts: pl.Series) -> pl.Series:
    """Microseconds since 1970 of ISO times that are all written alike; null for those that are not."""
    text = pl.col(texts.name)
    known = texts.to_frame().select(pl.when(text.str.contains(_PLAIN_ISO)).then(text))[texts.name]
    if known.null_count() == len(known):
        return known.cast(pl.Int64)
    if len(known.drop_nulls()[0]) == len("2024-05-31"):
        return known.str.to_datetime("%Y-%m-%d", strict=False, time_unit="us").dt.epoch("us")
    known = known.str.replace(" ", "T", literal=True).str.replace("Z", "+00:00", literal=True)
    zone = "%:z" if known.str.contains(r"[+-][0-9:]{5}$").any() else ""
    return known.str.to_datetime(f"%Y-%m-%dT%H:%M:%S%.f{zone}", strict=False, time_unit="us").dt.epoch("us")


class RowRange(NamedTuple):
    """Some rows of a Parquet file."""

    path: Path
    start: int
    stop: int


def read_parquet(
    rows: RowRange, schema: EventSchema, roles: tuple[str, ...], bad_rows: BadRowPolicy
) -> tuple[pl.DataFrame, BadEvents]:
    """The events of some rows, one column for each role, and the rows that were ignored as bad."""
    columns = [pl.col(getattr(schema, role)).alias(role) for role in roles]
    try:
        frame = pl.scan_parquet(rows.path).select(columns).slice(rows.start, rows.stop - rows.start).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        complaint = str(error).splitlines()[0]
        raise DataError(f"{rows.path} cannot be read as schema {schema.name} says: {complaint}") from None
    read, is_good, first = list[pl.Series](), pl.repeat(True, frame.height, eager=True), list[str]()
    for role in roles:
        values, whys = _as_text_would_be(frame[role], role, schema, rows.path)
        for why, is_bad in whys.items():
            if is_bad.any():
                at = int(is_bad.arg_true()[0])
                column, value = getattr(schema, role), frame[role][at]
                told = f" has no {column}" if value is None else f": {column} is {value!r}, {why}"
                bad = BadEvent(rows.start + at + 1, told)
                if bad_rows == "fail":
                    raise bad.complain(rows.path, ": row ")
                first.append(bad.describe(rows.path, ": row "))
            is_good &= ~is_bad
        read.append(values)
    kept = pl.DataFrame(read).filter(is_good)
    return kept, BadEvents(frame.height - kept.height, tuple(first[:SHOWN]))


def _as_text_would_be(
    values: pl.Series, role: str, schema: EventSchema, path: Path
) -> tuple[pl.Series, dict[str, pl.Series]]:
    """A column of a Parquet file as its kind, and by reason which of its values no event may have."""
    kind, bad = schema.kind_of(role), {"and every event needs one": values.is_null()}
    if role == "time" and isinstance(values.dtype, pl.Datetime):
        return values.dt.epoch("us"), bad
    if kind == "iso":
        if values.dtype != pl.String:
            raise DataError(f"{path}: column {schema.time} is of type {values.dtype}, and time_kind is iso: texts")
        read = _read_times(values)
        return read, {**bad, f"which is no ISO 8601 time as {EXAMPLE}": values.is_not_null() & read.is_null()}
    try:
        read = values.cast(_TYPES[kind], strict=False)
    except pl.exceptions.PolarsError:
        column = getattr(schema, role)
        raise DataError(f"{path}: column {column} is of type {values.dtype}, which is no {kind}") from None
    bad[f"which is no {kind}"] = read.is_null()
    if kind == "int" and values.dtype.is_numeric():
        bad[f"which is no integer{way_out(role, '0.5')}"] = read.cast(values.dtype, strict=False) != values
    if kind == "float":
        bad["which is too large or no number"] = ~(read.abs() < 2**43)
    if role == "is_read":
        bad["and not 0 or 1"] = ~read.is_between(0, 1)
    if kind == "string":
        bad["which is no name"] = read == ""
    return read, {why: is_bad.fill_null(False) for why, is_bad in bad.items()}


def _read_times(texts: pl.Series) -> pl.Series:
    """Microseconds since 1970 of any ISO times; null for other texts."""
    read = _read_plain_times(texts)
    is_left = read.is_null() & texts.is_not_null()
    if not is_left.any():
        return read
    others = [None if text is None else read_iso(text) for text in texts]
    return pl.Series(texts.name, others, pl.Int64)


def first_texts(path: Path, column: str, num_rows: int = 20) -> list[str]:
    """What the first rows of a Parquet file have in a column of texts; nothing if it has none such."""
    try:
        values = pl.scan_parquet(path).select(column).head(num_rows).collect()[column]
    except (pl.exceptions.PolarsError, OSError):  # whoever reads the rows says what is wrong
        return []
    return values.drop_nulls().to_list() if values.dtype == pl.String else []


def parquet_rows(path: Path) -> int:
    """How many rows a Parquet file has."""
    try:
        return int(pl.scan_parquet(path).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}") from None


def write_part(frame: pl.DataFrame, rules: EventRules, path: Path) -> int:
    """Keep the rows that the filters let through; how many."""
    if rules.only_read:
        frame = frame.filter(pl.col("is_read") == 1)
    if rules.min_rating is not None:
        frame = frame.filter(pl.col("rating") >= rules.min_rating)
    if "time" in frame.columns and frame["time"].dtype == pl.Float64:
        frame = frame.with_columns((pl.col("time") * MICROSECONDS).round().cast(pl.Int64))
    frame.select("user", "item", *(["time"] if "time" in frame.columns else [])).write_ipc(
        path, compression="uncompressed"
    )
    return frame.height


def count_values(paths: Sequence[Path], column: str) -> pl.DataFrame:
    """The distinct values of a column in their natural order, with how often each occurs."""
    bounds = pl.scan_ipc(list(paths)).select(low=pl.col(column).min(), high=pl.col(column).max()).collect()
    low, high = bounds.row(0)
    if bounds.schema["low"] == pl.Int64 and high - low < _DIRECT_SPAN:
        totals = np.zeros(high - low + 1, np.int64)
        for path in paths:
            count_codes(pl.read_ipc(path, columns=[column])[column].to_numpy(), low, totals)
        places = np.flatnonzero(totals)
        return pl.DataFrame({column: places + low, "count": totals[places]})
    counted = pl.scan_ipc(list(paths)).group_by(column).agg(pl.len().alias("count"))
    return counted.collect(engine="streaming").sort(column)


class Coder:
    """Gives each value its place among the sorted distinct ones."""

    def __init__(self, values: pl.Series) -> None:
        self._name = values.name
        self._direct: NDArray[np.int32] | None = None
        self._codes = values.to_frame().with_row_index("code")
        if values.dtype == pl.Int64 and len(values):
            first, span = int(values[0]), int(values[-1]) - int(values[0]) + 1
            if span <= _DIRECT_SPAN:
                self._first, self._direct = first, np.zeros(span, np.int32)
                self._direct[values.to_numpy() - first] = np.arange(len(values), dtype=np.int32)

    def encode(self, values: pl.Series) -> NDArray[np.int32]:
        """The places of some values."""
        if self._direct is not None:
            codes: NDArray[np.int32] = self._direct[values.to_numpy() - self._first]
            return codes
        joined = values.to_frame(self._name).join(self._codes, on=self._name, how="left", maintain_order="left")
        return joined["code"].to_numpy().astype(np.int32)


def read_part(path: Path) -> pl.DataFrame:
    """The kept events of a part."""
    return pl.read_ipc(path)


def chosen_values(values: pl.Series, chosen: NDArray[np.int64]) -> Any:
    """Some of the values, in their order, as an Arrow array."""
    return values.gather(chosen).to_arrow()
