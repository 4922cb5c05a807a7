"""The files that the settings name, opened: which lines are for training, validation and test."""

import shlex
from collections.abc import Sequence
from functools import partial
from math import floor, inf
from pathlib import Path

import numpy as np

from recmill.data.logs.formats import FORMATS, format_named, without_suffixes
from recmill.data.logs.raw_format import RawSource
from recmill.data.logs.split import (
    Splits,
    find_days,
    find_files,
    find_rows,
    is_pattern,
    split_at,
    split_by_day,
    split_tail,
)
from recmill.data.logs.stdin_file import refuse_lost_input
from recmill.data.logs.time_order import KeyReader, count_before, last_time
from recmill.errors import ConfigError, DataError
from recmill.files import STDIN
from recmill.settings.columns import Schema
from recmill.settings.data import DataConfig


def open_log(path: Path, schema: Schema, max_unpacked_bytes: int | None = None) -> RawSource:
    """A file of the format that the schema is for."""
    wanted, named = FORMATS[schema.format], format_named(path)
    if named not in (None, schema.format):
        raise ConfigError(
            f"{path} is {FORMATS[named].title}, and schema {schema.name} is one of {wanted.title}; "
            f"`recmill schema infer {path} --out {path.stem}.toml` writes one that fits, to be given as --schema"
        )
    return wanted.open(path, schema, max_unpacked_bytes)


def open_splits(data: DataConfig) -> Splits:
    """By day, by patterns, by the last lines or by time, as the settings say."""
    data_dir = Path(data.dir)
    refuse_lost_input(data_dir)
    open_one = partial(open_log, schema=data.schema_of_rows, max_unpacked_bytes=data.max_unpacked_bytes)
    if data.is_by_time:
        paths = training_paths(data)
        moment, told = _test_begin(data, paths)
        num_before = count_before(paths, _times_of(data), moment, _way_out(data))
        return split_at([open_one(path).whole() for path in paths], num_before, told)
    if data.has_holdout:
        if data.schema_of_rows.of_role("time") and data.split != "order":
            way_out = f'{_way_out(data)}, or set data.split = "order" to cut them as they are'
            count_before(training_paths(data), _times_of(data), 0.0, way_out)
        segments = [open_one(path).whole() for path in training_paths(data)]
        return split_tail(segments, frac=data.holdout_frac, num_rows=data.holdout_rows, first_half=data.first_half)
    if data_dir.is_file() or is_pattern(data_dir):
        told = "is a file" if data_dir.is_file() else "is a pattern of files"
        raise ConfigError(
            f"data.dir = {data.dir!r} {told}; say which share of its last lines validates and tests, "
            "e.g. --set data.holdout_frac=0.1"
        )
    if not data.train_files:
        return split_by_day(find_days(data_dir), open_one, data.first_half)
    named = {
        "data.train_files": data.train_files,
        "data.validation_files": data.validation_files,
        "data.test_files": data.test_files,
    }
    train, validation, test = (
        tuple(open_one(path).whole() for path in find_files(data_dir, patterns, setting))
        for setting, patterns in named.items()
    )
    return Splits(train, validation, test)


def paths_of(data: DataConfig) -> list[Path]:
    """All files that the settings name."""
    named = (("data.validation_files", data.validation_files), ("data.test_files", data.test_files))
    others = [path for setting, patterns in named for path in find_files(Path(data.dir), patterns, setting)]
    return [*training_paths(data), *others]


def _times_of(data: DataConfig) -> KeyReader:
    """Reads the times of lines."""
    return KeyReader(data.schema_of_rows, max_unpacked_bytes=data.max_unpacked_bytes)


def _test_begin(data: DataConfig, paths: Sequence[Path]) -> tuple[float, str]:
    """The moment at which the test begins, in days since 1970; and the setting that says so, for messages."""
    if data.test_after_days is not None:
        return data.test_after_days, f"data.test_after = {data.test_after!r}"
    assert data.holdout_days is not None
    last = last_time(paths, _times_of(data), _way_out(data))
    told = f"data.holdout_days = {data.holdout_days}"
    if last == -inf:
        name = data.schema_of_rows.of_role("time")[0].name
        raise DataError(f"{told}: no line of {paths[0]} has a {name}; does the schema fit, and its time_format?")
    begin = floor(last) + 1 - data.holdout_days  # midnight: the last day counts, however short it is
    date = np.datetime_as_string(np.datetime64(begin, "D"))
    return float(begin), f"{told} (the test begins on {date}, UTC)"


def training_paths(data: DataConfig) -> list[Path]:
    """The one file, those that a pattern matches, those named in a directory, its days, or else all of its files."""
    data_dir = Path(data.dir)
    if data.train_files and not data_dir.is_file() and not is_pattern(data_dir):
        return find_files(data_dir, data.train_files, "data.train_files")
    return find_rows(data_dir, "data.dir")


def sort_command(data: DataConfig) -> str:
    """The command that sorts the training files by their times."""
    data_dir, named = Path(data.dir), data.row_schema
    files = [str(data_dir)] if str(data_dir) != STDIN else ["-"]
    if data.train_files and data_dir.is_dir():
        files = [str(data_dir / pattern) for pattern in data.train_files]
    stem = "rows" if is_pattern(data_dir) or files == ["-"] else without_suffixes(data_dir).partition(".")[0]
    out = data_dir.parent / f"{stem}-sorted" if files != ["-"] else Path(f"{stem}-sorted")
    schema = named if isinstance(named, str) else named.origin or "SCHEMA.toml"
    return f"recmill sort {shlex.join(files)} --schema {shlex.quote(schema)} --out {shlex.quote(str(out))}"


def _way_out(data: DataConfig) -> str:
    return f"sort the files first, with `{sort_command(data)}`, and give its directory as --data"
