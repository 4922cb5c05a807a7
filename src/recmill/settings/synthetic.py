"""What makes a synthetic world: the same settings give the same bytes."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from recmill.settings.tree import Settings

FIRST_SAMPLE_ROW = 1 << 62  # rows from here on are never written: the bias is found with them
LIST_LENGTH = 10


class SynthSpec(Settings):
    """A click log with a planted rule."""

    rows: int = Field(description="Rows of all days together.")
    days: int = Field(description="Files to spread them over.")
    seed: int = Field(default=0, description="The same seed gives the same bytes.")
    scale: float = Field(default=0.001, description="Distinct values, as a share of Criteo's.")
    click_rate: float = Field(default=0.25, description="Share of rows with a click.")

    def problems(self) -> Iterator[str]:
        """What cannot be a world."""
        if self.days < 1:
            yield f"days = {self.days} is rejected: a log has at least 1 day"
        elif not self.days <= self.rows < FIRST_SAMPLE_ROW:
            yield f"rows = {self.rows} is rejected: {self.days} days take {self.days} to 2^62 − 1 rows"
        if self.seed < 0:
            yield f"seed = {self.seed} is rejected: it is 0 or more"
        if not 0 < self.scale <= 1:
            yield f"scale = {self.scale} is rejected: it is above 0 and at most 1, Criteo's own size"
        if not 0.001 < self.click_rate < 0.999:
            yield f"click_rate = {self.click_rate} is rejected: it is between 0.001 and 0.999"

    def day_rows(self, day: int) -> range:
        """The rows of a day; days differ by at most one."""
        return range(self.rows * day // self.days, self.rows * (day + 1) // self.days)


class ChainSpec(Settings):
    """Events of users who follow planted chains of items."""

    users: int = Field(description="How many users.")
    items: int = Field(description="How many items, all of them in every chain.")
    seed: int = Field(default=0, description="The same seed gives the same bytes.")
    min_length: int = Field(default=10, description="Fewest events of a user.")
    max_length: int = Field(default=30, description="Most events of a user.")
    noise: float = Field(default=0.2, description="Share of events off the chain.")
    rules: int = Field(default=2, description="Chains, one of which each user follows.")

    def problems(self) -> Iterator[str]:
        """What cannot be a world."""
        if self.users < 1:
            yield f"users = {self.users} is rejected: give at least 1"
        if not 3 <= self.min_length <= self.max_length:
            yield (
                f"min_length = {self.min_length} and max_length = {self.max_length} are rejected: a user has at least "
                "3 events, one to learn from, one to validate and one to test"
            )
        if self.items < 2 * self.max_length + LIST_LENGTH:
            yield (
                f"items = {self.items} is rejected: nobody meets an item twice, so give at least "
                f"{2 * self.max_length + LIST_LENGTH}"
            )
        if not 0 <= self.noise < 1:
            yield f"noise = {self.noise} is rejected: it is 0 or more and less than 1"
        if not 1 <= self.rules <= LIST_LENGTH:
            yield f"rules = {self.rules} is rejected: it is 1 to {LIST_LENGTH}"
        if self.seed < 0:
            yield f"seed = {self.seed} is rejected: it is 0 or more"


class SynthTable(Settings):
    """A table of mixed columns with a planted rule."""

    kind: Literal["clicks", "shop"] = Field(description="Categories as in the Avazu log, or a shop's mixed columns.")
    rows: int = Field(default=100_000, description="How many rows.")
    seed: int = Field(default=0, description="The same seed gives the same bytes.")

    def problems(self) -> Iterator[str]:
        """What cannot be a world."""
        if not 10 <= self.rows <= 100_000_000:
            yield f"rows = {self.rows} is rejected: a table has 10 to 100,000,000 rows"
        if self.seed < 0:
            yield f"seed = {self.seed} is rejected: it is 0 or more"
