"""Settings of click data: where the files lie, which lines are for what, and how they are read."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from recmill.settings.columns import Schema, schema_from_tree
from recmill.settings.multi_hot import Distribution, MultiHot, problems_of_sizes, resolve_sizes
from recmill.settings.schemas import SCHEMAS, find_schema
from recmill.settings.tree import Settings

SplitName = Literal["train", "validation", "test"]
RowsPart = SplitName | Literal["all"]  # what may be evaluated
SPLIT_NAMES: tuple[SplitName, ...] = ("train", "validation", "test")
# Of rows that are halved, what the first half is for; it has the odd row. TorchRec validates on it, OneFlow tests.
FirstHalf = Literal["validation", "test"]
Access = Literal["mapped", "memory", "streamed"]
BadRowPolicy = Literal["fail", "skip"]
MAX_BAD_FRAC = 0.01


def resolve_verify(given: object) -> object:
    """Older settings say true or false."""
    return {True: "always", False: "never"}[given] if isinstance(given, bool) else given


# When prepared files are compared with their checksums: once on each machine and after every change, or each time.
Verify = Annotated[Literal["once", "always", "never"], BeforeValidator(resolve_verify)]
VERIFY_HELP = "When prepared files are compared with their checksums; once: again when a file has changed."


def lanes_in_use(global_batch: int, num_lanes: int) -> int:
    """How many lanes give rows to each batch: no more than it has rows, and so many that their shares are equal.

    A lane with a larger share than others is through its rows long before them. Only if equal shares would cost half
    of the lanes or more are they unequal.
    """
    most = min(num_lanes, global_batch)
    even = next(lanes for lanes in range(most, 0, -1) if global_batch % lanes == 0)
    return even if 2 * even > most else most


def resolve_schema(given: object) -> object:
    """A built-in schema stays a name; a file is read once and for all, so that a run's settings hold its content."""
    if isinstance(given, str):
        return given if given in SCHEMAS else find_schema(given)
    return schema_from_tree(given, "data.row_schema") if isinstance(given, dict) else given


