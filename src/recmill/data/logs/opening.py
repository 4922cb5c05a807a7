"""The files that the settings name, opened: which lines are for training, validation and test."""

from functools import partial
from pathlib import Path

from recmill.data.logs.formats import FORMATS, format_named
from recmill.data.logs.raw_format import RawSource
from recmill.data.logs.split import (
    Splits,
    find_all,
    find_days,
    find_files,
    has_days,
    is_pattern,
    match_pattern,
    split_at,
    split_by_day,
    split_tail,
)
from recmill.data.logs.stdin_file import refuse_lost_input
from recmill.data.logs.time_order import count_before
from recmill.errors import ConfigError
from recmill.settings.columns import Schema
from recmill.settings.data import DataConfig


def open_log(path: Path, schema: Schema) -> RawSource:
    """A file of the format that the schema is for."""
    wanted, named = FORMATS[schema.format], format_named(path)
    if named not in (None, schema.format):
        raise ConfigError(
            f"{path} is {FORMATS[named].title}, and schema {schema.name} is one of {wanted.title}; "
            f"`recmill schema infer {path} --out {path.stem}.toml` writes one that fits, to be given as --schema"
        )
    return wanted.open(path, schema)


def open_splits(data: DataConfig) -> Splits:
    """By day, by patterns, by the last lines or by time, as the settings say."""
    data_dir = Path(data.dir)
    refuse_lost_input(data_dir)
    open_one = partial(open_log, schema=data.schema_of_rows)
    if data.test_after_days is not None:
        paths = training_paths(data)
        num_before = count_before(paths, data.schema_of_rows, data.test_after_days, "")
        return split_at([open_one(path).whole() for path in paths], num_before, str(data.test_after))
    if data.has_holdout:
        if data.schema_of_rows.of_role("time") and data.split != "order":
            way_out = ', or set data.split = "order" to cut them as they are'
            count_before(training_paths(data), data.schema_of_rows, 0.0, way_out)
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


def training_paths(data: DataConfig) -> list[Path]:
    """The one file, those that a pattern matches, those named in a directory, its days, or else all of its files."""
    data_dir = Path(data.dir)
    if data_dir.is_file():
        return [data_dir]
    if is_pattern(data_dir):
        return match_pattern(data_dir, "data.dir")
    if data.train_files:
        return find_files(data_dir, data.train_files, "data.train_files")
    return find_days(data_dir) if has_days(data_dir) or not data_dir.is_dir() else find_all(data_dir)
