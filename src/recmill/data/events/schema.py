"""Events of users and items: which columns of a file say what, the published layouts by name, and the slow reader.

The fast reader (`interactions.py`) takes plain files; what it stumbles over is read again here, line by line, and
accepted or refused by file, line and value.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from recmill.data.logs.text_file import Source
from recmill.errors import BadRowError, ConfigError, DataError
from recmill.settings.tree import Settings, from_tree, read_toml

IdKind = Literal["int", "string"]
Order = Literal["time", "file", "item"]
# last: what leave_one_out tests on, with the validation events to learn from too
Split = Literal["leave_one_out", "last", "time"]
_INT = re.compile(r"[+-]?[0-9]+")
_SHOWN = 60
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MICROSECONDS = 1_000_000  # times with fractions are kept as whole numbers of these


class EventSchema(Settings):
    """Which columns of a text or Parquet file hold the user, the item and, if known, the time, rating and read flag."""

    name: str = Field(default="events", min_length=1)
    format: Literal["text", "parquet"] = "text"
    separator: str = Field(default=",", min_length=1, max_length=2)  # of text; two characters: both the same, as in ::
    header: bool = True  # the first line names the columns
    columns: tuple[str, ...] = ()  # of text: all columns in their order
    user: str = "user"
    item: str = "item"
    time: str | None = None
    rating: str | None = None
    is_read: str | None = None  # 1: read, 0: only put on a shelf
    user_kind: IdKind = "int"
    item_kind: IdKind = "int"
    time_kind: Literal["int", "float"] = "int"
    quoted: bool = False  # fields may stand in double quotes, within a line

    def model_post_init(self, _context: object) -> None:
        """Refuse roles that no column plays."""
        if len(self.separator) == 2 and self.separator[0] != self.separator[1]:
            raise ConfigError(f"schema {self.name}: separator {self.separator!r} is two different characters")
        if set(self.separator) & set('0123456789+-.\n\r\0"'):
            raise ConfigError(f"schema {self.name}: separator {self.separator!r} may be part of a number or a line")
        if self.format == "parquet":
            if self.columns:
                raise ConfigError(f"schema {self.name}: Parquet files name their columns themselves; leave out columns")
            return
        for role in ("user", "item", "time", "rating", "is_read"):
            column = getattr(self, role)
            if column is not None and column not in self.columns:
                raise ConfigError(
                    f"schema {self.name}: {role} = {column!r} is none of its columns {', '.join(self.columns)}"
                )
        if len(set(self.columns)) != len(self.columns):
            raise ConfigError(f"schema {self.name}: a name stands twice among columns {', '.join(self.columns)}")

    def kind_of(self, role: str) -> str:
        """int, float or string."""
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

    order: Order = "file"
    min_length: int = Field(default=1, ge=1)
    max_length: int | None = Field(default=None, ge=1)
    min_item_count: int = Field(default=1, ge=1)
    k_core: bool = False
    only_read: bool = False
    min_rating: float | None = None
    repeats: Literal["keep", "first", "last"] = "keep"  # of events with the same user and item
    split: Split = "leave_one_out"
    validation_frac: float | None = Field(default=None, gt=0, lt=1)  # of events, by time; of split = time alone
    test_frac: float | None = Field(default=None, gt=0, lt=1)

    def model_post_init(self, _context: object) -> None:
        """Refuse what contradicts itself or does nothing."""
        if self.max_length is not None and self.max_length < self.min_length:
            raise ConfigError(f"--max-length {self.max_length} is less than --min-length {self.min_length}")
        if self.split == "time" and self.order != "time":
            raise ConfigError(
                f"--split time cuts at a moment and --order is {self.order}; set --order time, if the files have times"
            )
        for option, value in (("--validation-frac", self.validation_frac), ("--test-frac", self.test_frac)):
            if value is not None and self.split != "time":
                raise ConfigError(f"{option} {value} does nothing for --split {self.split}; set --split time")
        if self.heldout_frac >= 1:
            raise ConfigError(
                f"--validation-frac {self.validation_frac} and --test-frac {self.test_frac} leave nothing to train on"
            )
        if self.k_core and self.min_length == 1 and self.min_item_count == 1:
            raise ConfigError("--k-core repeats --min-length and --min-item-count, and both are 1; set one of them")

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
            (EventSchema(columns=("user", "item", "time"), time="time"),),
            EventRules(order="time"),
            "CSV with the header user,item,time, as `recmill synth interactions` writes it; others with --schema FILE",
        ),
    )
}


def read_event_schema(path: Path) -> EventSchema:
    """A schema of one's own."""
    return from_tree(EventSchema, read_toml(path), str(path))


class Layout(NamedTuple):
    """Files that one schema fits, and where their rows begin."""

    schema: EventSchema
    paths: tuple[Path, ...]


def find_event_files(data: Path) -> tuple[Path, ...]:
    """A single file, or all of a directory in the order of their names; hidden ones are left out."""
    if data.is_file():
        return (data,)
    if not data.is_dir():
        raise DataError(f"there is no file or directory {data}")
    paths = tuple(sorted(path for path in data.iterdir() if path.is_file() and not path.name.startswith(".")))
    if not paths:
        raise DataError(f"{data} holds no file")
    return paths


