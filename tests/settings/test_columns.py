"""A schema refuses what no file can satisfy, and tells the kernel what it needs to know."""

import re
from pathlib import Path
from typing import get_args

import pytest

from recmill.data.text import fields
from recmill.data.text.layout import KERNEL_KINDS, layout_of
from recmill.errors import ConfigError
from recmill.settings.columns import (
    FORBIDDEN_SEPARATORS,
    ROLE_KINDS,
    Column,
    Kind,
    Role,
    Schema,
    read_schema,
    schema_from_tree,
)
from recmill.settings.criteo import CRITEO, CRITEO_UNLABELLED
from recmill.settings.tree import from_tree
from tests.data.lines import CITY, COUNT, DEVICE, LABEL, MIXED, SEVERAL, UNLABELLED, schema_of

ROLES: tuple[Role, ...] = get_args(Role)
KINDS: tuple[Kind | None, ...] = (None, *get_args(Kind))


def test_every_role_has_its_kinds_and_no_others() -> None:
    accepted = set()
    for role in ROLES:
        for kind in KINDS:
            try:
                positive = 1 if role == "label" and kind in ("float", "string") else None
                Column(name="x", role=role, kind=kind, positive=positive)
            except ConfigError as error:
                assert str(error).startswith(f"column x: a {role} cannot be of kind {kind}; choose from [")  # noqa: PT017
            else:
                accepted.add((role, kind))
    assert accepted == set(ROLE_KINDS) == set(KERNEL_KINDS)
    kernel_kinds = [kind for (role, _), kind in KERNEL_KINDS.items() if role not in ("label", "weight", "ignored")]
    assert len(set(kernel_kinds)) == len(kernel_kinds)


def test_a_wrong_kind_is_answered_with_the_right_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        Column(name="price", role="dense", kind="hex")
    assert str(caught.value) == "column price: a dense cannot be of kind hex; choose from ['int', 'float']"


@pytest.mark.parametrize("separator", [*sorted(FORBIDDEN_SEPARATORS), "", "::", "é", "\t\t"])
def test_a_separator_that_fields_contain_is_refused(separator: str) -> None:
    with pytest.raises(ConfigError) as caught:
        schema_of(LABEL, COUNT, separator=separator)
    assert str(caught.value) == f"schema small: {separator!r} cannot separate fields; use a tab or a comma"


@pytest.mark.parametrize("separator", ["\t", ",", ";", "|", " ", "\x01", ":"])
def test_other_separators_are_accepted(separator: str) -> None:
    assert layout_of(schema_of(LABEL, COUNT, separator=separator)).separator == ord(separator)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^schema small names city, count more than once$"):
        schema_of(COUNT, CITY, COUNT, CITY, DEVICE)


def test_two_labels_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^schema small has several labels: clicked, bought$"):
        schema_of(LABEL, COUNT, Column(name="bought", role="label", kind="int"))


def test_a_schema_without_columns_is_refused() -> None:
    """The kernel would find a row in every nothing, for ever."""
    with pytest.raises(ConfigError, match=r"^schema small .*column"):
        schema_of()


def test_unknown_settings_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r'^columns\.0\.rol = "dense" is not a setting'):
        from_tree(Schema, {"name": "x", "separator": ",", "columns": [{"name": "a", "rol": "dense", "role": "dense"}]})


def test_columns_are_listed_by_role_in_file_order() -> None:
    assert MIXED.has_label
    assert MIXED.dense_names == ("price", "count")
    assert MIXED.category_names == ("city", "shop", "device")
    assert not UNLABELLED.has_label
    assert UNLABELLED.dense_names == ("count", "price")
    assert UNLABELLED.category_names == ("city", "device", "shop")


def _runs(schema: Schema) -> list[fields.FieldRun]:
    return [fields.FieldRun._make([*run[:5].tolist(), run[5:]]) for run in layout_of(schema).runs]