class DataConfig(Settings):
    """Files, batches and the reader."""

    aliases: ClassVar[Mapping[str, str]] = {"batch_size": "global_batch"}

    dir: str = Field(default="", description="The directory of the logs or of prepared rows, or a single file.")
    row_schema: Annotated[str | Schema, BeforeValidator(resolve_schema)] = Field(
        default="criteo", description="The columns of the rows: the name of a built-in schema, or a .toml file."
    )
    train_files: tuple[str, ...] = Field(
        default=(), description="Patterns within the directory. All three empty: day_0, day_1, …, the last day halved."
    )
    validation_files: tuple[str, ...] = Field(default=(), description="Patterns within the directory.")
    test_files: tuple[str, ...] = Field(default=(), description="Patterns within the directory.")
    holdout_frac: float | None = Field(
        default=None, gt=0, lt=1, description="Share of the last lines that is held out, half for validation."
    )
    holdout_rows: int | None = Field(default=None, ge=2, description="The same as a number of lines.")
    test_after: str | None = Field(
        default=None, description="A date or time, UTC: rows from it on test, the last tenth of those before validates."
    )
    holdout_days: int | None = Field(
        default=None,
        ge=1,
        description="Rows of the last so many days, UTC, test; the last tenth of those before validates.",
    )
    split: Literal["order"] | None = Field(
        default=None, description="order: hold out the last lines even if a column of times says they are not the last."
    )
    first_half: FirstHalf = Field(
        default="validation", description="What the first half of the last day, or of the held-out lines, is for."
    )
    table_rows: tuple[int, ...] = Field(
        default=(), description="Table sizes, one per category column; empty: as the schema says."
    )
    max_rows_per_table: int | None = Field(default=None, ge=2, description="The most rows a table may have.")
    global_batch: int = Field(default=2048, ge=1, description="Rows of an optimizer step, all processes together.")
    drop_last: bool = Field(default=False, description="End a run in front of its first batch that is not full.")
    eval_batch: int = Field(default=16384, ge=1, description="Rows that are scored at once in an evaluation.")
    max_validation_batches: int = Field(default=0, ge=0, description="Batches of validation to score; 0: all.")
    max_test_batches: int = Field(default=0, ge=0, description="Batches of test to score; 0: all.")
    bad_rows: BadRowPolicy = Field(default="fail", description="What to do with a line that cannot be a row.")
    max_bad_frac: float = Field(
        default=MAX_BAD_FRAC, ge=0, le=1, description="Share of lines that may be ignored with bad_rows = skip."
    )
    num_lanes: int = Field(default=64, ge=1, le=4096, description="Parts of the log that are read side by side.")
    block_bytes: int = Field(default=256 << 10, ge=1, description="Bytes of raw text that are shuffled as one.")
    block_rows: int = Field(default=1024, ge=1, description="Rows of prepared data or Parquet shuffled as one.")
    access: Access = Field(
        default="mapped", description="Of prepared rows: through the page cache, all in memory, or read as needed."
    )
    verify: Verify = Field(default="once", description=VERIFY_HELP)
    vocabulary: str = Field(default="", description="Directory of the vocabulary that encodes raw text.")
    max_unpacked_bytes: int | None = Field(
        default=None,
        ge=1,
        description="What a packed file, or the rows of a Parquet file, may become in scratch space; no value: nine "
        "tenths of what is free.",
    )
    keep_values: int = Field(
        default=10_000, ge=0, description="Texts of each string column kept in values.parquet, to be shown; 0: none."
    )
    multi_hot: Annotated[tuple[int, ...], BeforeValidator(resolve_sizes)] = Field(
        default=(), description="Ids of each category column, all but the first drawn: mlperf, or a number for each."
    )
    multi_hot_distribution: Distribution = Field(default="uniform", description="Of the ids that are drawn.")
    prefetch_batches: int | None = Field(
        default=None,
        ge=0,
        le=1024,
        description="Batches made ahead in the background; 0: made between steps. No value: by the free cores.",
    )
    reader_threads: int | None = Field(
        default=None, ge=1, le=256, description="Threads that parse; no value: by the free cores."
    )

    def problems(self) -> Iterator[str]:
        """What does not fit the schema, and what contradicts itself."""
        yield from self._problems_of_tables()
        yield from self._problems_of_shares()
        yield from self._problems_of_times()
        if self.multi_hot:
            yield from problems_of_sizes(self.multi_hot, self.schema_of_rows)
        elif self.multi_hot_distribution != "uniform":
            yield f"data.multi_hot_distribution is {self.multi_hot_distribution} and data.multi_hot is empty"
        patterns = (self.train_files, self.validation_files, self.test_files)
        if self.has_holdout:
            if self.holdout_frac is not None and self.holdout_rows is not None:
                yield "data.holdout_frac and data.holdout_rows say the same thing twice; give one of them"
            if self.validation_files or self.test_files:
                yield (
                    "data.holdout_frac and data.holdout_rows take validation and test from the end of the other files; "
                    "leave out data.validation_files and data.test_files"
                )
        elif not self.is_by_time and any(patterns) and not all(patterns):
            yield (
                "data.train_files, data.validation_files and data.test_files are given together or not at all "
                "(without them the last day of day_0, day_1, … is halved; data.holdout_frac=0.1 keeps the last tenth)"
            )
        elif any(patterns) and self.first_half == "test":
            yield (
                'data.first_half = "test" is about rows that are halved; '
                "data.validation_files and data.test_files say already which are for what"
            )

    def _problems_of_times(self) -> Iterator[str]:
        if not self.is_by_time:
            return
        if self.test_after is not None:
            try:
                datetime.fromisoformat(self.test_after)
            except ValueError:
                example = "2024-05-31, or 2024-05-31T12:00"
                yield f"data.test_after = {self.test_after!r} is no date; give one such as {example}"
        name = "data.test_after" if self.test_after is not None else "data.holdout_days"
        others = {
            "data.holdout_days": None if self.test_after is None else self.holdout_days,
            "data.holdout_frac": self.holdout_frac,
            "data.holdout_rows": self.holdout_rows,
            "data.validation_files": self.validation_files,
            "data.test_files": self.test_files,
            "data.split": self.split,
        }
        for other in [other for other, value in others.items() if value]:
            yield f"{name} says which rows validate and test; leave out {other}, or {name}"
        if self.first_half == "test":
            yield f'data.first_half = "test" is about rows that are halved; {name} halves none; leave it out'
        if not self.schema_of_rows.of_role("time"):
            yield (
                f"{name} = {self.test_after or self.holdout_days!r} needs a column of times, and schema "
                f'{self.schema_of_rows.name} has none; give its column role = "time" and kind = "time"'
            )

    def _problems_of_shares(self) -> Iterator[str]:
        num_lanes = self.lanes_used
        if self.drop_last and self.global_batch % num_lanes:
            even = next(lanes for lanes in range(num_lanes, 0, -1) if self.global_batch % lanes == 0)
            yield (
                f"data.drop_last needs equal shares of a batch: with data.global_batch = {self.global_batch} and "
                f"{num_lanes} lanes the lanes with the larger share run dry long before the others, and the rows of "
                f"those would be dropped; set data.num_lanes={even} or another data.global_batch"
            )

    def _problems_of_tables(self) -> Iterator[str]:
        schema = self.schema_of_rows
        num_categories = len(schema.category_names)
        sizeless = [column.name for column in schema.of_role("category") if column.rows is None]
        if not self.table_rows and sizeless:
            yield (
                f"data.table_rows is empty and schema {schema.name} gives no rows for {', '.join(sizeless[:3])}"
                f"{', …' if len(sizeless) > 3 else ''}; set one of them"
            )
        if self.table_rows and len(self.table_rows) != num_categories:
            yield (
                f"data.table_rows has {len(self.table_rows)} numbers; "
                f"schema {schema.name} has {num_categories} category columns"
            )
        if min(self.table_rows, default=1) < 1:
            yield f"data.table_rows holds {min(self.table_rows)}; a table has at least one row"

    @property
    def has_holdout(self) -> bool:
        """Whether the last lines of the training files are kept for validation and test."""
        return self.holdout_frac is not None or self.holdout_rows is not None

    @property
    def is_by_time(self) -> bool:
        """Whether the rows from a moment on are the test."""
        return self.test_after is not None or self.holdout_days is not None

    @property
    def test_after_days(self) -> float | None:
        """The days since 1970 of the moment at which the test begins."""
        if self.test_after is None:
            return None
        moment = datetime.fromisoformat(self.test_after)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() / 86400

    @property
    def schema_of_rows(self) -> Schema:
        """The fields of every line."""
        return SCHEMAS[self.row_schema] if isinstance(self.row_schema, str) else self.row_schema

    @property
    def multi_hot_rule(self) -> MultiHot | None:
        """How rows of one id per column get more, if they do."""
        return MultiHot(self.multi_hot, self.multi_hot_distribution) if self.multi_hot else None

    @property
    def slots_per_column(self) -> tuple[int, ...]:
        """How many ids a row has for every category column."""
        return self.multi_hot or tuple(column.num_slots for column in self.schema_of_rows.of_role("category"))

    @property
    def lanes_used(self) -> int:
        """How many lanes give rows to each batch."""
        return lanes_in_use(self.global_batch, self.num_lanes)

    @property
    def rows_hash(self) -> str:
        """Of the columns of the rows and the sizes of their tables."""
        columns = [column.facts() for column in self.schema_of_rows.columns]
        facts = json.dumps([columns, self.num_table_rows, self.slots_per_column])
        return hashlib.sha256(facts.encode()).hexdigest()

    @property
    def num_table_rows(self) -> tuple[int, ...]:
        """The sizes of the tables, the cap applied."""
        cap = self.max_rows_per_table
        sizes = self.table_rows or tuple(column.rows or 0 for column in self.schema_of_rows.of_role("category"))
        return tuple(min(rows, cap) if cap else rows for rows in sizes)
