"""Vocabularies: which row of its table a category value has, frozen on disk, mapped into memory and shared.

Row 0 is for missing values and row 1 for values that the vocabulary does not hold; its own values have rows from 2 on,
in the order in which they were entered. Upstream code gives a missing field the row of the value 0; `missing_is_zero`
follows it. A cap folds the rows behind it back to the beginning, as published.

A vocabulary is two files: `columns.json`, and `slots.bin` with an open-addressing table for every column, at most half
full. A slot is a value and its row: one word if the column's values have 32 bits, as Criteo's, and two otherwise.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Iterable
from copy import copy
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY
from recmill.errors import DataError
from recmill.files import checksum, write_atomic
from recmill.jit import njit, uint64
from recmill.own_files import ANYTHING, FLAG, TEXT, ListOf, MisfitError, Table, parse_json, read_own_text
from recmill.regular import require_regular
from recmill.settings.columns import Schema
from recmill.settings.data import Verify
from recmill.verified import PREPARE_ANEW, check_once

MISSING_ROW, UNKNOWN_ROW, FIRST_VALUE_ROW = range(3)

COLUMNS, SLOTS = "columns.json", "slots.bin"
_FORMAT = "recmill vocabulary 2"
_WORD_BYTES = 8
_MAX_SLOTS = 1 << 48
_FREE = MISSING_CATEGORY  # the first word of a pair; no value equals it
_FREE_PACKED = np.uint64(0xFFFFFFFFFFFFFFFF)  # its row would be one that no table has
_LOW = np.uint64(0xFFFFFFFF)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class LookUp(NamedTuple):
    """What the look-up kernel needs: the tables of all columns end to end, and where the one of each slot lies."""

    words: NDArray[np.uint64]
    first_words: NDArray[np.int64]
    is_packed: NDArray[np.bool_]
    shifts: NDArray[np.uint64]  # a table of 2^k slots has shift 64 − k
    may_be_absent: NDArray[np.bool_]  # one of several slots of a column
    missing_is_zero: bool


NO_LOOK_UP = LookUp(
    np.frombuffer(b"", np.uint64),
    np.empty(0, np.int64),
    np.empty(0, np.bool_),
    np.empty(0, np.uint64),
    np.empty(0, np.bool_),
    False,
)


@dataclass(frozen=True)
class ColumnFacts:
    """What is known of one column: how many values have a row, how large its table is, and where its slots are."""

    name: str
    num_values: int
    table_rows: int
    first_word: int
    num_slots: int
    is_packed: bool

    def can_be(self, first_word: int) -> bool:
        """Whether the numbers fit one another: at most half of the slots are taken, so that a search ends."""
        numbers = (self.num_values, self.table_rows, self.first_word, self.num_slots)
        if not all(type(number) is int and 0 <= number <= _MAX_SLOTS for number in numbers):
            return False
        return (
            isinstance(self.name, str)
            and isinstance(self.is_packed, bool)
            and self.first_word == first_word
            and self.num_slots >= 2
            and not self.num_slots & (self.num_slots - 1)
            and 2 * self.num_values <= self.num_slots
            and FIRST_VALUE_ROW <= self.table_rows <= self.num_values + FIRST_VALUE_ROW
        )

    @property
    def num_words(self) -> int:
        """How much of `slots.bin` is the column's."""
        return self.num_slots * (1 if self.is_packed else 2)

    @property
    def shift(self) -> np.uint64:
        """What leaves as many high bits of a word as number the slots."""
        return np.uint64(64 - (self.num_slots.bit_length() - 1))


@njit(inline="always")
def _home(value: np.uint64, shift: np.uint64) -> np.uint64:
    """Where the search for a value begins: the high bits of a product in which all bits of the value meet."""
    return ((value ^ (value >> uint64(32))) * _GOLDEN) >> shift


