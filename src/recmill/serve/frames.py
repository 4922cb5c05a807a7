"""Frames and columns of any library as a Parquet file whose types are those that the columns of a schema have."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from recmill.errors import DataError
from recmill.settings.columns import Column, Schema

_TYPES: dict[str | None, type[pl.DataType]] = {
    "int": pl.Int64,
    "float": pl.Float64,
    "hex": pl.String,
    "string": pl.String,
    "time": pl.String,
}


def write_frame(rows: Any, schema: Schema, scratch: Path) -> Path:
    """A polars or pandas frame, an Arrow table, columns by name or rows as dicts, as a Parquet file."""
    try:
        frame = _to_polars(rows)
        used = [schema.field_of(column) for column in schema.columns if column.role in ("dense", "category")]
        columns = {column.name: column for column in used}
        fitted = [_fit(frame[name], columns[name]) if name in columns else frame[name] for name in frame.columns]
        path = scratch / "rows.parquet"
        pl.DataFrame(fitted).write_parquet(path)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError, ImportError) as error:
        raise DataError(
            f"rows of type {type(rows).__name__} cannot be read as columns: {str(error).splitlines()[0]}; give a file, "
            "a polars or pandas frame, a dict of columns, or lines of text"
        ) from None
    return path


def _to_polars(rows: Any) -> pl.DataFrame:
    if isinstance(rows, pl.DataFrame):
        return rows
    if isinstance(rows, pl.LazyFrame):
        return rows.collect()
    if hasattr(rows, "to_dict") and hasattr(rows, "iloc"):  # pandas, without importing it
        return pl.from_pandas(rows)  # its NaN in texts and numbers is nothing here too
    if hasattr(rows, "column_names") and hasattr(rows, "to_pydict"):  # Arrow
        found = pl.from_arrow(rows)
        if isinstance(found, pl.DataFrame):
            return found
    if isinstance(rows, list):
        return pl.DataFrame([{**row} for row in rows], infer_schema_length=None)
    if isinstance(rows, Mapping):
        return pl.DataFrame({name: _series(name, values) for name, values in rows.items()})
    raise TypeError("it is no table")


def _series(name: str, values: Any) -> pl.Series:
    """A column; NaN among texts, as pandas has it, is nothing."""
    found = list(values) if not isinstance(values, pl.Series) else values
    if isinstance(found, list):
        found = [None if isinstance(each, float) and each != each else each for each in found]
    return pl.Series(name, found)


def _fit(values: pl.Series, column: Column) -> pl.Series:
    """The column as the type that the schema has, if that loses nothing; else as it is, to be rejected by its name."""
    wanted = _TYPES[column.kind]
    if values.dtype == pl.Null:
        return values.cast(pl.List(wanted) if column.is_several else wanted)
    if values.dtype.is_float():
        values = values.fill_nan(None)
    if isinstance(values.dtype, pl.Categorical | pl.Enum):
        values = values.cast(pl.String)
    if values.dtype == pl.String and column.kind in ("int", "float"):
        values = values.replace("", None)
    if (
        column.kind == "time"
        or values.dtype == wanted
        or column.is_several
        or (wanted == pl.String and values.dtype.is_numeric())
    ):
        return values
    cast = values.cast(wanted, strict=False)
    if cast.null_count() != values.null_count():
        return values
    has_fractions = values.dtype.is_float() and wanted == pl.Int64 and not (cast.cast(pl.Float64) == values).all()
    return values if has_fractions else cast
