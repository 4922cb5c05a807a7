"""Settings of the data: where the files lie, which lines are for what, and how they are read."""

from typing import Literal

from pydantic import Field

from recmill.config import Settings
from recmill.data.criteo import SCHEMAS
from recmill.data.schema import Schema
from recmill.data.store.npy import Access
from recmill.errors import ConfigError


class DataConfig(Settings):
    """Files, batches and the reader."""

    dir: str = ""
    schema_name: str = "criteo"
    # Patterns within the directory. All empty: day_0, day_1, …; the last day's halves are for validation and test.
    train_files: tuple[str, ...] = ()
    validation_files: tuple[str, ...] = ()
    test_files: tuple[str, ...] = ()
    table_rows: tuple[int, ...]  # one number per category column
    max_rows_per_table: int | None = Field(default=None, ge=2)
    global_batch: int = Field(default=2048, ge=1)
    eval_batch: int = Field(default=16384, ge=1)
    bad_rows: Literal["fail", "skip"] = "fail"
    num_lanes: int = Field(default=64, ge=1, le=4096)
    block_bytes: int = Field(default=256 << 10, ge=1)  # of raw text, shuffled as one
    block_rows: int = Field(default=1024, ge=1)  # of prepared rows, likewise
    access: Access = "mapped"  # of prepared rows: through the page cache, all in memory, or read as needed
    verify: bool = False  # compare prepared files with their checksums before training
    vocabulary: str = ""  # the directory of the vocabulary with which raw text is encoded
    reader_threads: int = Field(default=2, ge=1, le=256)
    prefetch_batches: int = Field(default=4, ge=1, le=1024)

    def model_post_init(self, _context: object) -> None:
        """Refuse what does not fit the schema."""
        if self.schema_name not in SCHEMAS:
            raise ConfigError(f"data.schema_name = {self.schema_name!r} is unknown; choose from {', '.join(SCHEMAS)}")
        num_categories = len(self.schema_of_rows.category_names)
        if len(self.table_rows) != num_categories:
            raise ConfigError(
                f"data.table_rows has {len(self.table_rows)} numbers; "
                f"schema {self.schema_name} has {num_categories} category columns"
            )
        if min(self.table_rows) < 1:
            raise ConfigError(f"data.table_rows holds {min(self.table_rows)}; a table has at least one row")
        patterns = (self.train_files, self.validation_files, self.test_files)
        if any(patterns) and not all(patterns):
            raise ConfigError(
                "data.train_files, data.validation_files and data.test_files are given together or not at all "
                "(without them the last day of day_0, day_1, … is halved)"
            )

    @property
    def schema_of_rows(self) -> Schema:
        """The fields of every line."""
        return SCHEMAS[self.schema_name]

    @property
    def num_table_rows(self) -> tuple[int, ...]:
        """The sizes of the tables, the cap applied."""
        cap = self.max_rows_per_table
        return tuple(min(rows, cap) if cap else rows for rows in self.table_rows)
