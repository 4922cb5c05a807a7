"""Raw columns to what a model eats: pure functions of their arguments, no files, no state.

A dense number x becomes float32, a category value becomes a row of its table. No finite x gives NaN or −inf: the
argument of a logarithm is held at 1 or more, so that the smallest result is 0.

A vocabulary will be a third way from value to row, beside modulo and hash.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recmill.config import Settings
from recmill.data.fields import MISSING_CATEGORY
from recmill.errors import ConfigError
from recmill.jit import njit, uint32, uint64
from recmill.seeds import mix64, stream_key

DenseTransform = Literal["log(x+3)", "log(x+2)", "log(x-min+2)", "identity"]
CategoryTransform = Literal["modulo", "hash", "vocabulary"]
MissingCategory = Literal["own_row", "value_zero"]

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_TWO_32 = np.uint64(1 << 32)

# Most dense values are small counts; their logarithms are read from a table that stays in the first-level cache.
_LOG_TABLE = np.array([0.0, *(math.log(i) for i in range(1, 4096))]).astype(np.float32)


class Encoding(Settings):
    """How raw columns become numbers and rows; the defaults are recmill's own."""

    dense: DenseTransform = "log(x+3)"
    dense_min: float | None = None  # the minimum of log(x-min+2), over all files
    dense_missing: float = 0.0  # the x that an empty field stands for
    category: CategoryTransform = "modulo"
    category_missing: MissingCategory = "own_row"  # row 0, which no value shares; or the row of the value 0

    def model_post_init(self, _context: object) -> None:
        """Refuse settings that contradict each other."""
        if (self.dense == "log(x-min+2)") != (self.dense_min is not None):
            raise ConfigError(
                f"encoding.dense_min is {self.dense_min} and encoding.dense is {self.dense!r}: "
                "the minimum is needed by 'log(x-min+2)' and by nothing else"
            )


class DensePlan(NamedTuple):
    """What the dense kernel needs: y = log(max(x + shift, 1)), or x itself."""

    use_log: bool
    shift: float
    missing: float


class CategoryPlan(NamedTuple):
    """What the category kernel needs, per column: the rows values may take, and a salt (0 = no hash)."""

    num_rows: NDArray[np.uint64]
    divisors: NDArray[np.float64]  # num_rows
    inverses: NDArray[np.float64]  # 1 / num_rows
    allows_narrow: bool  # no column is hashed, or has a table of 2^31 rows or more
    salts: NDArray[np.uint64]
    first_row: np.uint64  # rows below it are reserved for missing values


def dense_plan(encoding: Encoding) -> DensePlan:
    """The numbers behind the settings."""
    shift = {"log(x+3)": 3.0, "log(x+2)": 2.0, "log(x-min+2)": 2.0 - (encoding.dense_min or 0.0), "identity": 0.0}
    return DensePlan(encoding.dense != "identity", shift[encoding.dense], encoding.dense_missing)


def category_plan(encoding: Encoding, names: tuple[str, ...], table_rows: tuple[int, ...]) -> CategoryPlan:
    """The numbers behind the settings, for tables of these sizes."""
    reserved = 1 if encoding.category_missing == "own_row" else 0
    for name, rows in zip(names, table_rows, strict=True):
        if rows <= reserved:
            raise ConfigError(f"the table of {name} has {rows} rows; it needs at least {reserved + 1}")
    hashed = encoding.category == "hash"
    num_rows = np.array(table_rows, np.uint64) - np.uint64(reserved)
    return CategoryPlan(
        num_rows,
        num_rows.astype(np.float64),
        1.0 / num_rows,
        not hashed and max(table_rows, default=0) < 1 << 31,
        np.array([stream_key(0, "salt", name) if hashed else 0 for name in names], np.uint64),
        np.uint64(reserved),
    )


@njit(nogil=True, cache=True)
def encode_dense(numbers: NDArray[np.float64], plan: DensePlan, dense: NDArray[np.float32]) -> None:
    """Fill `dense` (R, dense) from raw numbers in which NaN means missing."""
    for row in range(numbers.shape[0]):
        for column in range(numbers.shape[1]):
            x = numbers[row, column]
            x = plan.missing if x != x else x
            if plan.use_log:
                shifted = max(x + plan.shift, 1.0)
                whole = np.int64(shifted) if shifted < len(_LOG_TABLE) else 0
                if np.float64(whole) == shifted:
                    dense[row, column] = _LOG_TABLE[whole]
                else:
                    dense[row, column] = np.float32(math.log(shifted))
            else:
                dense[row, column] = np.float32(min(max(x, -_FLOAT32_MAX), _FLOAT32_MAX))


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
    first_row = np.int64(plan.first_row)
    for i in range(len(values)):
        row_values, row_ids = values[i], ids[i]
        for column in range(len(row_values)):
            divisor = plan.divisors[column]
            dividend = np.float64(uint32(row_values[column]))
            remainder = dividend - np.floor(dividend * plan.inverses[column]) * divisor
            remainder += divisor if remainder < 0.0 else 0.0
            remainder -= divisor if remainder >= divisor else 0.0
            row = np.int64(np.int32(remainder)) + first_row
            row_ids[column] = np.int64(0) if row_values[column] == MISSING_CATEGORY else row  # own row, or the value 0


@njit(nogil=True, cache=True)
def _encode_wide(values: NDArray[np.uint64], plan: CategoryPlan, ids: NDArray[np.int64]) -> None:
    """Any values, one by one."""
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            value = values[row, column]
            missing = value == MISSING_CATEGORY
            if missing:
                value = uint64(0)
            if plan.salts[column] != 0:
                value = mix64(value ^ plan.salts[column])
            own_row = missing and plan.first_row > 0
            remainder = value % plan.num_rows[column]
            ids[row, column] = np.int64(0) if own_row else np.int64(remainder + plan.first_row)


@njit(nogil=True, cache=True)
def encode_categories(values: NDArray[np.uint64], plan: CategoryPlan, ids: NDArray[np.int64]) -> None:
    """Fill `ids` (R, sparse) with table rows."""
    if plan.allows_narrow and _are_narrow(values.reshape(-1)):
        _encode_narrow(values, plan, ids)
    else:
        _encode_wide(values, plan, ids)
