"""Which layout event files have, found without a schema."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from recmill.errors import DataError
from recmill.settings.events import EVENT_PRESETS, EventRules
from tests.data.event_files import CSV, as_expected, prepared, random_rows, write_csv
from tests.data.events_oracle import Event, sequences_of

BY_TIME = EventRules(order="time")


def write_parquet(path: Path, rows: list[Event], **columns: list[Any]) -> Path:
    users, items, times = zip(*rows, strict=True)
    pl.DataFrame({"user": users, "item": items, "time": times, **columns}).write_parquet(path)
    return path


def test_parquet_with_the_names_of_the_csv_needs_no_schema(tmp_path: Path) -> None:
    rows = random_rows(300)
    (tmp_path / "parts").mkdir()
    write_parquet(tmp_path / "parts" / "a.parquet", rows[:100])
    write_parquet(tmp_path / "parts" / "b.parquet", rows[100:])
    (tmp_path / "parts" / "_SUCCESS").touch()  # as Spark leaves it
    assert as_expected(prepared(tmp_path / "parts", BY_TIME, tmp_path / "out")) == sequences_of(rows, BY_TIME)


def test_parquet_with_texts_and_moments_needs_no_schema(tmp_path: Path) -> None:
    rows: list[Event] = [(f"u{user}", f"i{item}", time) for user, item, time in random_rows(300)]
    moments = [datetime.fromtimestamp(int(time), UTC).isoformat() for _, _, time in rows]
    path = write_parquet(tmp_path / "events.parquet", rows, time=moments)
    found = prepared(path, BY_TIME, tmp_path / "out")
    assert as_expected(found) == sequences_of(rows, BY_TIME)
    kinds = {name: found.manifest["schema"][name] for name in ("user_kind", "item_kind", "time_kind")}
    assert kinds == {"user_kind": "string", "item_kind": "string", "time_kind": "iso"}


def test_parquet_where_text_is_wanted_is_named(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    path = write_parquet(tmp_path / "parts" / "events.parquet", random_rows(30))
    with pytest.raises(
        DataError, match=r"events.parquet is a Parquet file, and schema goodreads is for text; .*events"
    ):
        prepared(path, EventRules(), tmp_path / "out", schemas=EVENT_PRESETS["goodreads"].schemas)
    with pytest.raises(DataError, match=r"events.parquet is a Parquet file, and schema events is for text"):
        prepared(path, EventRules(), tmp_path / "out", schemas=CSV[:1])
    write_csv(tmp_path / "parts" / "more.csv", random_rows(30))
    with pytest.raises(DataError, match=r"events.parquet is a Parquet file and .*more.csv is not"):
        prepared(tmp_path / "parts", EventRules(), tmp_path / "out")


@pytest.mark.parametrize(
    ("ratings", "row", "header", "others"),
    [
        ("ratings.dat", "{}::{}::5::{}\n", "", ("movies.dat", "users.dat", "README")),
        ("ratings.csv", "{},{},4.5,{}\n", "userId,movieId,rating,timestamp\n", ("movies.csv", "links.csv", "tags.csv")),
        ("u.data", "{}\t{}\t3\t{}\n", "", ("u.item", "u.user", "u1.base")),
    ],
)
def test_of_a_movielens_directory_the_ratings_are_read(
    ratings: str, row: str, header: str, others: tuple[str, ...], tmp_path: Path
) -> None:
    rows, preset, directory = random_rows(400), EVENT_PRESETS["movielens"], tmp_path / "ml"
    directory.mkdir()
    for name in others:
        (directory / name).write_bytes("1::Les Misérables (1995)::Drama\n".encode("latin-1"))
    (directory / ratings).write_text(header + "".join(row.format(*event) for event in rows))
    found = prepared(directory, preset.rules, tmp_path / "out", schemas=preset.schemas)
    assert as_expected(found) == sequences_of(rows, preset.rules)
    assert list(found.manifest["sources"]) == [str(directory / ratings)]