@njit(nogil=True, cache=True)
def _enter_pairs(
    values: NDArray[np.uint64], first_row: int, cap: int, words: NDArray[np.uint64], shift: np.uint64
) -> None:
    """Enter distinct values, the first of which has row `first_row`."""
    mask = uint64(len(words) // 2 - 1)
    for i in range(len(values)):
        slot = _home(values[i], shift)
        while words[uint64(2) * slot] != _FREE:
            slot = (slot + uint64(1)) & mask
        words[uint64(2) * slot] = values[i]
        words[uint64(2) * slot + uint64(1)] = uint64((first_row + i) % cap)


@njit(nogil=True, cache=True)
def _enter_packed(
    values: NDArray[np.uint64], first_row: int, cap: int, words: NDArray[np.uint64], shift: np.uint64
) -> None:
    """The same for values of 32 bits."""
    mask = uint64(len(words) - 1)
    for i in range(len(values)):
        slot = _home(values[i], shift)
        while words[slot] != _FREE_PACKED:
            slot = (slot + uint64(1)) & mask
        words[slot] = values[i] << uint64(32) | uint64((first_row + i) % cap)


@njit(inline="always")
def _find_pair(words: NDArray[np.uint64], first: np.uint64, value: np.uint64, shift: np.uint64) -> np.int64:
    """The row of a value, or that of unknown ones."""
    mask = (uint64(1) << (uint64(64) - shift)) - uint64(1)
    slot = _home(value, shift)
    found = words[first + uint64(2) * slot]
    while found != value and found != _FREE:
        slot = (slot + uint64(1)) & mask
        found = words[first + uint64(2) * slot]
    return np.int64(words[first + uint64(2) * slot + uint64(1)]) if found == value else np.int64(UNKNOWN_ROW)


@njit(inline="always")
def _find_packed(words: NDArray[np.uint64], first: np.uint64, value: np.uint64, shift: np.uint64) -> np.int64:
    """The same in a table of packed slots."""
    mask = (uint64(1) << (uint64(64) - shift)) - uint64(1)
    slot = _home(value, shift)
    word = words[first + slot]
    while word >> uint64(32) != value and word != _FREE_PACKED:
        slot = (slot + uint64(1)) & mask
        word = words[first + slot]
    return np.int64(UNKNOWN_ROW) if word == _FREE_PACKED else np.int64(word & _LOW)


@njit(nogil=True, cache=True)
def look_up(values: NDArray[np.uint64], plan: LookUp, ids: NDArray[np.int64]) -> None:
    """Fill `ids` (R, slots): slot by slot, so that the processor waits for many slots at once."""
    for column in range(values.shape[1]):
        first, shift = uint64(plan.first_words[column]), plan.shifts[column]
        if plan.is_packed[column]:
            for row in range(values.shape[0]):
                value = values[row, column]
                sought = uint64(0) if value == MISSING_CATEGORY else value
                ids[row, column] = _find_packed(plan.words, first, sought, shift)
        else:
            for row in range(values.shape[0]):
                value = values[row, column]
                sought = uint64(0) if value == MISSING_CATEGORY else value
                ids[row, column] = _find_pair(plan.words, first, sought, shift)
        for row in range(values.shape[0]):
            if values[row, column] == MISSING_CATEGORY and not plan.missing_is_zero:
                ids[row, column] = MISSING_ROW
            elif values[row, column] == ABSENT_CATEGORY and plan.may_be_absent[column]:
                ids[row, column] = -1


class VocabularyWriter:
    """Freezes columns one after the other into a directory; the JSON file is written last."""

    def __init__(self, directory: Path, *, missing_is_zero: bool, cap: int | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._missing_is_zero = missing_is_zero
        self._cap = cap
        self._columns = list[ColumnFacts]()
        (directory / COLUMNS).unlink(missing_ok=True)
        (directory / SLOTS).write_bytes(b"")

    def add(self, name: str, num_values: int, chunks: Iterable[NDArray[np.uint64]], *, num_bits: int = 64) -> None:
        """Enter a column's values, of so many bits, given in the order of their rows."""
        num_rows = num_values + FIRST_VALUE_ROW
        table_rows = min(num_rows, self._cap or num_rows)
        num_slots = 2 << max(1, (max(num_values, 1) - 1).bit_length())
        path = self._directory / SLOTS
        offset = path.stat().st_size
        is_packed = num_bits <= 32 and num_rows <= int(_LOW)
        facts = ColumnFacts(name, num_values, table_rows, offset // _WORD_BYTES, num_slots, is_packed)
        with path.open("r+b") as file:
            file.truncate(offset + facts.num_words * _WORD_BYTES)
            words = np.memmap(file, np.uint64, "r+", offset, (facts.num_words,))
        words[:] = _FREE_PACKED if is_packed else _FREE
        enter, row = _enter_packed if is_packed else _enter_pairs, FIRST_VALUE_ROW
        for chunk in chunks:
            enter(chunk, row, table_rows, words, facts.shift)
            row += len(chunk)
        assert row == num_rows, f"{name}: {row - FIRST_VALUE_ROW} values where {num_values} were announced"
        self._columns.append(facts)

    def finish(self) -> None:
        """Seal the directory."""
        with (self._directory / SLOTS).open("rb") as file:
            os.fsync(file.fileno())
        content = {
            "format": _FORMAT,
            "missing_is_zero": self._missing_is_zero,
            "columns": [asdict(column) for column in self._columns],
            "slots_sha256": checksum(self._directory / SLOTS, "sha256"),
        }
        write_atomic(self._directory / COLUMNS, json.dumps(content, indent=1))


@njit(nogil=True, cache=True)
def _measure(words: NDArray[np.uint64], is_packed: bool) -> tuple[int, int]:
    """How many slots of a table are taken, and the last row that one of them has."""
    num_values, last_row = 0, uint64(0)
    step = 1 if is_packed else 2
    for at in range(0, len(words), step):
        if words[at] == (_FREE_PACKED if is_packed else _FREE):
            continue
        num_values += 1
        row = words[at] & _LOW if is_packed else words[at + 1]
        last_row = max(last_row, row)
    return num_values, int(min(last_row, uint64(1 << 62)))


# What the numbers of a column have to be is for `ColumnFacts.can_be` to say, which knows its neighbours.
_COLUMN = Table(fields={each.name: ANYTHING for each in fields(ColumnFacts)})
_CONTENT = Table(fields={"format": TEXT, "missing_is_zero": FLAG, "columns": ListOf(of=_COLUMN), "slots_sha256": TEXT})


def _read_columns(path: Path) -> dict[str, Any]:
    """What `columns.json` says, if it can be true."""
    require_regular(path, "make one with `recmill prepare`")
    try:
        content: dict[str, Any] = parse_json(read_own_text(path, error=DataError))
        if isinstance(content, dict) and content.get("format", _FORMAT) != _FORMAT:
            raise DataError(f"{path} is of format {content['format']!r}; this version reads {_FORMAT!r}")
        _CONTENT.check(content, "")
    except MisfitError as problem:
        raise DataError(f"{path} is not a vocabulary: {problem}; {PREPARE_ANEW}") from None
    first_word = 0
    for column in (ColumnFacts(**facts) for facts in content["columns"]):
        if not column.can_be(first_word):
            raise DataError(f"{path} is damaged: what it says of column {column.name!r} cannot be; {PREPARE_ANEW}")
        first_word += column.num_words
    return content


def vocabulary_identity(directory: Path) -> str:
    """The checksum that a vocabulary states of its slots: which value has which row; empty if there is none."""
    return str(_read_columns(directory / COLUMNS)["slots_sha256"]) if (directory / COLUMNS).is_file() else ""


class Vocabulary:
    """A frozen vocabulary, mapped into memory: processes that open it share one copy."""

    def __init__(self, directory: Path, *, verify: Verify = "once") -> None:
        path, slots_path = directory / COLUMNS, directory / SLOTS
        content = _read_columns(path)
        columns = tuple(ColumnFacts(**facts) for facts in content["columns"])
        self.missing_is_zero: bool = content["missing_is_zero"]
        num_words = sum(column.num_words for column in columns)
        if require_regular(slots_path, PREPARE_ANEW).st_size != num_words * _WORD_BYTES:
            raise DataError(f"{slots_path} is not of the size that {COLUMNS} states; {PREPARE_ANEW}")
        self.columns = columns
        self.checksum: str = content["slots_sha256"]
        mapped: bytes | mmap.mmap = b""  # rows of numbers alone have no category, and no file without bytes is mapped
        if num_words:
            with slots_path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self._words = np.frombuffer(mapped, np.uint64)
        # the content is looked at once, because a wrong one has the kernel search for ever, or give rows that are none
        known_for = f"vocabulary {verify != 'never'} {hashlib.sha256(json.dumps(content).encode()).hexdigest()}"
        check_once(
            directory,
            {slots_path: lambda: self._refuse_damage(slots_path, has_checksum=verify != "never")},
            {slots_path: known_for},
            is_remembered=verify != "always",
        )

    def _refuse_damage(self, path: Path, *, has_checksum: bool) -> None:
        if has_checksum and checksum(path, "sha256") != self.checksum:
            raise DataError(f"{path} is damaged, or belongs to another {COLUMNS}: its checksum differs; {PREPARE_ANEW}")
        for column in self.columns:
            words = self._words[column.first_word : column.first_word + column.num_words]
            num_values, last_row = _measure(words, column.is_packed)
            if num_values != column.num_values or last_row >= column.table_rows:
                raise DataError(
                    f"{path} is damaged: column {column.name} has {num_values} values and rows up to {last_row} where "
                    f"{column.num_values} and up to {column.table_rows - 1} were announced; {PREPARE_ANEW}"
                )

    @property
    def table_rows(self) -> tuple[int, ...]:
        """How many rows the table of each column has."""
        return tuple(column.table_rows for column in self.columns)

    def in_order_of(self, schema: Schema) -> "Vocabulary":
        """The same for files that have these columns in another order; it rejects other columns when it is used."""
        by_name = {column.name: column for column in self.columns}
        if set(by_name) != set(schema.category_names):
            return self
        found = copy(self)
        found.columns = tuple(by_name[name] for name in schema.category_names)
        return found

    def plan(self, schema: Schema) -> LookUp:
        """What the kernel needs, for the slots of a schema."""
        names, known = schema.category_names, tuple(column.name for column in self.columns)
        if known != names:
            raise DataError(
                f"the vocabulary is of the columns {', '.join(known)}; the schema's categories are {', '.join(names)}"
            )
        columns = [self.columns[i] for i in schema.slot_columns]
        return LookUp(
            self._words,
            np.array([column.first_word for column in columns], np.int64),
            np.array([column.is_packed for column in columns], np.bool_),
            np.array([column.shift for column in columns], np.uint64),
            np.array(schema.slots_may_be_absent, np.bool_),
            self.missing_is_zero,
        )
