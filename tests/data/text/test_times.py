"""Times, and parts of them, are what Python's datetime makes of them: in the kernel, the slow parser and Parquet."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.logs.formats import FORMATS
from recmill.data.text.fields import MISSING_CATEGORY
from recmill.data.text.kernel import FINISHED, parse_rows
from recmill.data.text.layout import layout_of
from recmill.data.text.reference import BadRow, Row, read_row
from recmill.errors import ConfigError, DataError
from recmill.settings.columns import Column, Format, Schema
from tests.data.lines import COUNT, PARTS, part_of, schema_of, time_column, workspace

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ANY_TIME = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC))


def _schema(time_format: str, text_format: str = "text") -> Schema:
    time = time_column(time_format)
    columns = (time, *(part_of(time, part) for part in PARTS))
    if text_format == "text":
        return schema_of(*columns, separator="\t")
    return Schema(name="typed", format="parquet", columns=columns)


def _expected(moment: datetime) -> tuple[float, list[int]]:
    return (moment - EPOCH) // timedelta(seconds=1) / 86400, [
        moment.hour,
        moment.weekday(),
        moment.day,
        moment.month,
    ]


def _parsed(field: str, schema: Schema) -> tuple[float, list[int]]:
    """By the kernel, which must not ask."""
    work = workspace(schema, 1)
    line = np.frombuffer(field.encode() + b"\n", np.uint8)
    assert parse_rows(line, 0, len(line), layout_of(schema), work) == (1, len(line), FINISHED)
    return float(work.raw.numbers[0, 0]), work.raw.values[0].tolist()


def _read(field: str, schema: Schema) -> tuple[float, list[int]]:
    row = read_row(field.encode(), schema)
    assert isinstance(row, Row)
    return row.numbers[0], list(row.values)


@settings(deadline=None)
@given(ANY_TIME, st.sampled_from(["T", " "]), st.integers(-1439, 1439))
def test_iso_times_are_what_python_says(moment: datetime, between: str, offset_minutes: int) -> None:
    there = moment.astimezone(timezone(timedelta(minutes=offset_minutes)))
    schema = _schema("iso")
    for written in (there.isoformat(between), moment.isoformat(between).replace("+00:00", "Z")):
        assert _parsed(written, schema) == _read(written, schema) == _expected(moment)
    plain = moment.replace(tzinfo=None).isoformat(between, "minutes")
    assert _parsed(plain, schema) == _read(plain, schema) == _expected(moment.replace(second=0))
    date = moment.date().isoformat()
    midnight = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    assert _parsed(date, schema) == _read(date, schema) == _expected(midnight)
    digits = date.replace("-", "")
    assert _parsed(digits, _schema("YYYYMMDD")) == _read(digits, _schema("YYYYMMDD")) == _expected(midnight)


@settings(deadline=None)
@given(ANY_TIME)
def test_epochs_are_what_python_says(moment: datetime) -> None:
    seconds = (moment - EPOCH) // timedelta(seconds=1)
    for time_format, written in (
        ("epoch_s", seconds),
        ("epoch_ms", (moment - EPOCH) // timedelta(milliseconds=1)),
    ):
        schema = _schema(time_format)
        assert _parsed(str(written), schema) == _read(str(written), schema) == _expected(moment)


@settings(deadline=None)
@given(st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31), timezones=st.just(UTC)))
def test_hours_in_eight_digits(moment: datetime) -> None:
    written, schema = f"{moment:%y%m%d%H}", _schema("YYMMDDHH")
    expected = _expected(moment.replace(minute=0, second=0, microsecond=0))
    assert _parsed(written, schema) == _read(written, schema) == expected


@pytest.mark.parametrize("time_format", ["iso", "epoch_s", "epoch_ms", "YYMMDDHH", "YYYYMMDD"])
def test_an_empty_time_is_a_missing_value_of_its_parts(time_format: str) -> None:
    schema = _schema(time_format)
    for days, values in (_parsed("", schema), _read("", schema)):
        assert np.isnan(days)
        assert values == [int(MISSING_CATEGORY)] * 4


@pytest.mark.parametrize(
    ("time_format", "field"),
    [
        *(("iso", each) for each in ("2023-02-29", "1900-02-29", "2024-01-01T24:00", "2024-01-01T10", "20240101")),
        *(("iso", each) for each in ("2024-01-01 00:00:60", "0001-01-01T00:00+01:00", "2024-01-01t10:00", "x")),
        *(("iso", each) for each in ("2024-01-01 00:00+24:00", "2024-01-01 00:00.5", "2024-01-01Z")),
        *(("epoch_s", each) for each in ("253402300800", "-62135596801", "1e9", "9" * 30, ".5", "+1")),
        *(("YYMMDDHH", each) for each in ("24010124", "2401012", "24130101", "24-01-01")),
        *(("YYYYMMDD", each) for each in ("00000101", "20240001", "20240132", "2024013a")),
    ],
)
def test_a_field_that_is_no_time_is_named(time_format: str, field: str) -> None:
    found = read_row(field.encode(), _schema(time_format))
    assert isinstance(found, BadRow)
    assert found.column == "when"
    assert found.describe().startswith(f"column when holds '{field}': not ")


def test_an_ignored_time_counts_only_for_its_parts() -> None:
    time = time_column("iso", role="ignored")
    assert isinstance(read_row(b"x", schema_of(time)), Row)
    assert isinstance(read_row(b"x", schema_of(time, part_of(time, "hour"))), BadRow)


MOMENTS = [
    "2024-02-29T23:59:58",
    "1969-12-31T23:00:01",
    "0001-01-01T00:00:00",
    "9999-12-31T12:00:00",
    "2014-10-21T07:00:00",
]


def _read_both(texts: list[str], cells: pa.Array, time_format: str, tmp_path: Path) -> None:
    text, table = tmp_path / "rows.tsv", tmp_path / "rows.parquet"
    text.write_text("".join(f"{each}\n" for each in [*texts, ""]))
    pq.write_table(pa.table({"when": cells}), table)
    found = []
    formats: tuple[tuple[Path, Format], ...] = ((text, "text"), (table, "parquet"))
    for path, name in formats:
        schema = _schema(time_format, name)
        chunk = FORMATS[name].read(FORMATS[name].open(path, schema).whole(), schema)
        assert not chunk.bad
        found.append(chunk.raw)
    np.testing.assert_array_equal(found[0].numbers, found[1].numbers)
    np.testing.assert_array_equal(found[0].values, found[1].values)
    assert found[0].values[-1].tolist() == [int(MISSING_CATEGORY)] * 4


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Oslo"), pa.date32(), pa.date64(), None],
    ids=str,
)
def test_typed_times_of_parquet_agree_with_text(kind: pa.DataType | None, tmp_path: Path) -> None:
    if kind is None:
        _read_both(MOMENTS, pa.array([*MOMENTS, None]), "iso", tmp_path)
        return
    moments = [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in MOMENTS]
    is_date = pa.types.is_date(kind)
    cells = pa.array([*[each.date() if is_date else each.replace(tzinfo=None) for each in moments], None])
    cells = cells.cast(kind) if is_date else cells.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    _read_both([each[:10] if is_date else each for each in MOMENTS], cells, "iso", tmp_path)


def test_nanoseconds_are_cut_off_towards_the_past(tmp_path: Path) -> None:
    cells = pa.array([1_700_000_000_999_999_999, -1, None]).cast(pa.timestamp("ns"))
    _read_both(["2023-11-14 22:13:20", "1969-12-31 23:59:59"], cells, "iso", tmp_path)


@pytest.mark.parametrize(
    ("time_format", "numbers"),
    [
        ("epoch_s", [1_700_000_000, -1, 0]),
        ("epoch_s", [1_700_000_000.75, -0.5, 0.0]),
        ("epoch_ms", [1_700_000_000_999, -1, 253402300799999]),
        ("YYMMDDHH", [14102100, 24022923]),
        ("YYYYMMDD", [20240229, 19691231]),
    ],
)
def test_times_in_numbers_of_parquet_agree_with_text(time_format: str, numbers: list[float], tmp_path: Path) -> None:
    _read_both([str(each) for each in numbers], pa.array([*numbers, None]), time_format, tmp_path)
    _read_both([str(each) for each in numbers], pa.array([*map(str, numbers), None]), time_format, tmp_path)


def test_bad_times_of_parquet_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    far = pa.array([10**12, 0]).cast(pa.timestamp("s"))
    for cells, time_format in (
        (pa.array(["2023-02-29", "2024-02-29"]), "iso"),
        (pa.array([99999999, 20240101]), "YYYYMMDD"),
        (pa.array([float("inf"), 0.0]), "epoch_s"),
        (far, "iso"),
    ):
        pq.write_table(pa.table({"when": cells}), path)
        schema = _schema(time_format, "parquet")
        chunk = FORMATS["parquet"].read(FORMATS["parquet"].open(path, schema).whole(), schema)
        assert [(place, bad.column) for place, bad in chunk.bad] == [(0, "when")]
        assert chunk.bad[0][1].reason.startswith("not ")


def test_a_type_that_does_not_fit_is_answered_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"when": pa.array([20240101])}), path)
    with pytest.raises(DataError, match="set time_format to how these numbers are times"):
        FORMATS["parquet"].open(path, _schema("iso", "parquet"))
    pq.write_table(pa.table({"count": pa.array([0]).cast(pa.timestamp("s"))}), path)
    with pytest.raises(DataError, match='set role = "time" and kind = "time"'):
        FORMATS["parquet"].open(path, Schema(name="typed", format="parquet", columns=(COUNT,)))


@pytest.mark.parametrize("seed", range(3))
def test_an_age_is_the_days_between_two_times_in_every_format(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    seen, signup = time_column("iso"), time_column("epoch_s", "ignored", "signup")
    columns = (part_of(signup, "age"), signup, COUNT, seen)
    seconds = [[random.choice((None, random.randrange(-(10**9), 2 * 10**9))) for _ in range(2)] for _ in range(60)]
    written = [
        (now, None if now is None else (EPOCH + timedelta(seconds=now)).isoformat(), then) for now, then in seconds
    ]
    expected = [
        float("nan") if now is None or then is None else timedelta(seconds=now - then) / timedelta(days=1)
        for now, then in seconds
    ]
    text, jsonl, table = tmp_path / "rows.csv", tmp_path / "rows.jsonl", tmp_path / "rows.parquet"
    text.write_text("".join(f"{'' if then is None else then},7,{now or ''}\n" for _, now, then in written))
    jsonl.write_text("".join(json.dumps({"signup": then, "count": 7, "when": now}) + "\n" for _, now, then in written))
    moments = pa.array([now for now, _, _ in written], pa.int64()).cast(pa.timestamp("s"))
    pq.write_table(
        pa.table({"when": moments, "count": [7] * 60, "signup": pa.array([then for *_, then in written], pa.int64())}),
        table,
    )
    files: tuple[tuple[Path, Format], ...] = ((text, "text"), (jsonl, "jsonl"), (table, "parquet"))
    for path, name in files:
        schema = schema_of(*columns) if name == "text" else Schema(name="typed", format=name, columns=columns)
        chunk = FORMATS[name].read(FORMATS[name].open(path, schema).whole(), schema)
        assert not chunk.bad
        np.testing.assert_array_equal(chunk.raw.numbers[:, 0], expected)
    rows = [read_row(line, schema_of(*columns)) for line in text.read_bytes().splitlines()]
    np.testing.assert_array_equal([row.numbers[0] for row in rows if isinstance(row, Row)], expected)


@pytest.mark.parametrize("times", [(time_column("iso", "ignored"),), (time_column("iso"),)])
def test_an_age_needs_another_time_of_the_row(times: tuple[Column, ...]) -> None:
    with pytest.raises(ConfigError, match='when_age has part = "age", the days from when to the time of the row'):
        schema_of(*times, part_of(times[0], "age"))
