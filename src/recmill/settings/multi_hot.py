"""How many ids each category column has, where one is made into several by MLPerf's rule."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from recmill.errors import ConfigError
from recmill.settings.columns import MAX_VALUES, Schema

Distribution = Literal["uniform", "pareto"]
MLPERF_SIZES = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)


@dataclass(frozen=True)
class MultiHot:
    """How many ids each category column has, and how all but the first are drawn."""

    sizes: tuple[int, ...]
    distribution: Distribution = "uniform"

    @property
    def num_slots(self) -> int:
        """Of all columns together."""
        return sum(self.sizes)


def resolve_sizes(given: object) -> object:
    """`mlperf` and `3,2,1` as numbers; what is neither is left for others to reject."""
    if given == "mlperf":
        return MLPERF_SIZES
    if isinstance(given, str):
        try:
            return tuple(int(size) for size in given.split(","))
        except ValueError:
            raise ConfigError(f"data.multi_hot = {given!r} is neither mlperf nor numbers such as 3,2,1") from None
    return tuple(given) if isinstance(given, list) else given


def problems_of_sizes(sizes: Sequence[int], schema: Schema) -> Iterator[str]:
    """What does not fit the columns."""
    columns = schema.of_role("category")
    if len(sizes) != len(columns):
        yield f"data.multi_hot has {len(sizes)} numbers; schema {schema.name} has {len(columns)} category columns"
        return
    for column, size in zip(columns, sizes, strict=True):
        if not 1 <= size <= MAX_VALUES:
            yield f"data.multi_hot gives column {column.name} {size} ids; it can have 1 to {MAX_VALUES}"
        if column.is_several:
            yield (
                f"data.multi_hot makes several ids of one, and column {column.name} holds several values already; "
                "leave out data.multi_hot"
            )