def split_fields(line: str, schema: EventSchema) -> list[str]:
    """The fields of a line without its newline."""
    if schema.quoted and '"' in line:
        return next(csv.reader([line], delimiter=schema.separator[0], strict=True), [""])
    return line.split(schema.separator)


def choose_schema(source: Source, schemas: tuple[EventSchema, ...]) -> EventSchema:
    """The schema that fits a file's first line, by its header or by the number of fields; moves to its first row."""
    first = source.buffer[: source.line_end(0)].tobytes()
    if first.startswith(_BYTE_ORDER_MARK):
        source.rows_start = len(_BYTE_ORDER_MARK)
    line = first.removeprefix(_BYTE_ORDER_MARK).decode(errors="replace").rstrip("\r")
    for schema in schemas:
        fields = split_fields(line, schema)
        if schema.header and tuple(fields) == schema.columns:
            source.rows_start = min(source.line_end(0) + 1, source.num_bytes)
            return schema
        if not schema.header and len(fields) == len(schema.columns) and _is_row(fields, schema):
            return schema
    raise DataError(
        f"{source.path}:1: {shorten(line)} is not what is expected there: {' or '.join(map(_expect, schemas))}; "
        "for other columns, name them in a schema: --preset events --schema FILE.toml"
    )


def _is_row(fields: list[str], schema: EventSchema) -> bool:
    """Whether a first line may be a row: with integer users and items, the names of columns are none."""
    values = dict(zip(schema.columns, fields, strict=True))
    ids = [values[schema.user]] * (schema.user_kind == "int") + [values[schema.item]] * (schema.item_kind == "int")
    return all(_INT.fullmatch(text.strip()) for text in ids)


def _expect(schema: EventSchema) -> str:
    kind = "the header" if schema.header else "a row of"
    return f"{kind} {schema.separator.join(schema.columns)!r}"


def shorten(text: str) -> str:
    """A value for a message."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


class BadEvent(NamedTuple):
    """A line of text, or a row of Parquet, that cannot be an event, and why."""

    number: int
    reason: str

    def complain(self, path: Path, separator: str = ":") -> BadRowError:
        """The error that names it."""
        return BadRowError(
            f"{path}{separator}{self.number}{self.reason} "
            "(mend the file, or pass --bad-rows skip to count such rows and go on)"
        )


def parse_lines(
    text: bytes, first_line: int, schema: EventSchema, roles: tuple[str, ...]
) -> tuple[dict[str, list[Any]], list[BadEvent]]:
    """Every line of some text, one by one: the values of the roles, and the lines that have none."""
    values: dict[str, list[Any]] = {role: [] for role in roles}
    bad = list[BadEvent]()
    lines = text.split(b"\n")
    for number, raw in enumerate(lines[:-1] if lines[-1] == b"" else lines, start=first_line):
        line = raw.removesuffix(b"\r")
        if not line:
            continue
        parsed = _parse_line(line, schema, roles)
        if isinstance(parsed, str):
            bad.append(BadEvent(number, f": {parsed}"))
        else:
            for role, value in zip(roles, parsed, strict=True):
                values[role].append(value)
    return values, bad


def _parse_line(line: bytes, schema: EventSchema, roles: tuple[str, ...]) -> list[Any] | str:
    try:
        fields = split_fields(line.decode(), schema)
    except (UnicodeDecodeError, csv.Error) as error:
        return f"the line cannot be read: {error}: {shorten(line.decode(errors='backslashreplace'))}"
    if len(fields) != len(schema.columns):
        return (
            f"the line has {len(fields)} fields, schema {schema.name} expects {len(schema.columns)} separated by "
            f"{schema.separator!r}: {shorten(line.decode())}"
        )
    by_name = dict(zip(schema.columns, fields, strict=True))
    parsed = list[Any]()
    for role in roles:
        value = _parse_field(by_name[getattr(schema, role)], role, schema)
        if isinstance(value, str) and schema.kind_of(role) != "string":
            return value
        if value == "":
            return f"{getattr(schema, role)} is empty"
        parsed.append(value)
    return parsed


def _parse_field(text: str, role: str, schema: EventSchema) -> int | float | str:
    """The value or, of numbers, a text that says what is wrong."""
    kind, column = schema.kind_of(role), getattr(schema, role)
    if kind == "string":
        return text
    text = text.strip()
    if kind == "float":
        try:
            number = float(text)
        except ValueError:
            return f"{column} is {shorten(text)}, which is no number"
        return number if abs(number) < 2**43 else f"{column} is {shorten(text)}, which is too large or no number"
    whole = read_int(text)
    if whole is None:
        return f"{column} is {shorten(text)}, which is no integer of 64 bits{way_out(role, text, schema)}"
    if role == "is_read" and whole not in (0, 1):
        return f"{column} is {shorten(text)}; it is 0 or 1"
    return whole


def way_out(role: str, text: str = "", schema: EventSchema | None = None) -> str:
    """What in a schema would make a value right that is no integer, if it is known."""
    if text.startswith('"') and schema is not None and not schema.quoted:
        return "; a schema with quoted = true reads fields in quotes"
    kinds = {"user": "string", "item": "string", "time": "float"}
    return f'; a schema may say {role}_kind = "{kinds[role]}"' if role in kinds else ""


def read_int(text: str) -> int | None:
    """The integer of 64 bits that a text is, if it is one."""
    text = text.strip()
    return int(text) if _INT.fullmatch(text) and -(2**63) <= int(text) < 2**63 else None
