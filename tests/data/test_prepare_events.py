"""Event files to prepared sequences: against plain Python, killed and begun again, and with bad input."""

import gzip
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recmill.data.events import EVENT_PRESETS, EventRules, EventSchema
from recmill.data.prepare_events import EventJob, PreparedSequences, open_prepared_sequences, prepare_events
from recmill.errors import BadRowError, ConfigError, DataError, RunError
from tests.data.events_oracle import Event, Expected, sequences_of

CSV = EVENT_PRESETS["events"].schemas
HEADER = "user,item,time\n"


def prepared(path: Path, rules: EventRules, out: Path, **changes: Any) -> PreparedSequences:
    job = {"schemas": CSV, "rules": rules, "preset": "events", **changes}
    prepare_events(EventJob(path, out, **job), overwrite=True)
    return open_prepared_sequences(out, verify=True)


def as_expected(found: PreparedSequences) -> Expected:
    sequences, vocabulary = found.sequences, found.vocabulary
    users = range(sequences.num_users)
    return Expected(
        [vocabulary.user_name(user) for user in users],
        vocabulary.item_names(range(1, sequences.num_items + 1)),
        [sequences.events[sequences.offsets[u] : sequences.offsets[u + 1]].tolist() for u in users],
        sequences.train_lengths.tolist(),
        sequences.validation_at.tolist(),
        sequences.test_at.tolist(),
    )


def write_csv(path: Path, rows: list[Event]) -> Path:
    path.write_text(HEADER + "".join(f"{user},{item},{time}\n" for user, item, time in rows))
    return path


RULES = st.builds(
    EventRules,
    order=st.sampled_from(["time", "file", "item"]),
    min_length=st.integers(2, 4),
    max_length=st.one_of(st.none(), st.integers(4, 8)),
    min_item_count=st.integers(1, 3),
    k_core=st.booleans(),
    repeats=st.sampled_from(["keep", "first", "last"]),
    split=st.sampled_from(["leave_one_out", "last"]),
)
ROWS = st.lists(st.tuples(st.integers(-3, 6), st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=80)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, rules=RULES, part_bytes=st.integers(8, 200))
def test_any_events_give_what_plain_python_gives(
    rows: list[Event], rules: EventRules, part_bytes: int, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "events.csv", rows)
    expected = sequences_of(rows, rules)
    if not expected.users:
        with pytest.raises(DataError, match=r"no user of .* is left behind the filters"):
            prepared(path, rules, tmp_path / "out", part_bytes=part_bytes)
        assert not (tmp_path / ".out.preparing").exists(), "other rules may be tried at once"
        return
    assert as_expected(prepared(path, rules, tmp_path / "out", part_bytes=part_bytes)) == expected


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, test_frac=st.sampled_from([0.1, 0.3]), validation_frac=st.sampled_from([0.1, 0.25]))
def test_a_split_by_time_is_the_same_in_plain_python(
    rows: list[Event], test_frac: float, validation_frac: float, tmp_path: Path
) -> None:
    rules = EventRules(order="time", split="time", test_frac=test_frac, validation_frac=validation_frac)
    path = write_csv(tmp_path / "events.csv", rows)
    assert as_expected(prepared(path, rules, tmp_path / "out")) == sequences_of(rows, rules)


def random_rows(count: int, seed: int = 0) -> list[Event]:
    rng = random.Random(seed)
    return [(rng.randrange(40), rng.randrange(60), rng.randrange(1000)) for _ in range(count)]


def test_texts_as_users_and_items(tmp_path: Path) -> None:
    rows: list[Event] = [(f"ü{user}", f"item {item}", time) for user, item, time in random_rows(500)]
    schema = EventSchema(columns=("user", "item", "time"), time="time", user_kind="string", item_kind="string")
    rules = EventRules(order="time")
    path = write_csv(tmp_path / "events.csv", rows)
    found = prepared(path, rules, tmp_path / "out", schemas=(schema,))
    assert as_expected(found) == sequences_of(rows, rules)
    assert found.vocabulary.find_user("ü7") is not None
    assert found.vocabulary.find_item("item 3") == found.sequences.num_items - len(
        [name for name in as_expected(found).items if str(name) > "item 3"]
    )
    assert found.vocabulary.find_item("item 99") is None


def test_parquet_gives_what_text_gives(tmp_path: Path) -> None:
    rows = random_rows(400)
    rules = EventRules(order="time", min_length=3)
    from_text = as_expected(prepared(write_csv(tmp_path / "events.csv", rows), rules, tmp_path / "text"))
    users, items, times = zip(*rows, strict=True)
    pl.DataFrame({"who": users, "what": items, "when": times}).write_parquet(tmp_path / "events.parquet")
    schema = EventSchema(format="parquet", user="who", item="what", time="when")
    path = tmp_path / "events.parquet"
    assert as_expected(prepared(path, rules, tmp_path / "parquet", schemas=(schema,))) == from_text
    dates = pl.from_epoch(pl.Series(times), time_unit="s")
    pl.DataFrame({"who": users, "what": items, "when": dates}).write_parquet(path)
    assert as_expected(prepared(path, rules, tmp_path / "dates", schemas=(schema,))) == from_text


