"""Texts of the string categories of a saved state: where they are kept, and which rows of a table they have."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from recmill.data.encode.entries import Entries
from recmill.data.encode.transforms import category_plan, encode_categories
from recmill.data.text.fields import MISSING_CATEGORY
from recmill.data.values.known import KnownValues
from recmill.data.values.values_file import read_known
from recmill.files import CONFIG, VALUES, has_manifest
from recmill.settings.clicks import TrainConfig
from recmill.training.checkpoint.saved_state import SavedState


def find_texts(state: SavedState, config: TrainConfig, table: str) -> dict[int, bytes]:
    """The texts of a column by their hashes."""
    return find_all_texts(state, config).get(table, {})


def find_all_texts(state: SavedState, config: TrainConfig) -> KnownValues:
    """The texts of all columns: kept by the run, or else beside its prepared rows or its vocabulary."""
    directory = state.directory.resolve()
    runs = [home for home in (directory, *directory.parents[:2]) if (home / CONFIG).is_file()]
    vocabulary = config.data.vocabulary
    prepared = [Path(config.data.dir), *([Path(vocabulary).parent] if vocabulary else [])]
    for home in (*runs, *(each for each in prepared if has_manifest(each))):
        if (home / VALUES).is_file():
            return read_known(home / VALUES)
    return {}


def entries_of_texts(config: TrainConfig, table: str, texts: Mapping[int, bytes]) -> Entries:
    """The rows that known texts have in a table to which a hash or a modulo leads; several may share one."""
    schema = config.data.schema_of_rows
    plan = category_plan(config.encoding, schema, config.data.num_table_rows)
    slot = schema.slot_columns.index(schema.category_names.index(table))
    values = np.full((len(texts), schema.num_slots), MISSING_CATEGORY, np.uint64)
    values[:, slot] = list(texts)
    ids = np.empty(values.shape, np.int64)
    encode_categories(values, plan, ids)
    has_missing = int(plan.missing_row[slot] == 0)
    rows = np.concatenate([np.zeros(has_missing, np.int64), ids[:, slot]])
    hashes = np.concatenate([np.zeros(has_missing, np.uint64), values[:, slot]])
    is_value = np.arange(len(rows)) >= has_missing
    order = np.argsort(rows, kind="stable")  # of one row, the most frequent text first
    return Entries(rows[order], is_value[order], hashes[order])
