"""The values that rows of tables stand for, as far as it can be told, without reading all of them for each row."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recmill.data.encode.entries import Entries, Form, form_of, read_entries
from recmill.data.encode.vocabulary import Vocabulary
from recmill.data.values.known import KnownValues, decoded
from recmill.embeddings.store.kind import StoreKind
from recmill.errors import ConfigError, DataError
from recmill.settings.clicks import TrainConfig
from recmill.settings.families import SEQUENCE, family_of_tree
from recmill.settings.tree import from_tree
from recmill.training.checkpoint.known_texts import entries_of_texts, find_all_texts
from recmill.training.checkpoint.saved_state import SavedState
from recmill.training.vocabulary import find_vocabulary


@dataclass(frozen=True)
class _TableValues:
    """A value of each row of a table; of rows that several share, one of them."""

    form: Form
    values: NDArray[np.uint64]
    is_value: NDArray[np.bool_]
    texts: Mapping[int, bytes]

    def told(self, rows: NDArray[np.int64]) -> list[str | None]:
        """As `recmill checkpoint extract` writes them."""
        pairs = zip(self.values[rows].tolist(), self.is_value[rows].tolist(), strict=True)
        return [self._told(value) if is_value else None for value, is_value in pairs]

    def _told(self, value: int) -> str | None:
        if self.form == "hash":
            text = self.texts.get(value)
            return None if text is None else decoded(text)
        return f"{value:08x}" if self.form == "hex" else str(value - (1 << 64) if value >> 63 else value)


@dataclass
class ValueLookup:
    """What the rows of a saved state stand for."""

    kind: StoreKind
    config: TrainConfig | None = None
    vocabulary: Vocabulary | None = None
    texts: KnownValues = field(default_factory=dict)
    note: str = ""  # why values are not known, if none are
    _tables: dict[str, _TableValues | None] = field(default_factory=dict)

    def told(self, table: str, rows: NDArray[np.int64]) -> list[str | None]:
        """The values of some rows of a table."""
        if table not in self._tables:
            self._tables[table] = self._read(table)
        found = self._tables[table]
        return [None] * len(rows) if found is None else found.told(rows)

    def _read(self, table: str) -> _TableValues | None:
        texts = self.texts.get(table, {})
        if self.config is None or (self.vocabulary is None and not texts):
            return None
        schema = self.config.data.schema_of_rows
        if self.vocabulary is None:
            return self._gathered("hash", [entries_of_texts(self.config, table, texts)], table)
        form = form_of(schema, table)
        return self._gathered(form, read_entries(self.vocabulary, schema, table), table)

    def _gathered(self, form: Form, portions: Iterable[Entries], table: str) -> _TableValues:
        num_rows = next(spec.num_rows for spec in self.kind.specs if spec.name == table)
        values, is_known = np.zeros(num_rows, np.uint64), np.zeros(num_rows, np.bool_)
        for rows, is_value, found in portions:
            ours = np.flatnonzero(is_value)[::-1]  # of a row that several share, the first comes last, and stays
            values[rows[ours]], is_known[rows[ours]] = found[ours], True
        return _TableValues(form, values, is_known, self.texts.get(table, {}))


def find_values(state: SavedState, kind: StoreKind) -> ValueLookup:
    """What the settings of a saved state lead to: a vocabulary, texts that the run has kept, or neither."""
    tree = state.settings()
    if tree is None or family_of_tree(tree) is SEQUENCE:
        return ValueLookup(kind, note=f"no settings lie beside {state.directory} that tell what rows stand for")
    try:
        config = from_tree(TrainConfig, tree, where="the settings of the run")
        vocabulary = find_vocabulary(config)
        _refuse_other_vocabulary(vocabulary, kind)
        texts = find_all_texts(state, config)
    except (DataError, ConfigError) as error:
        return ValueLookup(kind, note=f"values are not written: {error}")
    if vocabulary is None and not texts:
        how = config.encoding.category
        return ValueLookup(kind, note=f"ids were made by {how}, from which values cannot be recovered")
    return ValueLookup(kind, config, vocabulary, texts)


def _refuse_other_vocabulary(vocabulary: Vocabulary | None, kind: StoreKind) -> None:
    """Complain about one by which the rows were not numbered."""
    stated = {column.name: column.table_rows for column in vocabulary.columns} if vocabulary else {}
    for spec in kind.specs:
        if stated.get(spec.name, spec.num_rows) != spec.num_rows:
            raise DataError(
                f"the vocabulary gives {spec.name} {stated[spec.name]:,} rows where it has {spec.num_rows:,}; it is "
                "another one"
            )
