"""What a label column calls positive: certain values, or numbers beyond a bound."""

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

LabelKind = Literal["int", "float", "string"]
Value = str | int | float
Positive = Value | tuple[Value, ...]
# By which a number may be compared with a bound, the longer ones first.
OPERATORS = (">=", "<=", ">", "<")
_BOUND = re.compile(rf"\s*({'|'.join(OPERATORS)})\s*(\S+)\s*")


@dataclass(frozen=True)
class LabelRule:
    """Which fields are positive: these texts, these numbers, or the numbers on one side of a bound."""

    texts: tuple[bytes, ...] = ()
    numbers: tuple[float, ...] = ()
    operator: str = ""
    bound: float = 0.0

    def accepts_number(self, number: float) -> bool:
        """Whether a number is positive."""
        if not self.operator:
            return number in self.numbers
        comparisons = {
            ">=": number >= self.bound,
            "<=": number <= self.bound,
            ">": number > self.bound,
            "<": number < self.bound,
        }
        return comparisons[self.operator]


@lru_cache(maxsize=64)
def label_rule(positive: Positive, kind: str | None) -> LabelRule:
    """What a schema says is positive in a label of some kind; a ValueError says why it cannot be."""
    values = positive if isinstance(positive, tuple) else (positive,)
    if not values or "" in values:
        raise ValueError("name at least one value; an empty label is a bad row")
    if kind == "string":
        return LabelRule(texts=tuple(str(value).encode() for value in values))
    if len(values) == 1 and isinstance(values[0], str) and (found := _BOUND.fullmatch(values[0])):
        return LabelRule(operator=found[1], bound=_number(found[2]))
    return LabelRule(numbers=tuple(_number(value) for value in values))


def _number(value: Value) -> float:
    try:
        number = float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(
            f"{value!r} is not a number, and not a bound such as '>= 4'; set kind = \"string\" if the labels are texts"
        )
    return number
