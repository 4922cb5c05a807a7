"""Columns, their roles, kinds, encodings and table sizes: the contract between data and models."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from recmill.errors import ConfigError
from recmill.settings.labels import LabelRule, Positive, label_rule
from recmill.settings.tree import Settings, from_tree, read_toml

Role = Literal["label", "weight", "time", "dense", "category", "ignored"]
Kind = Literal["int", "float", "hex", "string", "time"]
DenseTransform = Literal["log(x+3)", "log(x+2)", "log(x-min+2)", "identity"]
CategoryTransform = Literal["modulo", "hash", "xxhash64"]
MissingCategory = Literal["own_row", "last_row", "value_zero"]
Format = Literal["text", "parquet", "jsonl"]
TimeFormat = Literal["iso", "epoch_s", "epoch_ms", "YYMMDDHH", "YYYYMMDD"]
TimePart = Literal["hour", "weekday", "day", "month", "days", "age"]

# The roles and kinds that go together.
ROLE_KINDS: tuple[tuple[Role, Kind | None], ...] = (
    ("label", "int"),
    ("label", "float"),
    ("label", "string"),
    ("weight", "int"),
    ("weight", "float"),
    ("dense", "int"),
    ("dense", "float"),
    ("category", "hex"),
    ("category", "int"),
    ("category", "string"),
    ("time", "time"),
    ("ignored", None),
    ("ignored", "time"),
)
MAX_VALUES = 1024
DENSE_PARTS: tuple[TimePart, ...] = ("days", "age")  # of times; the others are categories
# Of a part of a time that is a category: rows for the numbers from 0 to the largest, and one for missing values.
PART_ROWS: dict[TimePart, int] = {"hour": 25, "weekday": 8, "day": 33, "month": 14}
FORBIDDEN_SEPARATORS = set('0123456789abcdefABCDEF+-.\n\r\0"')
# Keys that columns did not always have: left out of hashes where they say nothing, so that old checkpoints fit.
_YOUNGER_KEYS = ("positive", "time_format", "source", "part")
_READ_FROM: dict[str, str] = {}  # schemas as JSON, and their files: settings hold the content of a schema only


class Column(Settings):
    """One field of every row; what it says of its encoding comes before the `[encoding]` settings of the run."""

    name: str = Field(min_length=1, description="Its name, unique in the schema.")
    role: Role = Field(description="What the column is for.")
    kind: Kind | None = Field(default=None, description="How its text is read; an ignored column has none.")
    encoding: str | None = Field(default=None, description="How its values are encoded, if not as [encoding] says.")
    min: float | None = Field(default=None, description="Of a dense column: the minimum of log(x-min+2).")
    missing: float | str | None = Field(
        default=None, description="Dense: the x an empty field stands for; category: own_row, last_row or value_zero."
    )
    rows: int | None = Field(default=None, ge=1, description="Of a category column: the size of its table.")
    inner_separator: str | None = Field(
        default=None, description="Of a category of several values in text: what stands between them."
    )
    max_values: int | None = Field(
        default=None,
        ge=1,
        le=MAX_VALUES,
        description="Of a category of several values: how many count, whose rows are summed.",
    )

    positive: Positive | None = Field(
        default=None, description="Of a label: the value or values that are positive, or a bound such as '>= 4'."
    )
    time_format: TimeFormat | None = Field(default=None, description="Of kind time: how it is written; iso by default.")
    source: str | None = Field(default=None, description="The column of kind time that this one is a part of.")
    part: TimePart | None = Field(default=None, description="Which part of its source; days and age are dense.")

    def model_post_init(self, context: object) -> None:
        """Fill in what follows from the rest, then reject contradictions."""
        if self.kind == "time" and self.time_format is None:
            self.__dict__["time_format"] = "iso"
        if self.part is not None and self.kind is None:
            self.__dict__["kind"] = "float" if self.part in DENSE_PARTS else "int"
        if self.part is not None and self.part not in DENSE_PARTS and self.rows is None:
            self.__dict__["rows"] = PART_ROWS[self.part]
        super().model_post_init(context)

    def problems(self) -> Iterator[str]:
        """What makes no sense in this role."""
        if (self.role, self.kind) not in ROLE_KINDS:
            kinds = [kind for role, kind in ROLE_KINDS if role == self.role]
            yield f"column {self.name}: a {self.role} cannot be of kind {self.kind}; choose from {kinds}"
        yield from self._unless("rows", self.role == "category", "a category column has a table")
        for key in ("inner_separator", "max_values"):
            yield from self._unless(key, self.role == "category", "only categories may be several in one field")
        if self.inner_separator is not None and self.max_values is None:
            yield (
                f"column {self.name}: inner_separator is {self.inner_separator!r} and max_values is not given; "
                "a field of several values needs both"
            )
        yield from self._problems_of_label()
        yield from self._problems_of_time()
        yield from self._problems_of_encoding()

    def _problems_of_time(self) -> Iterator[str]:
        if self.time_format is not None and self.kind != "time":
            told = f"time_format = {self.time_format!r} does not go with kind {self.kind}"
            yield f'column {self.name}: {told}; set kind = "time"'
        if (self.source is None) != (self.part is None):
            given, other = ("source", "part") if self.part is None else ("part", "source")
            yield f"column {self.name}: {given} = {getattr(self, given)!r} needs {other}, too"
        if self.part is None:
            return
        role, kind = ("dense", "float") if self.part in DENSE_PARTS else ("category", "int")
        if (self.role, self.kind) != (role, kind):
            yield (
                f"column {self.name}: part = {self.part!r} is a {role} column of kind {kind}, and not a {self.role} of "
                f'kind {self.kind}; set role = "{role}" and leave out kind'
            )
        if self.max_values is not None:
            yield f"column {self.name}: max_values = {self.max_values}, and a part of a time is one; leave it out"

    def _problems_of_label(self) -> Iterator[str]:
        yield from self._unless("positive", self.role == "label", "only a label is positive or negative")
        if self.role == "label" and self.kind in ("float", "string") and self.positive is None:
            example = '">= 4"' if self.kind == "float" else '"yes"'
            yield (
                f"column {self.name}: a label of kind {self.kind} needs to say what is positive, such as "
                f"positive = {example}; without it a label is 0 or 1, of kind int"
            )
        if self.role == "label" and self.positive is not None:
            try:
                label_rule(self.positive, self.kind)
            except ValueError as error:
                yield f"column {self.name}: positive = {self.positive!r} does not go with kind {self.kind}: {error}"

    def _problems_of_encoding(self) -> Iterator[str]:
        encodings = {"dense": get_args(DenseTransform), "category": get_args(CategoryTransform)}.get(self.role, ())
        choices = f"choose from {list(encodings)}" if encodings else "only dense and category columns are encoded"
        yield from self._unless("encoding", self.encoding in encodings, choices)
        has_minimum = self.encoding == "log(x-min+2)"
        yield from self._unless("min", has_minimum, "only the encoding 'log(x-min+2)' has a minimum")
        if has_minimum and self.min is None:
            yield f"column {self.name}: the encoding 'log(x-min+2)' needs a minimum; give it as min = ..."
        if self.role == "dense":
            is_number = isinstance(self.missing, float)
            yield from self._unless("missing", is_number, "give the number an empty field stands for")
        else:
            stand_ins = get_args(MissingCategory) if self.role == "category" else ()
            choices = f"choose from {list(stand_ins)}" if stand_ins else "no value stands for an empty field here"
            yield from self._unless("missing", self.missing in stand_ins, choices)

    @property
    def label_rule(self) -> LabelRule | None:
        """Which fields are positive; None of a label that is 0 or 1."""
        return None if self.positive is None else label_rule(self.positive, self.kind)

    @property
    def is_several(self) -> bool:
        """Whether a field holds several values."""
        return self.max_values is not None

    @property
    def num_slots(self) -> int:
        """How many ids a row has for this column."""
        return (self.max_values or 1) if self.role == "category" else 0

    def facts(self) -> dict[str, Any]:
        """Plain data that tells columns apart; what a column does not say of labels is left out, as it always was."""
        told = self.model_dump(mode="json")
        return {key: value for key, value in told.items() if value is not None or key not in _YOUNGER_KEYS}

    @property
    def value_bits(self) -> int:
        """How many bits a category value has at most."""
        return 32 if self.kind == "hex" else 64

    def _unless(self, key: str, is_right: bool, way_out: str) -> Iterator[str]:
        value = getattr(self, key)
        if value is not None and not is_right:
            yield f"column {self.name}: {key} = {value!r} does not go with a {self.role} column; {way_out}"


class Schema(Settings):
    """The fields of a line, in their order; or the columns of Parquet or JSON lines, which are found by their names."""

    name: str = Field(description="What messages call it.")
    format: Format = Field(default="text", description="Of the files.")
    separator: str = Field(default="", description="Of text: what stands between two fields.")
    header: bool = Field(default=False, description="Every file begins with a line of the columns' names.")
    quoted: bool = Field(default=False, description="Fields may stand in double quotes.")
    decimal: Literal[".", ","] = Field(default=".", description="Of text: what stands before the decimals of a float.")
    columns: tuple[Column, ...] = Field(description="The fields of a line, in their order; and parts of times.")

    def problems(self) -> Iterator[str]:
        """What no file can satisfy."""
        yield from self._problems_of_format()
        for column in self.columns:
            inner = column.inner_separator
            if inner is not None and (inner == self.separator or not _can_separate(inner)):
                yield (
                    f"schema {self.name}: {inner!r} cannot separate the values of column {column.name}; "
                    "use a bar or a semicolon, other than what separates fields"
                )
        if not self.columns:
            yield f"schema {self.name} names no column; a line has at least one"
        names = [column.name for column in self.columns]
        if twice := {name for name in names if names.count(name) > 1}:
            yield f"schema {self.name} names {', '.join(sorted(twice))} more than once"
        yield from self._problems_of_times()
        for role in ("label", "weight", "time"):
            if len(self._names(role)) > 1:
                yield f"schema {self.name} has several {role}s: {', '.join(self._names(role))}"

    def _problems_of_times(self) -> Iterator[str]:
        times = [column.name for column in self.fields if column.kind == "time"]
        for column in self.columns:
            if column.source is not None and column.source not in times:
                known = f"columns of kind time are {', '.join(times)}" if times else 'no column has kind = "time"'
                yield f"schema {self.name}: column {column.name} has source = {column.source!r}; {known}"
            if column.part == "age" and (not self.of_role("time") or column.source == self.of_role("time")[0].name):
                yield (
                    f'schema {self.name}: column {column.name} has part = "age", the days from {column.source} to the '
                    'time of the row; give another column role = "time" and kind = "time"'
                )

    def _problems_of_format(self) -> Iterator[str]:
        if self.format != "text":
            for key in ("separator", "header", "quoted", "decimal"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    told = "JSON lines" if self.format == "jsonl" else self.format.capitalize()
                    way_out = f"{key} is for text; leave it out of a schema of {told}"
                    yield f"schema {self.name}: {way_out}"
            return
        if not _can_separate(self.separator):
            yield f"schema {self.name}: {self.separator!r} cannot separate fields; use a tab or a comma"
        if self.decimal == self.separator == "," and not self.quoted:
            yield (
                f"schema {self.name}: decimal = {self.decimal!r} is what separates fields too; "
                "set quoted = true if numbers stand in quotes, or another separator"
            )
        for column in self.columns:
            if column.is_several and column.inner_separator is None:
                yield (
                    f"schema {self.name}: column {column.name} has max_values = {column.max_values} and no "
                    "inner_separator; a field of several values needs both"
                )

    def __str__(self) -> str:
        return f"schema {self.name}"

    @property
    def origin(self) -> str | None:
        """A file with this content that was read by this process, if one was; for messages."""
        return _READ_FROM.get(self.model_dump_json())

    @property
    def fields(self) -> tuple[Column, ...]:
        """The columns that files have, in file order; the others are parts of these."""
        return tuple(column for column in self.columns if column.source is None)

    def field_of(self, column: Column) -> Column:
        """The column of a file that a column is read from: itself, or its source."""
        return column if column.source is None else next(each for each in self.fields if each.name == column.source)

    @property
    def fields_read(self) -> tuple[Column, ...]:
        """The columns of files that something is read from, in file order."""
        read = {self.field_of(column).name for column in self.columns if column.role != "ignored"}
        return tuple(field for field in self.fields if field.name in read)

    def of_role(self, role: Role) -> tuple[Column, ...]:
        """The columns of a role, in file order."""
        return tuple(column for column in self.columns if column.role == role)

    def _names(self, role: Role) -> tuple[str, ...]:
        return tuple(column.name for column in self.of_role(role))

    @property
    def has_label(self) -> bool:
        """Whether rows say what happened; rows to be scored do not."""
        return bool(self._names("label"))

    @property
    def has_weight(self) -> bool:
        """Whether rows say how much they count."""
        return bool(self._names("weight"))

    @property
    def dense_names(self) -> tuple[str, ...]:
        """The number columns, in file order."""
        return self._names("dense")

    @property
    def category_names(self) -> tuple[str, ...]:
        """The category columns, in file order."""
        return self._names("category")

    @property
    def num_slots(self) -> int:
        """How many ids a row has: one for a category of a single value, `max_values` for one of several."""
        return sum(column.num_slots for column in self.columns)

    @property
    def slot_columns(self) -> tuple[int, ...]:
        """For every slot, which of the category columns it belongs to."""
        return tuple(i for i, column in enumerate(self.of_role("category")) for _ in range(column.num_slots))

    @property
    def slots_may_be_absent(self) -> tuple[bool, ...]:
        """For every slot, whether a row may leave it empty: one of several of a column."""
        return tuple(column.num_slots > 1 for column in self.of_role("category") for _ in range(column.num_slots))

    @property
    def slot_names(self) -> tuple[str, ...]:
        """For every slot its column's name, with its place if there are several."""
        return tuple(
            column.name if column.num_slots == 1 else f"{column.name}[{i}]"
            for column in self.of_role("category")
            for i in range(column.num_slots)
        )


