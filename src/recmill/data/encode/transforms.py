"""Raw columns to what a model eats: pure functions of their arguments, no files, no state.

A dense number x becomes float32, a category value becomes a row of its table. No finite x gives NaN or −inf: the
argument of a logarithm is held at 1 or more, so that the smallest result is 0.

What a column of the schema says of its encoding comes before the settings of the run. A vocabulary is another way
from value to row, with a kernel of its own in `vocab.py`.

`xxhash64` is what OneFlow's Scala tool asks of Spark, `xxhash64(i, text)` for column i counted from 1: XXH64 of the
text, whose seed is XXH64 of i as four bytes with Spark's seed 42. Of upper-case digits it hashes the lower-case form.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY
from recmill.data.text.hashing import xxh64, xxh64_of_word
from recmill.data.text.swar import encode_hex8
from recmill.errors import ConfigError
from recmill.jit import njit, uint32, uint64
from recmill.seeds import mix64, stream_key
from recmill.settings.columns import Column, Schema
from recmill.settings.encoding import Encoding

# How a category value becomes a row: the codes the kernel knows.
MODULO, HASH, XXHASH64 = range(3)
_METHODS = {"modulo": MODULO, "hash": HASH, "xxhash64": XXHASH64, "vocabulary": MODULO}
_SPARK_SEED = np.uint64(42)

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_TWO_32 = np.uint64(1 << 32)

# Most dense values are small counts; their logarithms are read from a table that stays in the first-level cache.
_LOG_TABLE = np.array([0.0, *(math.log(i) for i in range(1, 4096))]).astype(np.float32)


class DensePlan(NamedTuple):
    """What the dense kernel needs, per column: y = log(max(x + shift, 1)), or x itself."""

    use_log: NDArray[np.bool_]
    shift: NDArray[np.float64]
    missing: NDArray[np.float64]
    is_uniform: bool  # all columns alike


class CategoryPlan(NamedTuple):
    """What the category kernel needs, per slot: the way from value to row, the rows it may lead to, and a salt."""

    methods: NDArray[np.uint8]
    num_rows: NDArray[np.uint64]
    divisors: NDArray[np.float64]  # num_rows
    inverses: NDArray[np.float64]  # 1 / num_rows
    salts: NDArray[np.uint64]
    first_row: NDArray[np.int64]  # rows below it are reserved for missing values
    missing_row: NDArray[np.int64]  # −1: missing stands for the value 0
    may_be_absent: NDArray[np.bool_]  # one of several slots of a column
    allows_narrow: bool  # all columns have one value taken modulo, and no table has 2^31 rows or more


def dense_plan(encoding: Encoding, schema: Schema) -> DensePlan:
    """The numbers behind the settings and the schema."""
    columns = schema.of_role("dense")
    transforms = [column.encoding or encoding.dense for column in columns]
    minima = [column.min if column.min is not None else encoding.dense_min or 0.0 for column in columns]
    shifts = [
        {"log(x+3)": 3.0, "log(x+2)": 2.0, "log(x-min+2)": 2.0 - minimum, "identity": 0.0}[transform]
        for transform, minimum in zip(transforms, minima, strict=True)
    ]
    missing = [encoding.dense_missing if column.missing is None else column.missing for column in columns]
    return DensePlan(
        np.array([transform != "identity" for transform in transforms], np.bool_),
        np.array(shifts, np.float64),
        np.array(missing, np.float64),
        len(set(zip(transforms, shifts, missing, strict=True))) == 1,
    )


class _Slot(NamedTuple):
    """One id of a row: its column, which is the `place`-th of the categories, and what becomes of a value."""

    column: Column
    place: int
    rows: int
    method: int
    missing: str

    @property
    def missing_row(self) -> int:
        return {"own_row": 0, "last_row": self.rows - 1, "value_zero": -1}[self.missing]

    @property
    def salt(self) -> int:
        if self.method == XXHASH64:
            number = np.frombuffer((self.place + 1).to_bytes(4, "little"), np.uint8)
            return int(xxh64(number, 0, 4, _SPARK_SEED))
        return stream_key(0, "salt", self.column.name)


def category_plan(encoding: Encoding, schema: Schema, table_rows: tuple[int, ...]) -> CategoryPlan:
    """The numbers behind the settings and the schema, for tables of these sizes."""
    columns = schema.of_role("category")
    slots = list[_Slot]()
    for place, (column, rows) in enumerate(zip(columns, table_rows, strict=True)):
        method = _METHODS[column.encoding or encoding.category]
        slot = _Slot(column, place, rows, method, str(column.missing or encoding.category_missing))
        _refuse_impossible(slot, encoding)
        slots += [slot] * column.num_slots
    num_rows = np.array([slot.rows - int(slot.missing != "value_zero") for slot in slots], np.uint64)
    is_plain = all(slot.method == MODULO for slot in slots) and len(slots) == len(columns)
    return CategoryPlan(
        np.array([slot.method for slot in slots], np.uint8),
        num_rows,
        num_rows.astype(np.float64),
        1.0 / num_rows,
        np.array([slot.salt for slot in slots], np.uint64),
        np.array([slot.missing == "own_row" for slot in slots], np.int64),
        np.array([slot.missing_row for slot in slots], np.int64),
        np.array(schema.slots_may_be_absent, np.bool_),
        is_plain and max(table_rows, default=0) < 1 << 31,
    )


def _refuse_impossible(slot: _Slot, encoding: Encoding) -> None:
    column, needed = slot.column, 1 if slot.missing == "value_zero" else 2
    if slot.rows < needed:
        raise ConfigError(f"the table of {column.name} has {slot.rows} rows; it needs at least {needed}")
    if slot.method == XXHASH64 and column.kind != "hex":
        raise ConfigError(
            f"column {column.name} is of kind {column.kind}, and the encoding 'xxhash64' is of hexadecimal digits; "
            "choose 'hash' or 'modulo'"
        )
    if slot.missing == "last_row" and encoding.category == "vocabulary":
        raise ConfigError(
            f"column {column.name}: missing = 'last_row' does not go with a vocabulary, "
            "whose row 0 is for missing values; leave it out"
        )


@njit(inline="always")
def _encode_number(x: float, use_log: bool, shift: float) -> np.float32:
    if use_log:
        shifted = max(x + shift, 1.0)
        whole = np.int64(shifted) if shifted < len(_LOG_TABLE) else 0
        if np.float64(whole) == shifted:
            return _LOG_TABLE[whole]
        return np.float32(math.log(shifted))
    return np.float32(min(max(x, -_FLOAT32_MAX), _FLOAT32_MAX))


@njit(nogil=True, cache=True)
def _encode_uniform(
    numbers: NDArray[np.float64], use_log: bool, shift: float, missing: float, dense: NDArray[np.float32]
) -> None:
    """All columns alike: what they share stays in registers."""
    for row in range(numbers.shape[0]):
        for column in range(numbers.shape[1]):
            x = numbers[row, column]
            dense[row, column] = _encode_number(missing if x != x else x, use_log, shift)


@njit(nogil=True, cache=True)
def encode_dense(numbers: NDArray[np.float64], plan: DensePlan, dense: NDArray[np.float32]) -> None:
    """Fill `dense` (R, dense) from raw numbers in which NaN means missing."""
    if plan.is_uniform:
        _encode_uniform(numbers, plan.use_log[0], plan.shift[0], plan.missing[0], dense)
        return
    for row in range(numbers.shape[0]):
        for column in range(numbers.shape[1]):
            x = numbers[row, column]
            x = plan.missing[column] if x != x else x
            dense[row, column] = _encode_number(x, plan.use_log[column], plan.shift[column])


@njit(nogil=True, cache=True)
def _are_narrow(values: NDArray[np.uint64]) -> bool:
    """Whether all are below 2^32 or missing."""
    wide = uint64(0)
    for i in range(len(values)):
        wide |= uint64(0) if values[i] == MISSING_CATEGORY else values[i]
    return wide < _TWO_32


@njit(nogil=True, cache=True)
def _encode_narrow(values: NDArray[np.uint64], plan: CategoryPlan, ids: NDArray[np.int64]) -> None:
    """Narrow values, with remainders by multiplication: a loop over vectors.

    The quotient is off by one at most, and every product below 2^53, where doubles are exact.
    """
    for i in range(len(values)):
        row_values, row_ids = values[i], ids[i]
        for column in range(len(row_values)):
            divisor = plan.divisors[column]
            dividend = np.float64(uint32(row_values[column]))
            remainder = dividend - np.floor(dividend * plan.inverses[column]) * divisor
            remainder += divisor if remainder < 0.0 else 0.0
            remainder -= divisor if remainder >= divisor else 0.0
            row = np.int64(np.int32(remainder)) + plan.first_row[column]
            missing_row = max(plan.missing_row[column], np.int64(0))  # the value 0 has row 0, if missing stands for it
            row_ids[column] = missing_row if row_values[column] == MISSING_CATEGORY else row


@njit(nogil=True, cache=True)
def _encode_wide(values: NDArray[np.uint64], plan: CategoryPlan, ids: NDArray[np.int64]) -> None:
    """Any values, one by one."""
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            value = values[row, column]
            if value == ABSENT_CATEGORY and plan.may_be_absent[column]:
                ids[row, column] = np.int64(-1)
                continue
            missing = value == MISSING_CATEGORY
            if missing and plan.missing_row[column] >= 0:
                ids[row, column] = plan.missing_row[column]
                continue
            value = uint64(0) if missing else value
            if plan.methods[column] == HASH:
                value = mix64(value ^ plan.salts[column])
            elif plan.methods[column] == XXHASH64:
                value = xxh64_of_word(encode_hex8(value), plan.salts[column])
            ids[row, column] = np.int64(value % plan.num_rows[column]) + plan.first_row[column]


@njit(nogil=True, cache=True)
def encode_categories(values: NDArray[np.uint64], plan: CategoryPlan, ids: NDArray[np.int64]) -> None:
    """Fill `ids` (R, slots) with table rows, and with −1 where a column of several values has no more."""
    if plan.allows_narrow and _are_narrow(values.reshape(-1)):
        _encode_narrow(values, plan, ids)
    else:
        _encode_wide(values, plan, ids)