def test_the_layout_names_every_column_to_the_kernel() -> None:
    layout = layout_of(MIXED)
    assert layout.separator == ord(",")
    assert layout.num_fields == len(MIXED.columns)
    runs = _runs(MIXED)
    assert [field for run in runs for field in range(run.place, run.place + run.end - run.first)] == list(range(7))
    kinds = [run.kind for run in runs for _ in range(run.first, run.end)]
    assert kinds == [
        fields.LABEL,
        fields.FLOAT_NUMBER,
        fields.STRING_CATEGORY,
        fields.INT_CATEGORY,
        fields.IGNORED,
        fields.HEX_CATEGORY,
        fields.INT_NUMBER,
    ]
    for role, kernel_kinds in (
        ("dense", {fields.INT_NUMBER, fields.FLOAT_NUMBER}),
        ("category", {fields.HEX_CATEGORY, fields.INT_CATEGORY, fields.STRING_CATEGORY}),
    ):
        places = [place for run in runs if run.kind in kernel_kinds for place in range(run.first, run.end)]
        assert places == list(range(sum(column.role == role for column in MIXED.columns)))


@pytest.mark.parametrize("schema", [CRITEO, MIXED, UNLABELLED], ids=lambda schema: schema.name)
def test_a_schema_survives_being_written_down(schema: Schema) -> None:
    assert from_tree(Schema, schema.model_dump(mode="json")) == schema


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        ({"role": "dense", "kind": "int", "rows": 5}, "rows = 5 does not go with a dense column"),
        (
            {"role": "dense", "kind": "int", "encoding": "hash"},
            "encoding = 'hash' does not go with a dense column; cho",
        ),
        ({"role": "dense", "kind": "int", "encoding": "log(x-min+2)"}, "needs a minimum; give it as min = ..."),
        ({"role": "dense", "kind": "int", "min": 1}, "min = 1.0 does not go with a dense column; only the encoding"),
        ({"role": "dense", "kind": "int", "missing": "own_row"}, "missing = 'own_row' does not go with a dense column"),
        ({"role": "category", "kind": "int", "encoding": "identity"}, "choose from ['modulo', 'hash', 'xxhash64']"),
        ({"role": "category", "kind": "int", "missing": 0}, "choose from ['own_row', 'last_row', 'value_zero']"),
        ({"role": "label", "kind": "int", "missing": 0}, "no value stands for an empty field here"),
        ({"role": "ignored", "encoding": "hash"}, "only dense and category columns are encoded"),
    ],
)
def test_what_does_not_go_with_a_role_is_refused_by_name(column: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_tree(Column, {"name": "x", **column})
    assert str(caught.value).startswith("column x: ")
    assert complaint in str(caught.value)


def test_a_column_of_several_values_needs_a_separator_and_a_limit() -> None:
    with pytest.raises(ConfigError, match=r"^column x: .*; a field of several values needs both$"):
        from_tree(Column, {"name": "x", "role": "category", "kind": "int", "inner_separator": "|"})
    with pytest.raises(ConfigError, match=r"column x has max_values = 3 and .*; a field of several values needs both$"):
        schema_of(Column(name="x", role="category", kind="int", max_values=3))
    for given in ({"inner_separator": "|", "max_values": 3}, {"max_values": 3}):
        with pytest.raises(ConfigError, match="only categories may be several in one field"):
            from_tree(Column, {"name": "x", "role": "dense", "kind": "int", **given})
    for inner in (",", "7", "||", ""):
        tags = Column(name="tags", role="category", kind="string", inner_separator=inner, max_values=3)
        with pytest.raises(ConfigError, match="cannot separate the values of column tags; use a bar or a semicolon"):
            schema_of(LABEL, tags, separator=",")


@pytest.mark.parametrize("given", [{"separator": ","}, {"header": True}, {"quoted": True}])
def test_what_only_text_has_is_refused_for_parquet(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(given))} is for text; leave it out of a schema of Parquet"):
        from_tree(
            Schema, {"name": "small", "format": "parquet", "columns": [{"name": "x", "role": "ignored"}], **given}
        )


def test_text_needs_a_separator_and_an_unknown_format_is_refused() -> None:
    tree = {"name": "small", "columns": [{"name": "x", "role": "ignored"}]}
    with pytest.raises(ConfigError, match="schema small: '' cannot separate fields; use a tab or a comma"):
        from_tree(Schema, tree)
    with pytest.raises(ConfigError, match="format"):
        from_tree(Schema, {**tree, "format": "orc"})


