"""What decides how rows of some tables begin and how they lie in files; a checkpoint of a store says it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recmill.embeddings.bounds import Bounds
from recmill.embeddings.store.first_values import FirstValues, first_values_of
from recmill.embeddings.store.layout import RecordLayout
from recmill.embeddings.table import TableSpec
from recmill.own_files import TEXT, ListOf, Table, whole
from recmill.seeds import stream_key
from recmill.settings.optimizers import TableOptimizer
from recmill.settings.tree import from_tree

STORE = "store.json"  # of a checkpoint whose rows lie in segments
_TABLE = Table(fields={"name": TEXT, "rows": whole(1)})
KIND_SHAPE = Table(
    fields={
        "tables": ListOf(of=_TABLE),
        "dim": whole(1, 1 << 16),
        "optimizer": Table(others=TEXT),
        "seed": whole(),
        "checksum": TEXT,
    }
)


@dataclass(frozen=True)
class StoreKind:
    """Tables of one dimension, their optimizer, and the seed of their first values."""

    specs: tuple[TableSpec, ...]
    dim: int
    optimizer: TableOptimizer
    seed: int

    @property
    def layout(self) -> RecordLayout:
        """Of a row in a file."""
        return RecordLayout(self.dim, self.optimizer.state_width(self.dim))

    @property
    def bounds(self) -> Bounds:
        """Where each table begins."""
        return Bounds(self.specs)

    @property
    def num_rows(self) -> int:
        """Of all tables."""
        return sum(spec.num_rows for spec in self.specs)

    @property
    def first_values(self) -> FirstValues:
        """What rows hold that were never changed."""
        return first_values_of(self.specs, self.dim, self.optimizer, self.seed)

    @property
    def store_key(self) -> int:
        """What files of these tables are recognised by."""
        facts = [f"{spec.name}:{spec.num_rows}" for spec in self.specs]
        return stream_key(self.seed, "store", *facts, self.dim, self.optimizer.kind)

    def to_json(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        tables = [{"name": spec.name, "rows": spec.num_rows} for spec in self.specs]
        numbers = {name: repr(value) for name, value in self.optimizer.numbers.items()}
        return {
            "tables": tables,
            "dim": self.dim,
            "optimizer": {"kind": self.optimizer.kind, **numbers},
            "seed": self.seed,
        }


def kind_from_json(content: Mapping[str, Any]) -> StoreKind:
    """What `to_json` wrote."""
    given = content["optimizer"]
    optimizer = from_tree(
        TableOptimizer,
        {"kind": given["kind"], **{name: float(value) for name, value in given.items() if name != "kind"}},
    )
    specs = tuple(TableSpec(table["name"], table["rows"]) for table in content["tables"])
    return StoreKind(specs, content["dim"], optimizer, content["seed"])
