"""How raw columns become numbers and table rows."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from recmill.settings.columns import DenseTransform, MissingCategory
from recmill.settings.tree import Settings


class Encoding(Settings):
    """How raw columns become numbers and rows; the defaults are recmill's own."""

    dense: DenseTransform = Field(default="log(x+3)", description="What is done to every dense number x.")
    dense_min: float | None = Field(default=None, description="The minimum of log(x-min+2), over all files.")
    dense_missing: float = Field(default=0.0, description="The x that an empty dense field stands for.")
    category: Literal["modulo", "hash", "xxhash64", "vocabulary"] = Field(
        default="modulo", description="How a category value becomes a table row; a vocabulary is for all columns."
    )
    category_missing: MissingCategory = Field(
        default="own_row",
        description="The row of an empty category: row 0 (own_row), the last one (last_row), or that of the value 0.",
    )

    def problems(self) -> Iterator[str]:
        """Settings that contradict each other."""
        if (self.dense == "log(x-min+2)") != (self.dense_min is not None):
            yield (
                f"encoding.dense_min is {self.dense_min} and encoding.dense is {self.dense!r}: "
                "the minimum is needed by 'log(x-min+2)' and by nothing else"
            )
