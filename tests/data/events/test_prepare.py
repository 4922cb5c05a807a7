"""Event files to prepared sequences: against plain Python, killed and begun again, and with bad input."""

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recmill.errors import DataError
from recmill.settings.events import EVENT_PRESETS, EventRules, EventSchema
from tests.data.event_files import HEADER, as_expected, prepared, random_rows, write_csv
from tests.data.events_oracle import Event, sequences_of

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


def test_texts_as_users_and_items(tmp_path: Path) -> None:
    rows: list[Event] = [(f"ü{user}", f"item {item}", time) for user, item, time in random_rows(500)]
    schema = EventSchema(columns=("user", "item", "time"), time="time", user_kind="string", item_kind="string")
    rules = EventRules(order="time")
    path = write_csv(tmp_path / "events.csv", rows)
    found = prepared(path, rules, tmp_path / "out", schemas=(schema,))
    assert as_expected(found) == sequences_of(rows, rules)
    assert found.catalogue.find_user("ü7") is not None
    assert found.catalogue.find_items(["item 3"])[0] == found.sequences.num_items - len(
        [name for name in as_expected(found).items if str(name) > "item 3"]
    )
    assert found.catalogue.find_items(["item 99"]).tolist() == [0]


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


@pytest.mark.parametrize("layout", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S+00:00"])
def test_iso_times_are_found_by_the_first_rows_and_order_as_numbers_do(layout: str, tmp_path: Path) -> None:
    rows, rules = random_rows(400), EventRules(order="time")
    expected = sequences_of(rows, rules)
    moments = [datetime.fromtimestamp(time, UTC).strftime(layout) for _, _, time in rows]
    users, items, _ = zip(*rows, strict=True)
    path = tmp_path / "events.csv"
    lines = [f"{user},{item},{moment}\n" for user, item, moment in zip(users, items, moments, strict=True)]
    path.write_text(HEADER + "".join(lines))
    assert as_expected(prepared(path, rules, tmp_path / "out", part_bytes=500)) == expected
    pl.DataFrame({"user": users, "item": items, "time": moments}).write_parquet(tmp_path / "events.parquet")
    schema = EventSchema(format="parquet", time="time")
    found = prepared(tmp_path / "events.parquet", rules, tmp_path / "out", schemas=(schema,))
    assert as_expected(found) == expected
    assert found.manifest["schema"]["time_kind"] == "iso"


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
    rules = preset.rules.with_({"min_length": 10})
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
    names = found.catalogue.item_names([1, 2, 3])
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


def test_a_killed_preparation_goes_on_and_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(tmp_path / "events.csv", random_rows(2000))
    rules = EventRules(order="time", min_length=3, min_item_count=2, k_core=True)
    left_alone = prepared(path, rules, tmp_path / "left_alone", part_bytes=4000)
    for broken in ("write_part", "count_values", "chosen_values"):
        with monkeypatch.context() as patch:
            patch.setattr(f"recmill.data.events.interactions.{broken}", _fail_at_third())
            with pytest.raises(KeyboardInterrupt):
                prepared(path, rules, tmp_path / "killed", part_bytes=4000, jobs=1)
        assert not (tmp_path / "killed").exists()
    killed = prepared(path, rules, tmp_path / "killed", part_bytes=4000, jobs=1)
    for name in ("sequences.arrow", "items.arrow", "README.md"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "left_alone" / name).read_bytes()
    assert killed.manifest["files"] == left_alone.manifest["files"]


def _fail_at_third() -> Any:
    from recmill.data.events import interactions

    calls = 0
    original = interactions.write_part

    def fail(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3 or not isinstance(args[0], pl.DataFrame):
            raise KeyboardInterrupt
        return original(*args)

    return fail
