"""What an embedding table is, and how its rows are updated."""

from dataclasses import dataclass

from recmill.settings.click_models import Pooling


@dataclass(frozen=True)
class TableSpec:
    """A table of `num_rows` vectors, looked up by the category column of the same name.

    A column of several values has as many slots; the rows of those it holds are summed, or averaged.
    """

    name: str
    num_rows: int
    num_slots: int = 1
    pooling: Pooling = "sum"
