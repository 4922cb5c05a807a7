"""What a preparation of events does with files, values and rules that it cannot use."""

import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from recmill.data.events.prepare import EventJob, open_prepared_sequences, prepare_events
from recmill.data.events.windows import Sequences, problems_of
from recmill.errors import BadRowError, ConfigError, DataError
from recmill.settings.events import EVENT_PRESETS, EventRules, EventSchema
from tests.data.event_files import CSV, HEADER, as_expected, prepared, random_rows, write_csv
from tests.data.events_oracle import sequences_of
from tests.laws.hostile import tell, told_of


def test_a_parquet_file_without_the_column_or_with_a_hole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    pl.DataFrame({"who": [1, None], "what": [1, 2]}).write_parquet(path)
    for user, complaint in (
        ("who", r"events.parquet: row 2 has no who"),
        ("whom", "unable to find column|whom.* not found"),
    ):
        schema = EventSchema(format="parquet", user=user, item="what")
        with pytest.raises(DataError, match=complaint):
            prepared(path, EventRules(), tmp_path / user, schemas=(schema,))


UNREAL = [
    ({"who": [1.0, 1.5]}, {}, "row 2: who is 1.5, which is no integer"),
    ({"when": [1.0, 1.7]}, {}, "row 2: when is 1.7, which is no integer"),
    ({"when": [2.0, float("nan")]}, {}, "row 2: when is nan, which is no int"),
    ({"when": [2.5, float("nan")]}, {"time_kind": "float"}, "row 2: when is nan, which is too large or no number"),
    ({"when": [2.5, 1e300]}, {"time_kind": "float"}, r"row 2: when is 1e\+?300, which is too large"),
    ({"who": ["a", ""]}, {"user_kind": "string"}, "row 2: who is '', which is no name"),
    ({"who": ["7", "x"]}, {}, "row 2: who is 'x', which is no int"),
    ({"who": [7, None]}, {}, "row 2 has no who"),
    ({"who": [Decimal("1.0"), Decimal("1.5")]}, {}, "row 2: who is .*1.5.*, which is no integer"),
    ({"who": [1.0, 1e19]}, {}, "row 2: who is 1e.19, which is no int"),
    (
        {"when": [5, 1_700_000_000_000_000]},
        {"time_kind": "float"},
        "row 2: when is 1700000000000000, which is too large",
    ),
    ({"when": ["5", "nan"]}, {"time_kind": "float"}, "row 2: when is 'nan', which is too large or no number"),
    ({"read": [1, 2]}, {}, "row 2: read is 2, and not 0 or 1"),
    ({"what": [[1], [2]]}, {}, r"column what is of type List\(Int64\), which is no int"),
]


