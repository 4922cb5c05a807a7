"""Settings of events: which columns of a file say what, which events are kept, and the published layouts by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from recmill.settings.tree import Settings, from_tree, read_toml

IdKind = Literal["int", "string"]
TimeKind = Literal["int", "float", "iso"]
EventOrder = Literal["time", "file", "item"]
# last: what leave_one_out tests on, with the validation events to learn from too
EventSplit = Literal["leave_one_out", "last", "time"]


class EventSchema(Settings):
    """Which columns of a text or Parquet file hold the user, the item and, if known, the time, rating and read flag."""

    name: str = Field(default="events", min_length=1, description="What messages call it.")
    format: Literal["text", "parquet"] = Field(default="text", description="Of the files.")
    separator: str = Field(
        default=",", min_length=1, max_length=2, description="Of text: one character, or the same one twice as in ::."
    )
    header: bool = Field(default=True, description="The first line names the columns.")
    columns: tuple[str, ...] = Field(default=(), description="Of text: all columns in their order.")
    user: str = Field(default="user", description="The column that holds the user.")
    item: str = Field(default="item", description="The column that holds the item.")
    time: str | None = Field(default=None, description="The column that holds the time of an event.")
    rating: str | None = Field(default=None, description="The column that holds a rating.")
    is_read: str | None = Field(default=None, description="The column that is 1 for a book read, 0 for one shelved.")
    user_kind: IdKind = Field(default="int", description="How users are written.")
    item_kind: IdKind = Field(default="int", description="How items are written.")
    time_kind: TimeKind = Field(
        default="int", description="How times are written; not said: int, or iso (ISO 8601) if the first rows are."
    )
    quoted: bool = Field(default=False, description="Fields may stand in double quotes, within a line.")

    def problems(self) -> Iterator[str]:
        """Separators that cannot separate, and roles that no column has."""
        if len(self.separator) == 2 and self.separator[0] != self.separator[1]:
            yield f"schema {self.name}: separator {self.separator!r} is two different characters"
        if set(self.separator) & set('0123456789+-.\n\r\0"'):
            yield f"schema {self.name}: separator {self.separator!r} may be part of a number or a line"
        if self.format == "parquet":
            if self.columns:
                yield f"schema {self.name}: Parquet files name their columns themselves; leave out columns"
            return
        for role in ("user", "item", "time", "rating", "is_read"):
            column = getattr(self, role)
            if column is not None and column not in self.columns:
                yield f"schema {self.name}: {role} = {column!r} is none of its columns {', '.join(self.columns)}"
        if len(set(self.columns)) != len(self.columns):
            yield f"schema {self.name}: a name stands twice among columns {', '.join(self.columns)}"

    def kind_of(self, role: str) -> str:
        """int, float, iso or string."""
        return {
            "user": self.user_kind,
            "item": self.item_kind,
            "time": self.time_kind,
            "rating": "float",
            "is_read": "int",
        }[role]


class EventRules(Settings):
    """Which events are kept, in what order, and which of them are held out.

    Rows are filtered first (is_read, rating), then repeats; then items with fewer than min_item_count events, then
    users with fewer than min_length or more than max_length: once, or with k_core until nothing changes.
    """

    order: EventOrder = Field(default="file", description="Of a user's events; ties keep the order of the files.")
    min_length: int = Field(default=1, ge=1, description="Users with fewer events are dropped.")
    max_length: int | None = Field(default=None, ge=1, description="Users with more events are dropped.")
    min_item_count: int = Field(default=1, ge=1, description="Items with fewer events are dropped.")
    k_core: bool = Field(default=False, description="Repeat these rules until nothing changes.")
    only_read: bool = Field(default=False, description="Keep events with is_read = 1 alone.")
    min_rating: float | None = Field(default=None, description="Keep events with this rating or a better one.")
    repeats: Literal["keep", "first", "last"] = Field(default="keep", description="Of the same user and item.")
    split: EventSplit = Field(default="leave_one_out", description="What is held out.")
    validation_frac: float | None = Field(default=None, gt=0, lt=1, description="Of events, for split = time; 0.1.")
    test_frac: float | None = Field(default=None, gt=0, lt=1, description="Of events, for split = time; 0.1.")

    def problems(self) -> Iterator[str]:
        """What contradicts itself or does nothing."""
        if self.max_length is not None and self.max_length < self.min_length:
            yield f"--max-length {self.max_length} is less than --min-length {self.min_length}"
        if self.split == "time" and self.order != "time":
            yield f"--split time cuts at a moment and --order is {self.order}; set --order time if the files have times"
        for option, value in (("--validation-frac", self.validation_frac), ("--test-frac", self.test_frac)):
            if value is not None and self.split != "time":
                yield f"{option} {value} does nothing for --split {self.split}; set --split time"
        if self.heldout_frac >= 1:
            yield f"--validation-frac {self.validation_frac} and --test-frac {self.test_frac} leave nothing to train on"
        if self.k_core and self.min_length == 1 and self.min_item_count == 1:
            yield "--k-core repeats --min-length and --min-item-count, and both are 1; set one of them"

    def resolved(self) -> dict[str, Any]:
        """Plain data in which nothing is left to a default."""
        rules = self.model_dump(mode="json", exclude_none=True)
        if self.split == "time":
            rules |= {"validation_frac": self.middle_frac, "test_frac": self.last_frac}
        return rules

    @property
    def middle_frac(self) -> float:
        """The share of events between the two cuts."""
        return self.validation_frac or 0.1

    @property
    def last_frac(self) -> float:
        """The share of events behind the second cut."""
        return self.test_frac or 0.1

    @property
    def heldout_frac(self) -> float:
        """The share of events behind the first cut."""
        return self.middle_frac + self.last_frac


@dataclass(frozen=True)
class EventPreset:
    """A published layout of files, several variants of it if there are, and the rules that go with it."""

    name: str
    schemas: tuple[EventSchema, ...]
    rules: EventRules
    origin: str


def _ratings(
    name: str, separator: str, columns: str, *, header: bool = True, with_fractions: bool = False
) -> EventSchema:
    """Files of user, item, rating and time, in this order."""
    user, item, rating, time = columns.split()
    return EventSchema(
        name=name,
        separator=separator,
        header=header,
        columns=(user, item, rating, time),
        user=user,
        item=item,
        rating=rating,
        time=time,
        time_kind="float" if with_fractions else "int",
    )


EVENT_PRESETS = {
    preset.name: preset
    for preset in (
        EventPreset(
            "goodreads",
            (
                EventSchema(
                    name="goodreads",
                    columns=("user_id", "book_id", "is_read", "rating", "is_reviewed"),
                    user="user_id",
                    item="book_id",
                    rating="rating",
                    is_read="is_read",
                ),
            ),
            EventRules(order="file", min_length=20),
            "goodreads_interactions.csv: users with 20 books or more (published: at most 200), in file order",
        ),
        EventPreset(
            "movielens",
            (
                _ratings("movielens ::", "::", "user item rating time", header=False),
                _ratings("movielens tab", "\t", "user item rating time", header=False),
                _ratings(
                    "movielens inter",
                    "\t",
                    "user_id:token item_id:token rating:float timestamp:float",
                    with_fractions=True,
                ),
                _ratings("movielens csv", ",", "userId movieId rating timestamp"),
            ),
            EventRules(order="time", min_length=5),
            "ratings.dat (::), u.data (tab), .inter (tab, header) and ratings.csv; users with 5 ratings, by time",
        ),
        EventPreset(
            "user-item",
            (
                EventSchema(name="user-item", separator=" ", header=False, columns=("user", "item")),
                EventSchema(name="user-item tab", separator="\t", header=False, columns=("user", "item")),
            ),
            EventRules(order="file"),
            "lines of `user item`, in their order, as BERT4Rec's and SASRec's own files",
        ),
        EventPreset(
            "events",
            (
                EventSchema(columns=("user", "item", "time"), time="time"),
                EventSchema(name="events parquet", format="parquet", time="time"),
            ),
            EventRules(order="time"),
            "CSV with the header user,item,time, as `recmill synth interactions` writes it, or Parquet with these "
            "columns; others with --schema FILE",
        ),
    )
}


def read_event_schema(path: Path) -> EventSchema:
    """A schema of one's own."""
    return from_tree(EventSchema, read_toml(path), str(path))
