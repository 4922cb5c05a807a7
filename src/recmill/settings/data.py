"""Settings of the data: where the files lie, which lines are for what, and how they are read."""

import hashlib
import json
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from recmill.data.batch import lanes_in_use
from recmill.data.logs.split import FirstHalf
from recmill.data.prepared.npy import Access
from recmill.data.stream.multi_hot import Distribution, MultiHot, refuse_sizes, resolve_sizes
from recmill.errors import ConfigError
from recmill.settings.columns import Schema, schema_from_tree
from recmill.settings.schemas import SCHEMAS, find_schema
from recmill.settings.tree import Settings


def resolve_schema(given: object) -> object:
    """A shipped schema stays a name; a file is read once and for all, so that a run's own settings hold its content."""
    if isinstance(given, str):
        return given if given in SCHEMAS else find_schema(given)
    return schema_from_tree(given, "data.row_schema") if isinstance(given, dict) else given


class DataConfig(Settings):
    """Files, batches and the reader."""

    dir: str = ""  # or a single file
    row_schema: Annotated[str | Schema, BeforeValidator(resolve_schema)] = "criteo"  # a name, or a .toml file
    # Patterns within the directory. All empty: day_0, day_1, …; the last day's halves are for validation and test.
    train_files: tuple[str, ...] = ()
    validation_files: tuple[str, ...] = ()
    test_files: tuple[str, ...] = ()
    # Of all files in their order, the last lines, as a share or as a number: half for validation, half for test.
    holdout_frac: float | None = Field(default=None, gt=0, lt=1)
    holdout_rows: int | None = Field(default=None, ge=2)
    first_half: FirstHalf = "validation"  # what the first half of the last day, or of the last lines, is for
    table_rows: tuple[int, ...] = ()  # one number per category column; empty: as the schema says
    max_rows_per_table: int | None = Field(default=None, ge=2)
    global_batch: int = Field(default=2048, ge=1)
    drop_last: bool = False  # a run ends in front of its first batch that is not full
    eval_batch: int = Field(default=16384, ge=1)
    max_validation_batches: int = Field(default=0, ge=0)  # how many of eval_batch rows are judged; 0 = all
    max_test_batches: int = Field(default=0, ge=0)
    bad_rows: Literal["fail", "skip"] = "fail"
    num_lanes: int = Field(default=64, ge=1, le=4096)
    block_bytes: int = Field(default=256 << 10, ge=1)  # of raw text, shuffled as one
    block_rows: int = Field(default=1024, ge=1)  # of prepared rows and of Parquet, likewise
    access: Access = "mapped"  # of prepared rows: through the page cache, all in memory, or read as needed
    verify: bool = False  # compare prepared files with their checksums before training
    vocabulary: str = ""  # the directory of the vocabulary with which raw text is encoded
    # ids of each category column, all but the first drawn as MLPerf does: "mlperf", or a number for each column
    multi_hot: Annotated[tuple[int, ...], BeforeValidator(resolve_sizes)] = ()
    multi_hot_distribution: Distribution = "uniform"
    # Batches that may lie ready, made in the background; 0: blocks are parsed when wanted, between two steps. Without
    # a number it depends on whether the layers' threads leave a core to the background, and so do the threads.
    prefetch_batches: int | None = Field(default=None, ge=0, le=1024)
    reader_threads: int | None = Field(default=None, ge=1, le=256)

    def model_post_init(self, _context: object) -> None:
        """Refuse what does not fit the schema."""
        self._refuse_other_tables()
        self._refuse_uneven_shares()
        if self.multi_hot:
            refuse_sizes(self.multi_hot, self.schema_of_rows)
        elif self.multi_hot_distribution != "uniform":
            raise ConfigError(
                f"data.multi_hot_distribution is {self.multi_hot_distribution} and data.multi_hot is empty"
            )
        patterns = (self.train_files, self.validation_files, self.test_files)
        if self.has_holdout:
            if self.holdout_frac is not None and self.holdout_rows is not None:
                raise ConfigError("data.holdout_frac and data.holdout_rows say the same thing twice; give one of them")
            if self.validation_files or self.test_files:
                raise ConfigError(
                    "data.holdout_frac and data.holdout_rows take validation and test from the end of the other files; "
                    "leave out data.validation_files and data.test_files"
                )
        elif any(patterns) and not all(patterns):
            raise ConfigError(
                "data.train_files, data.validation_files and data.test_files are given together or not at all "
                "(without them the last day of day_0, day_1, … is halved; data.holdout_frac=0.1 keeps the last tenth)"
            )
        elif any(patterns) and self.first_half == "test":
            raise ConfigError(
                'data.first_half = "test" is about rows that are halved; '
                "data.validation_files and data.test_files say already which are for what"
            )

    def _refuse_uneven_shares(self) -> None:
        num_lanes = lanes_in_use(self.global_batch, self.num_lanes)
        if self.drop_last and self.global_batch % num_lanes:
            even = next(lanes for lanes in range(num_lanes, 0, -1) if self.global_batch % lanes == 0)
            raise ConfigError(
                f"data.drop_last needs equal shares of a batch: with data.global_batch = {self.global_batch} and "
                f"{num_lanes} lanes the lanes with the larger share run dry long before the others, and the rows of "
                f"those would be dropped; set data.num_lanes={even} or another data.global_batch"
            )

    def _refuse_other_tables(self) -> None:
        schema = self.schema_of_rows
        num_categories = len(schema.category_names)
        sizeless = [column.name for column in schema.of_role("category") if column.rows is None]
        if not self.table_rows and sizeless:
            raise ConfigError(
                f"data.table_rows is empty and schema {schema.name} gives no rows for {', '.join(sizeless[:3])}"
                f"{', …' if len(sizeless) > 3 else ''}; set one of them"
            )
        if self.table_rows and len(self.table_rows) != num_categories:
            raise ConfigError(
                f"data.table_rows has {len(self.table_rows)} numbers; "
                f"schema {schema.name} has {num_categories} category columns"
            )
        if min(self.table_rows, default=1) < 1:
            raise ConfigError(f"data.table_rows holds {min(self.table_rows)}; a table has at least one row")

    @property
    def has_holdout(self) -> bool:
        """Whether the last lines of the training files are kept for validation and test."""
        return self.holdout_frac is not None or self.holdout_rows is not None

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
        columns = [column.model_dump(mode="json") for column in self.schema_of_rows.columns]
        facts = json.dumps([columns, self.num_table_rows, self.slots_per_column])
        return hashlib.sha256(facts.encode()).hexdigest()

    @property
    def num_table_rows(self) -> tuple[int, ...]:
        """The sizes of the tables, the cap applied."""
        cap = self.max_rows_per_table
        sizes = self.table_rows or tuple(column.rows or 0 for column in self.schema_of_rows.of_role("category"))
        return tuple(min(rows, cap) if cap else rows for rows in sizes)
