"""Which items compete with the one that came next when a sequence model is evaluated."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from recmill.settings.tree import Renamed, Settings

Candidates = Literal["full", "uniform", "popularity"]
_LONG_LIST = 1000


class Protocol(Settings):
    """Who competes with the item that came next, and how long the evaluated lists are.

    full         all items of the catalogue
    uniform      num_negatives items that the user does not know, drawn evenly
    popularity   num_negatives items that the user does not know, drawn by how often they occur in training events
    """

    renamed: ClassVar[Mapping[str, Renamed]] = {"seen": Renamed("filter_seen", {"removed": True, "kept": False})}

    choice: ClassVar[str] = "candidates"
    of_every_choice: ClassVar[tuple[str, ...]] = ("cutoffs", "seed")

    candidates: Candidates = Field(default="full", description="The items that compete.")
    num_negatives: int | None = Field(default=None, ge=1, description="Items that are drawn; no value: 100.")
    filter_seen: bool = Field(default=True, description="Leave out items of the user's history; of full alone.")
    cutoffs: tuple[int, ...] = Field(default=(5, 10, 20), description="Lengths of the evaluated lists.")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Of the items that are drawn.")

    def problems(self) -> Iterator[str]:
        """What would do nothing."""
        if self.candidates == "full" and self.num_negatives is not None:
            yield (
                f"protocol.num_negatives = {self.num_negatives} does nothing for protocol.candidates = full; "
                "leave it out, or set protocol.candidates=uniform or popularity"
            )
        if self.candidates != "full" and not self.filter_seen:
            yield (
                f"protocol.filter_seen = false does nothing for protocol.candidates = {self.candidates}: "
                "no item that the user knows is drawn; leave it out"
            )
        if not self.cutoffs or min(self.cutoffs) < 1 or max(self.cutoffs) > _LONG_LIST:
            yield f"protocol.cutoffs = {list(self.cutoffs)}: lists have 1 to {_LONG_LIST} items"
        elif 10 not in self.cutoffs:
            yield (
                f"protocol.cutoffs = {list(self.cutoffs)} has no 10: the best weights are those with the best NDCG@10"
            )

    @property
    def num_drawn(self) -> int:
        """How many competitors are drawn; 0: all items compete."""
        return 0 if self.candidates == "full" else self.num_negatives or 100

    @property
    def suffix(self) -> str:
        """What the names of metrics end in, so that no number is taken for one of another protocol."""
        if self.candidates != "full":
            return f"_of_{self.num_drawn}_{self.candidates}"
        return "" if self.filter_seen else "_seen_kept"

    def resolved(self) -> dict[str, Any]:
        """Plain data in which nothing is left to a default."""
        plain = self.model_dump(mode="json", exclude_none=True)
        if not self.num_drawn:
            return plain
        del plain["filter_seen"]  # of drawn competitors none is known, and the target is always among them
        return {**plain, "num_negatives": self.num_drawn}

    @property
    def score_name(self) -> str:
        """The metric by which weights are compared."""
        return f"ndcg@10{self.suffix}"

    def describe(self) -> str:
        """In a few words."""
        if self.candidates == "full":
            return f"full ranking, seen items {'filtered' if self.filter_seen else 'kept'}"
        return f"{self.num_drawn} negatives, {self.candidates}"