def test_a_parquet_file_without_the_column_or_with_a_hole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    pl.DataFrame({"who": [1, None], "what": [1, 2]}).write_parquet(path)
    for user, complaint in (("who", r"events.parquet: row 2 has no who"), ("whom", "whom")):
        schema = EventSchema(format="parquet", user=user, item="what")
        with pytest.raises(DataError, match=complaint):
            prepared(path, EventRules(), tmp_path / user, schemas=(schema,))


UNREAL = [
    ({"who": [1.0, 1.5]}, {}, "row 2: who is 1.5, which is no integer"),
    ({"when": [1.0, 1.7]}, {}, "row 2: when is 1.7, which is no integer"),
    ({"when": [2.5, float("nan")]}, {"time_kind": "float"}, "row 2: when is nan, which is too large or no number"),
    ({"when": [2.5, 1e300]}, {"time_kind": "float"}, r"row 2: when is 1e\+?300, which is too large"),
    ({"who": ["a", ""]}, {"user_kind": "string"}, "row 2: who is '', which is no name"),
    ({"who": ["7", "x"]}, {}, "row 2: who is 'x', which is no int"),
    ({"who": [7, None]}, {}, "row 2 has no who"),
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


def test_times_with_fractions_order_parquet_as_they_order_text(tmp_path: Path) -> None:
    rows = [(1, 7, 1.7), (1, 8, 1.2), (1, 9, 1.5)]
    (tmp_path / "events.csv").write_text(HEADER + "".join(f"{user},{item},{time}\n" for user, item, time in rows))
    pl.DataFrame(rows, schema=["user", "item", "time"], orient="row").write_parquet(tmp_path / "events.parquet")
    rules = EventRules(order="time", split="last")
    text = EventSchema(columns=("user", "item", "time"), time="time", time_kind="float")
    parquet = EventSchema(format="parquet", time="time", time_kind="float")
    from_text = as_expected(prepared(tmp_path / "events.csv", rules, tmp_path / "out", schemas=(text,)))
    assert as_expected(prepared(tmp_path / "events.parquet", rules, tmp_path / "out", schemas=(parquet,))) == from_text
    assert from_text.items == [8, 9]


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
    with pytest.raises(DataError, match=r"mine has no manifest.json and so is nothing that --overwrite may replace"):
        prepared(path, EventRules(), thesis.parent)
    assert thesis.read_text() == "years of work"
    prepared(path, EventRules(), tmp_path / "out")
    inside = tmp_path / "out" / "events.csv"
    path.rename(inside)
    with pytest.raises(DataError, match=r"events.csv is read from, and --overwrite would replace .*out"):
        prepared(inside, EventRules(), tmp_path / "out")
    assert inside.exists()


def test_work_begun_with_other_rules_is_in_nobody_s_way_who_overwrites(tmp_path: Path) -> None:
    path, out = write_csv(tmp_path / "events.csv", random_rows(100)), tmp_path / "out"
    (tmp_path / ".out.preparing").mkdir()
    (tmp_path / ".out.preparing" / "plan.json").write_text("{}")
    with pytest.raises(DataError, match=r"begun with other settings or on other files; .* pass --overwrite"):
        prepare_events(EventJob(path, out, CSV, EventRules(), "events"))
    assert as_expected(prepared(path, EventRules(), out)) == sequences_of(random_rows(100), EventRules())


def test_who_has_nothing_before_the_cut_is_counted(tmp_path: Path) -> None:
    rows: list[Event] = [(1, 5, 1), (1, 6, 2), (1, 5, 3), (1, 6, 4), (2, 5, 9), (2, 6, 10)]
    rules = EventRules(order="time", split="time", validation_frac=0.2)
    found = prepared(write_csv(tmp_path / "events.csv", rows), rules, tmp_path / "out")
    assert found.manifest["untargeted_users"] == 0, "the second event of user 2 can be predicted from the first"
    assert (found.manifest["rules"]["validation_frac"], found.manifest["rules"]["test_frac"]) == (0.2, 0.1)
    late = prepared(write_csv(tmp_path / "events.csv", rows[:-1]), rules, tmp_path / "out")
    assert late.manifest["untargeted_users"] == 1


def test_several_files_are_one_log_in_the_order_of_their_names(tmp_path: Path) -> None:
    rows = random_rows(300)
    rules = EventRules(order="file")
    whole = as_expected(prepared(write_csv(tmp_path / "all.csv", rows), rules, tmp_path / "whole"))
    parts = tmp_path / "parts"
    parts.mkdir()
    write_csv(parts / "a.csv", rows[:100])
    with gzip.open(parts / "b.csv.gz", "wt") as file:
        file.write(HEADER + "".join(f"{u},{i},{t}\n" for u, i, t in rows[100:]))
    assert as_expected(prepared(parts, rules, tmp_path / "parted")) == whole


# preset, header, and a row of a user, an item and a time
LAYOUTS = {
    "goodreads": ("goodreads", "user_id,book_id,is_read,rating,is_reviewed\n", "{},{},1,5,0\n"),
    "ml-1m": ("movielens", "", "{}::{}::5::{}\n"),
    "ml-100k": ("movielens", "", "{}\t{}\t3\t{}\n"),
    "inter": ("movielens", "user_id:token\titem_id:token\trating:float\ttimestamp:float\n", "{}\t{}\t4.5\t{}.25\n"),
    "ml-25m": ("movielens", "userId,movieId,rating,timestamp\n", "{},{},4.5,{}\n"),
    "beauty": ("user-item", "", "{} {}\n"),
    "tabs": ("user-item", "", "{}\t{}\n"),
    "windows": ("user-item", "", "{} {}\r\n"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_published_layouts_are_read(name: str, tmp_path: Path) -> None:
    preset_name, header, row = LAYOUTS[name]
    rows, preset = random_rows(600), EVENT_PRESETS[preset_name]
    path = tmp_path / "events"
    path.write_text(header + "".join(row.format(*event) for event in rows), newline="")
    rules = preset.rules.model_copy(update={"min_length": 10})
    found = prepared(path, rules, tmp_path / "out", schemas=preset.schemas, preset=preset_name)
    assert as_expected(found) == sequences_of(rows, rules)
    assert found.manifest["preset"] == preset_name


def test_filters_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "goodreads.csv"
    path.write_text(
        "user_id,book_id,is_read,rating,is_reviewed\n" + "".join(f"1,{b},{b % 2},{b % 6},0\n" for b in range(30))
    )
    preset = EVENT_PRESETS["goodreads"]
    read = prepared(path, EventRules(only_read=True), tmp_path / "read", schemas=preset.schemas)
    assert read.manifest["kept_rows"] == 15
    good = prepared(path, EventRules(min_rating=4), tmp_path / "good", schemas=preset.schemas)
    assert good.manifest["kept_rows"] == 10
    assert good.manifest["read"] == 30


def test_ties_keep_the_order_of_the_file_and_others_are_sorted(tmp_path: Path) -> None:
    rows: list[Event] = [(1, 5, 10), (1, 4, 10), (1, 9, 3), (2, 5, 1), (2, 4, 2), (2, 9, 3), (1, 5, 11), (1, 4, 12)]
    found = prepared(write_csv(tmp_path / "events.csv", rows), EventRules(order="time"), tmp_path / "out")
    assert found.manifest["reordered_users"] == 1
    names = found.vocabulary.item_names([1, 2, 3])
    assert [names[i - 1] for i in as_expected(found).events[0][:3]] == [9, 5, 4]


def test_items_that_only_the_future_has_get_no_id_and_users_with_one_event_only_train(tmp_path: Path) -> None:
    rows: list[Event] = [(1, 1, 1), (1, 2, 2), (1, 3, 3), (1, 4, 4), (2, 1, 1), (3, 1, 1), (3, 2, 2)]
    found = prepared(write_csv(tmp_path / "events.csv", rows), EventRules(order="time"), tmp_path / "out")
    expected = as_expected(found)
    assert expected.items == [1, 2]
    assert expected.events == [[1, 2, -1, -1], [1], [1, 2]]
    assert (expected.train_lengths, expected.test_at) == ([2, 1, 2], [3, -1, -1])
    assert (found.manifest["future_items"], found.manifest["future_events"]) == (2, 2)
    assert found.item_counts.tolist() == [3, 2]


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


def test_a_killed_preparation_goes_on_and_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(tmp_path / "events.csv", random_rows(2000))
    rules = EventRules(order="time", min_length=3, min_item_count=2, k_core=True)
    left_alone = prepared(path, rules, tmp_path / "left_alone", part_bytes=4000)
    for broken in ("write_part", "count_values", "chosen_values"):
        with monkeypatch.context() as patch:
            patch.setattr(f"recmill.data.interactions.{broken}", _fail_at_third())
            with pytest.raises(KeyboardInterrupt):
                prepared(path, rules, tmp_path / "killed", part_bytes=4000, jobs=1)
        assert not (tmp_path / "killed").exists()
    killed = prepared(path, rules, tmp_path / "killed", part_bytes=4000, jobs=1)
    for name in ("sequences.arrow", "items.arrow", "README.md"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "left_alone" / name).read_bytes()
    assert killed.manifest["files"] == left_alone.manifest["files"]


def _fail_at_third() -> Any:
    from recmill.data import interactions

    calls = 0
    original = interactions.write_part

    def fail(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3 or not isinstance(args[0], pl.DataFrame):
            raise KeyboardInterrupt
        return original(*args)

    return fail


def test_a_damaged_or_foreign_directory_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "events.csv", random_rows(50))
    prepared(path, EventRules(), tmp_path / "out")
    content = bytearray((tmp_path / "out" / "items.arrow").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "out" / "items.arrow").write_bytes(content)
    with pytest.raises(RunError, match=r"items.arrow is not the file that manifest.json lists"):
        open_prepared_sequences(tmp_path / "out", verify=True)
    with pytest.raises(DataError, match="holds no prepared sequences"):
        open_prepared_sequences(tmp_path)