@pytest.mark.parametrize(("columns", "kinds", "complaint"), UNREAL)
def test_a_parquet_value_that_a_text_could_not_have_is_refused(
    columns: dict[str, list[Any]], kinds: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "events.parquet"
    pl.DataFrame({"who": [1, 1], "what": [1, 2], "when": [1, 2], "read": [1, 0], **columns}).write_parquet(path)
    schema = EventSchema(format="parquet", user="who", item="what", time="when", is_read="read", **kinds)
    rules, is_of_column = EventRules(order="time", only_read=True), complaint.startswith("column")
    with pytest.raises(DataError, match=complaint):
        prepared(path, rules, tmp_path / "out", schemas=(schema,))
    if not is_of_column:
        found = prepared(path, rules, tmp_path / "out", schemas=(schema,), bad_rows="skip")
        assert (found.manifest["read"], found.manifest["skipped_rows"]) == (1, 1)


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    lines = "\ufeff1 5\n1 6\n1 7\n"
    schemas = EVENT_PRESETS["user-item"].schemas
    (tmp_path / "plain").write_text(lines)
    plain = prepared(tmp_path / "plain", EventRules(), tmp_path / "out", schemas=schemas)
    assert (as_expected(plain).users, plain.manifest["skipped_rows"]) == ([1], 0)
    (tmp_path / "bad").write_text(lines + "what\n")
    with pytest.raises(BadRowError, match="bad:4: "):
        prepared(tmp_path / "bad", EventRules(), tmp_path / "refused", schemas=schemas)
    skipped = prepared(tmp_path / "bad", EventRules(), tmp_path / "out", schemas=schemas, bad_rows="skip")
    assert (as_expected(skipped), skipped.manifest["skipped_rows"]) == (as_expected(plain), 1)


def test_an_empty_file_says_nothing_of_the_layout(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "a").touch()
    with gzip.open(parts / "b.gz", "wb"):
        pass
    (parts / "c").write_text("1\t5\n1\t6\n1\t7\n")  # the second layout of the preset
    found = prepared(parts, EventRules(), tmp_path / "out", schemas=EVENT_PRESETS["user-item"].schemas)
    assert as_expected(found).events == [[1, -1, -1]]


def test_only_what_was_prepared_is_overwritten(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "events.csv", random_rows(100))
    thesis = tmp_path / "mine" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    for more in ("notes.txt", "manifest.json"):  # another program's manifest is none of ours
        (thesis.parent / more).write_text('{"files": {}}')
        with pytest.raises(DataError, match=r"mine is nothing that this command has written, and --overwrite will not"):
            prepared(path, EventRules(), thesis.parent)
    assert thesis.read_text() == "years of work"
    prepared(path, EventRules(), tmp_path / "out")
    inside = tmp_path / "out" / "events.csv"
    path.rename(inside)
    with pytest.raises(DataError, match=r"events.csv is read from, and --overwrite would replace .*out"):
        prepared(inside, EventRules(), tmp_path / "out")
    assert inside.exists()


def test_a_link_is_refused_and_what_it_names_stays(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "events.csv", random_rows(100))
    before = as_expected(prepared(path, EventRules(), tmp_path / "real"))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(DataError, match=r"link is a link; name the directory itself, .*real"):
        prepared(path, EventRules(), tmp_path / "link")
    assert as_expected(open_prepared_sequences(tmp_path / "real", verify="always")) == before


def test_a_run_killed_between_its_name_and_its_end_leaves_nothing_that_is_taken_for_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(tmp_path / "events.csv", random_rows(100))
    before = as_expected(prepared(path, EventRules(), tmp_path / "out"))

    def die(*_words: object, **_more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("recmill.data.events.prepare.shutil.rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            prepared(path, EventRules(), tmp_path / "out")
    assert as_expected(prepared(path, EventRules(), tmp_path / "out")) == before
    assert {each.name for each in tmp_path.iterdir()} == {"events.csv", "out"}


def test_work_begun_with_other_rules_is_in_nobody_s_way_who_overwrites(tmp_path: Path) -> None:
    path, out = write_csv(tmp_path / "events.csv", random_rows(100)), tmp_path / "out"
    (tmp_path / ".out.preparing").mkdir()
    (tmp_path / ".out.preparing" / "plan.json").write_text("{}")
    with pytest.raises(DataError, match=r"begun with other settings or on other files; .* pass --overwrite"):
        prepare_events(EventJob(path, out, CSV, EventRules(), "events"))
    assert as_expected(prepared(path, EventRules(), out)) == sequences_of(random_rows(100), EventRules())


BAD_LINES = [
    ("7,8", "the line has 2 fields, schema events expects 3 separated by ',': '7,8'"),
    ("7,8,9,10", "the line has 4 fields"),
    ("x,8,9", "user is 'x', which is no integer of 64 bits"),
    ("7,,9", "item is '', which is no integer of 64 bits"),
    ("7,8,99999999999999999999", "time is '99999999999999999999', which is no integer"),
    ("7,8.5,9", "item is '8.5', which is no integer"),
]


@pytest.mark.parametrize(("line", "complaint"), BAD_LINES)
def test_a_bad_line_is_named_or_counted(line: str, complaint: str, tmp_path: Path) -> None:
    rows = random_rows(50)
    path = write_csv(tmp_path / "events.csv", rows)
    path.write_text(path.read_text() + line + "\n" + "1,2,3\n")
    for part_bytes in (64, 1 << 20):
        with pytest.raises(BadRowError) as caught:
            prepared(path, EventRules(order="time"), tmp_path / "out", part_bytes=part_bytes)
        assert str(caught.value).startswith(f"{path}:52: {complaint}")
        found = prepared(path, EventRules(order="time"), tmp_path / "out", part_bytes=part_bytes, bad_rows="skip")
        assert found.manifest["skipped_rows"] == 1
        assert as_expected(found) == sequences_of([*rows, (1, 2, 3)], EventRules(order="time"))


@pytest.mark.parametrize(
    ("written", "kinds", "complaint"),
    [
        ("2024-05-31T12:00:00Z", {"time_kind": "int"}, r"no integer of 64 bits; a schema may say time_kind = \"iso\" "),
        ("1.5", {}, r"no integer of 64 bits; a schema may say time_kind = \"float\" "),
        ("31.05.2024", {}, r"no integer of 64 bits \("),
        ("31.05.2024", {"time_kind": "iso"}, "no ISO 8601 time as 2024-05-31T12:00:00Z "),
    ],
)
def test_of_many_bad_times_the_first_is_named_with_what_helps(
    written: str, kinds: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HEADER + f"7,8,{written}\n" * 500)
    schema = EventSchema(columns=("user", "item", "time"), time="time", **kinds)
    for part_bytes in (len(path.read_bytes()) - 30, 100):  # the last parts are shorter, and done first
        with pytest.raises(BadRowError, match=rf"events.csv:2: time is '{written}', which is {complaint}"):
            prepared(path, EventRules(order="time"), tmp_path / "out", schemas=(schema,), part_bytes=part_bytes)


def test_many_bad_lines_stop_even_those_who_ignore_them(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "events.csv", random_rows(300))
    path.write_text(path.read_text() + "7,8,soon\n" * 10)
    more: dict[str, Any] = {"bad_rows": "skip", "part_bytes": 500}
    with pytest.raises(
        BadRowError, match=r"10 of 310 lines read are bad .*0.01 .*events.csv:302: time is 'soon'.*:303: "
    ):
        prepared(path, EventRules(order="time"), tmp_path / "out", **more)
    found = prepared(path, EventRules(order="time"), tmp_path / "out", max_bad_frac=0.05, **more)
    assert found.manifest["skipped_rows"] == 10
    users = [1] * 300 + [None] * 10
    pl.DataFrame({"user": users, "item": range(310), "time": range(310)}).write_parquet(tmp_path / "events.parquet")
    with pytest.raises(BadRowError, match=r"10 of 310 lines read are bad .*events.parquet: row 301 has no user"):
        prepared(tmp_path / "events.parquet", EventRules(order="time"), tmp_path / "out", **more)


def test_a_moment_that_is_none_is_named_among_others(tmp_path: Path) -> None:
    moments = ["2024-05-31T12:00:00Z"] * 30
    moments[24] = "2024-02-30"
    path = tmp_path / "events.csv"
    path.write_text(HEADER + "".join(f"1,{item},{moment}\n" for item, moment in enumerate(moments)))
    with pytest.raises(BadRowError, match=r"events.csv:26: time is '2024-02-30', which is no ISO 8601 time"):
        prepared(path, EventRules(order="time"), tmp_path / "out")
    pl.DataFrame({"user": [1] * 30, "item": range(30), "time": moments}).write_parquet(tmp_path / "events.parquet")
    schema = EventSchema(format="parquet", time="time")
    with pytest.raises(BadRowError, match=r"events.parquet: row 25: time is '2024-02-30', which is no ISO 8601 time"):
        prepared(tmp_path / "events.parquet", EventRules(order="time"), tmp_path / "out", schemas=(schema,))


def test_a_header_that_does_not_match_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("user;item;time\n1;2;3\n")
    with pytest.raises(DataError, match=r"events.csv:1: 'user;item;time' is not what is expected there: the header"):
        prepared(path, EventRules(), tmp_path / "out")


@pytest.mark.parametrize(("content", "complaint"), [("", "holds no event"), (HEADER, "holds no event")])
def test_no_event_at_all(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=complaint):
        prepared(path, EventRules(), tmp_path / "out")


def test_filters_that_leave_nothing_say_so(tmp_path: Path) -> None:
    path = tmp_path / "goodreads.csv"
    path.write_text("user_id,book_id,is_read,rating,is_reviewed\n1,2,0,0,0\n")
    with pytest.raises(DataError, match="the filters let none of 1 events through"):
        prepared(path, EventRules(only_read=True), tmp_path / "out", schemas=EVENT_PRESETS["goodreads"].schemas)


def test_a_filter_without_its_column_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "events.csv", random_rows(5))
    with pytest.raises(DataError, match="--min-rating needs a column rating, and schema events has none"):
        prepared(path, EventRules(min_rating=3), tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"min_length": 5, "max_length": 4}, "--max-length 4 is less than --min-length 5"),
        ({"split": "time"}, "--split time cuts at a moment and --order is file"),
        ({"test_frac": 0.1}, "--test-frac 0.1 does nothing"),
        ({"split": "time", "order": "time", "test_frac": 0.5, "validation_frac": 0.5}, "leave nothing to train on"),
        ({"k_core": True}, "--k-core repeats"),
    ],
)
def test_rules_that_contradict_themselves(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        EventRules(**changes)


def test_a_damaged_or_foreign_directory_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "events.csv", random_rows(50))
    prepared(path, EventRules(), tmp_path / "out")
    content = bytearray((tmp_path / "out" / "items.arrow").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "out" / "items.arrow").write_bytes(content)
    with pytest.raises(DataError, match=r"items.arrow is not the file that manifest.json lists"):
        open_prepared_sequences(tmp_path / "out", verify="always")
    with pytest.raises(DataError, match="holds no prepared sequences"):
        open_prepared_sequences(tmp_path)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("events", 0, 0),
        ("events", 0, -1),
        ("events", 0, 10_000),
        ("events", 0, -5),
        ("offsets", 1, -1),
        ("offsets", 1, 1 << 40),
        ("offsets", 0, -(1 << 40)),
        ("offsets", -1, 1 << 40),
        ("train_lengths", 0, -1),
        ("train_lengths", 0, 10_000),
        ("validation_at", 0, -2),
        ("test_at", 0, 10_000),
    ],
)
def test_sequences_that_would_mislead_kernels_are_refused(tmp_path: Path, name: str, place: int, value: int) -> None:
    """With a manifest that knows them so."""
    path = write_csv(tmp_path / "events.csv", random_rows(50))
    sequences = prepared(path, EventRules(), tmp_path / "out").sequences
    arrays = {key: np.array(array) for key, array in sequences._asdict().items() if key != "num_items"}
    arrays[name][place] = value
    assert next(problems_of(Sequences(**arrays, num_items=sequences.num_items)), None)
    assert not list(problems_of(sequences))


def test_a_sequences_file_with_lying_offsets_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "events.csv", random_rows(50))
    opened = prepared(path, EventRules(), tmp_path / "out")
    offsets = np.array(opened.sequences.offsets)
    offsets[1] = 1 << 40
    file = tmp_path / "out" / "sequences.arrow"
    content = file.read_bytes()
    assert content.count(opened.sequences.offsets.tobytes()) == 1
    altered = content.replace(opened.sequences.offsets.tobytes(), offsets.tobytes())
    tell(tmp_path / "out", lambda directory, manifest: told_of(directory, manifest, "sequences.arrow", altered))
    with pytest.raises(DataError, match=r"sequences\.arrow is damaged: .*prepare the data anew"):
        open_prepared_sequences(tmp_path / "out")