def _can_separate(text: str) -> bool:
    return len(text.encode()) == 1 and text not in FORBIDDEN_SEPARATORS


def _without_what_is_ignored(column: Any) -> Any:
    """An ignored column may say whatever it said before it was ignored; only a time may be a source of parts."""
    if not isinstance(column, dict) or column.get("role") != "ignored":
        return column
    kept = ("name", "role", "kind", "time_format") if column.get("kind") == "time" else ("name", "role")
    return {key: value for key, value in column.items() if key in kept}


def schema_from_tree(tree: Mapping[str, Any], origin: str) -> Schema:
    """Validate the contents of a schema file; every complaint names where they come from."""
    columns = tree.get("columns")
    if isinstance(columns, list):
        tree = {**tree, "columns": [_without_what_is_ignored(column) for column in columns]}
    try:
        return from_tree(Schema, tree, "schema")
    except ConfigError as error:
        raise ConfigError("\n".join(f"{origin}: {line}" for line in str(error).splitlines())) from None


def read_schema(path: Path) -> Schema:
    """The schema in a TOML file, named after the file unless it gives a name itself."""
    if not path.is_file():
        raise ConfigError(
            f"there is no schema file {path}; write a first one with `recmill schema infer FILE --out {path}`"
        )
    schema = schema_from_tree({"name": path.stem, **read_toml(path)}, str(path))
    _READ_FROM[schema.model_dump_json()] = str(path)
    return schema