def test_slots_are_counted_and_laid_out_side_by_side() -> None:
    assert [column.num_slots for column in SEVERAL.columns] == [0, 3, 1, 4, 0, 2, 1]
    assert SEVERAL.num_slots == 11
    runs = _runs(SEVERAL)
    categories = [run for run in runs if run.kind not in (fields.LABEL, fields.INT_NUMBER)]
    assert [(run.first, run.end) for run in categories] == [(0, 3), (3, 4), (4, 8), (8, 10), (10, 11)]
    assert [run.place for run in runs] == list(range(7))


def test_a_file_is_named_in_every_complaint(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text("separator = ','\ncolums = []\n[[columns]]\nname = 'a'\nrol = 'label'\n")
    with pytest.raises(ConfigError) as caught:
        read_schema(path)
    assert f"{path}: colums = [] is not a setting; did you mean columns" in str(caught.value)
    assert f'{path}: columns.0.rol = "label" is not a setting; did you mean columns.0.role?' in str(caught.value)
    assert f"{path}: columns.0.role is not set\n" in str(caught.value) + "\n"


def test_a_schema_file_that_is_absent_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no schema file .*none\.toml; write a first one"):
        read_schema(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("columns = [")
    with pytest.raises(ConfigError, match=r"bad\.toml is not TOML"):
        read_schema(tmp_path / "bad.toml")


def test_rows_to_be_scored_differ_by_the_label_alone() -> None:
    assert CRITEO.columns[1:] == CRITEO_UNLABELLED.columns
    assert CRITEO.columns[0].role == "label"


def test_a_part_of_a_time_needs_little() -> None:
    time = Column(name="when", role="time", kind="time")
    assert time.time_format == "iso"
    hour = Column(name="hour", role="category", source="when", part="hour")
    assert (hour.kind, hour.rows) == ("int", 25)
    days = Column(name="days", role="dense", source="when", part="days")
    assert (days.kind, days.rows) == ("float", None)
    schema = schema_of(hour, LABEL, time, days)
    assert [column.name for column in schema.fields] == ["clicked", "when"]
    assert layout_of(schema).num_fields == 2
    assert from_tree(Schema, schema.model_dump(mode="json")) == schema
    assert from_tree(Schema, schema.to_tree()) == schema


def test_columns_without_times_have_the_facts_they_always_had() -> None:
    assert not {"time_format", "source", "part", "positive"} & set(COUNT.facts())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"role": "dense", "kind": "int", "time_format": "iso"}, 'does not go with kind int; set kind = "time"'),
        ({"role": "category", "kind": "int", "source": "when"}, "source = 'when' needs part, too"),
        ({"role": "category", "part": "hour"}, "part = 'hour' needs source, too"),
        ({"role": "dense", "source": "when", "part": "hour"}, 'set role = "category" and leave out kind'),
        ({"role": "category", "source": "when", "part": "days"}, 'set role = "dense" and leave out kind'),
        ({"role": "category", "source": "when", "part": "hour", "max_values": 2}, "is one; leave it out"),
    ],
)
def test_a_time_that_contradicts_itself_is_rejected(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        Column(name="x", **settings)


def test_a_source_is_a_column_of_kind_time() -> None:
    hour = Column(name="hour", role="category", source="when", part="hour")
    with pytest.raises(ConfigError, match="column hour has source = 'when'; no column has kind = \"time\""):
        schema_of(LABEL, hour)
    first, second = (Column(name=name, role="time", kind="time") for name in ("first", "second"))
    with pytest.raises(ConfigError, match="columns of kind time are first"):
        schema_of(first, hour)
    with pytest.raises(ConfigError, match="has several times: first, second"):
        schema_of(first, second)


def test_an_ignored_column_of_a_file_may_say_whatever_it_said_before() -> None:
    said = {"kind": "string", "rows": 9, "inner_separator": "|", "max_values": 3, "encoding": "hash"}
    columns = [
        {"name": "y", "role": "label", "kind": "int"},
        {"name": "id", "role": "ignored", **said},
        {"name": "at", "role": "ignored", "kind": "time", "time_format": "epoch_s", "rows": 3},
    ]
    schema = schema_from_tree({"name": "own", "separator": ",", "columns": columns}, "own.toml")
    assert schema.columns[1] == Column(name="id", role="ignored")
    assert (schema.columns[2].kind, schema.columns[2].time_format) == ("time", "epoch_s")
