"""A vocabulary read back: the values that have each row of a table, as far as they can be told."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.encode.vocabulary import MISSING_ROW, UNKNOWN_ROW, Vocabulary
from recmill.data.text.fields import MISSING_CATEGORY
from recmill.settings.columns import Schema

Form = Literal["hex", "int", "hash"]  # of a string there is a hash, and no way back

_PORTION_ROWS, _PORTION_WORDS = 1 << 21, 1 << 20
_FREE_PACKED = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


class Entries(NamedTuple):
    """Rows of a table, ascending, and what each stands for; a cap may have given a row to several values."""

    rows: NDArray[np.int64]
    is_value: NDArray[np.bool_]  # False: the row of missing, or of unknown values
    values: NDArray[np.uint64]


def form_of(schema: Schema, column: str) -> Form:
    """How the values of a column are to be written."""
    kind = next(each.kind for each in schema.of_role("category") if each.name == column)
    return "hash" if kind == "string" else "int" if kind == "int" else "hex"


def read_entries(vocabulary: Vocabulary, schema: Schema, column: str) -> Iterator[Entries]:
    """All rows of a column's table in portions: each goes over all slots once more, and memory stays bounded."""
    facts = next(each for each in vocabulary.columns if each.name == column)
    words = vocabulary.plan(schema).words[facts.first_word : facts.first_word + facts.num_words]
    for first_row in range(0, facts.table_rows, _PORTION_ROWS):
        end_row = min(first_row + _PORTION_ROWS, facts.table_rows)
        found = [_entered(part, facts.is_packed, first_row, end_row) for part in _parts(words)]
        rows = np.concatenate([rows for rows, _ in found])
        values = np.concatenate([values for _, values in found])
        is_value = np.ones(len(rows), np.bool_)
        reserved = () if first_row else (UNKNOWN_ROW,) if vocabulary.missing_is_zero else (MISSING_ROW, UNKNOWN_ROW)
        rows = np.concatenate([np.array(reserved, np.int64), rows])
        values = np.concatenate([np.zeros(len(reserved), np.uint64), values])
        is_value = np.concatenate([np.zeros(len(reserved), np.bool_), is_value])
        order = np.lexsort((values, is_value, rows))
        yield Entries(rows[order], is_value[order], values[order])


def _parts(words: NDArray[np.uint64]) -> Iterator[NDArray[np.uint64]]:
    for start in range(0, len(words), _PORTION_WORDS):  # an even number: pairs stay together
        yield words[start : start + _PORTION_WORDS]


def _entered(
    words: NDArray[np.uint64], is_packed: bool, first_row: int, end_row: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The rows within bounds that some slots hold, and their values."""
    if is_packed:
        is_taken, rows, values = words != _FREE_PACKED, words & _LOW, words >> _HALF
    else:
        is_taken, rows, values = words[::2] != MISSING_CATEGORY, words[1::2], words[::2]
    is_wanted = is_taken & (rows >= np.uint64(first_row)) & (rows < np.uint64(end_row))
    return rows[is_wanted].astype(np.int64), values[is_wanted]
