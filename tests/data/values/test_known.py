"""Every text that is shown is the one whose hash it is, whatever the format; and no more is kept than may be."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recmill.data.logs.formats import FORMATS
from recmill.data.logs.opening import open_log
from recmill.data.logs.raw import read_raw
from recmill.data.logs.raw_format import RawSegment
from recmill.data.text.fields import ABSENT_CATEGORY, MISSING_CATEGORY
from recmill.data.values import known as known_values
from recmill.data.values import texts
from recmill.data.values.known import collect_values, decoded, one_line, shares
from recmill.data.values.texts import hash_texts, string_columns
from recmill.data.values.values_file import read_known, write_known
from recmill.errors import DataError
from recmill.settings.columns import Column, Schema
from tests.data.tables import JSON_LINES, PARQUET, TEXT, Fields, make_rows, to_json_lines, to_table, write_csv
from tests.data.tables import write_parquet as write_table


def plain(tmp_path: Path, rows: list[Fields]) -> tuple[Path, Schema]:
    return write_csv(tmp_path / "rows.csv", rows), TEXT


def returns(tmp_path: Path, rows: list[Fields]) -> tuple[Path, Schema]:
    path = tmp_path / "returns.csv"
    path.write_bytes(b"".join(b",".join(row) + b"\r\n" for row in rows))
    return path, TEXT


def quoted(tmp_path: Path, rows: list[Fields]) -> tuple[Path, Schema]:
    """Every second field in quotes, with a quote, a separator and a line break inside where a string allows it."""
    lines, path = list[bytes](), tmp_path / "quoted.csv"
    for row in rows:
        fields = list[bytes]()
        for i, (field, column) in enumerate(zip(row, TEXT.columns, strict=True)):
            odd = field + b'",\n' if column.kind == "string" and not column.is_several and field else field
            fields.append(b'"' + odd.replace(b'"', b'""') + b'"' if i % 2 == len(lines) % 2 else field)
        lines.append(b",".join(fields))
    path.write_bytes(b"\n".join(lines))
    return path, TEXT.with_({"quoted": True})


def packed(tmp_path: Path, rows: list[Fields]) -> tuple[Path, Schema]:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(write_csv(tmp_path / "unpacked.csv", rows).read_bytes()))
    return path, TEXT


def parquet(tmp_path: Path, rows: list[Fields]) -> tuple[Path, Schema]:
    return write_table(tmp_path / "rows.parquet", to_table(rows)), PARQUET


def compact_parquet(tmp_path: Path, rows: list[Fields]) -> tuple[Path, Schema]:
    return write_table(tmp_path / "compact.parquet", to_table(rows, is_compact=True), group_rows=7), PARQUET


def json_lines(tmp_path: Path, rows: list[Fields]) -> tuple[Path, Schema]:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(to_json_lines(rows))
    return path, JSON_LINES


def packed_json(tmp_path: Path, rows: list[Fields]) -> tuple[Path, Schema]:
    path = tmp_path / "rows.jsonl.bz2"
    path.write_bytes(bz2.compress(to_json_lines(rows, is_compact=True)))
    return path, JSON_LINES


WRITERS = [plain, returns, quoted, packed, parquet, compact_parquet, json_lines, packed_json]
Write = Callable[[Path, list[Fields]], tuple[Path, Schema]]


def hashes_read(segment: RawSegment, schema: Schema) -> dict[str, set[int]]:
    """The values that the fast readers give to each string column."""
    values, columns = read_raw(segment, schema).raw.values, schema.of_role("category")
    found = {column.name: set[int]() for column in string_columns(schema)}
    for slot, place in enumerate(schema.slot_columns):
        if columns[place].name in found:
            found[columns[place].name] |= set(values[:, slot].tolist())
    marks = {int(MISSING_CATEGORY), int(ABSENT_CATEGORY)}
    return {name: own - marks for name, own in found.items()}


@pytest.mark.parametrize("write", WRITERS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30), num_rows=st.integers(1, 60), odd_frac=st.sampled_from([0.0, 0.2]))
def test_every_hash_that_is_read_has_its_text(
    write: Write, seed: int, num_rows: int, odd_frac: float, tmp_path: Path
) -> None:
    rows = make_rows(num_rows, seed, odd_frac=odd_frac)
    path, schema = write(tmp_path, rows)
    whole = open_log(path, schema).whole()
    known = collect_values([whole], schema, 10_000)
    for column in string_columns(schema):
        own = known[column.name]
        assert hashes_read(whole, schema)[column.name] <= set(own), column.name
        assert hash_texts(list(own.values()), column).tolist() == list(own)
        if write is plain:
            place = [c.name for c in schema.columns].index(column.name)
            separator = (column.inner_separator or "\n").encode()
            written = {part for row in rows for part in row[place].split(separator)}
            assert set(own.values()) <= written
    write_known(tmp_path / "values.parquet", known)
    assert read_known(tmp_path / "values.parquet") == {name: own for name, own in known.items() if own}


def test_every_format_has_a_reader_of_texts() -> None:
    assert set(texts._READERS) == set(FORMATS)


def test_the_most_frequent_are_kept_and_long_ones_are_not(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"1,{text}\n" for text in ["rare", *["often"] * 3, *["some"] * 2, *["x" * 1025] * 9]))
    label, city = Column(name="y", role="label", kind="int"), Column(name="city", role="category", kind="string")
    schema = Schema(name="s", separator=",", columns=(label, city))
    segments = [open_log(path, schema).whole()]
    assert list(collect_values(segments, schema, 2)["city"].values()) == [b"often", b"some"]
    assert collect_values(segments, schema, 0) == {"city": {}}


@pytest.mark.parametrize("write", [plain, quoted, parquet, json_lines])
def test_a_long_file_is_looked_at_in_places_all_over_it(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_rows(2000, 3)
    place = [column.name for column in TEXT.columns].index("city")
    for i, row in enumerate(rows):
        row[place] = b"c%d" % i
    path, schema = write(tmp_path, rows)
    whole = open_log(path, schema).whole()
    monkeypatch.setattr(known_values, "LOOK_BYTES", whole.num_bytes // 10)
    numbers = [int(text[1:].split(b'"')[0]) for text in collect_values([whole], schema, 10_000)["city"].values()]
    assert 100 <= len(numbers) <= 300
    assert min(numbers) == 0
    assert max(numbers) > 1900


def test_short_files_are_looked_at_whole_and_long_ones_share_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_values, "LOOK_BYTES", 100)
    assert shares([10, 1000, 20, 1000]) == [10, 35, 20, 35]
    assert shares([]) == []
    rng = np.random.default_rng(1)
    for _ in range(50):
        sizes = rng.integers(0, 200, rng.integers(1, 9)).tolist()
        assert sum(shares(sizes)) == min(100, sum(sizes))


def test_a_missing_file_knows_nothing_and_a_damaged_one_says_so(tmp_path: Path) -> None:
    assert read_known(tmp_path / "none.parquet") == {}
    (tmp_path / "values.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"values\.parquet is damaged: .*; remove it, and hashes are shown"):
        read_known(tmp_path / "values.parquet")


def test_a_text_is_shown_on_one_line() -> None:
    assert one_line("US") == "US"
    assert one_line("New York") == '"New York"'
    assert one_line("a\x1b[31m\n\u202e") == r"a\x1b[31m\n\u202e"
    assert one_line("") == '""'
    assert len(one_line("é" * 500)) == 60


def test_long_texts_of_parquet_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "DECODED_ROWS", 10)
    table = pa.table({"y": [1] * 1000, "city": [f"{i:0900d}" for i in range(1000)]})
    pq.write_table(table, tmp_path / "rows.parquet")
    label, city = Column(name="y", role="label", kind="int"), Column(name="city", role="category", kind="string")
    schema = Schema(name="s", format="parquet", columns=(label, city))
    whole = open_log(tmp_path / "rows.parquet", schema).whole()
    found = collect_values([whole], schema, 10_000)["city"]
    assert 100 <= len(found) <= 8 * whole.num_bytes // 900 + 10
    assert hash_texts(list(found.values()), city).tolist() == list(found)


def test_texts_that_are_no_unicode_are_kept_as_they_are(tmp_path: Path) -> None:
    array = pa.Array.from_buffers(pa.string(), 1, pa.array([b"caf\xe9"], pa.binary()).buffers())
    pq.write_table(pa.table({"y": [1], "city": array}), tmp_path / "rows.parquet")
    label, city = Column(name="y", role="label", kind="int"), Column(name="city", role="category", kind="string")
    schema = Schema(name="s", format="parquet", columns=(label, city))
    whole = open_log(tmp_path / "rows.parquet", schema).whole()
    known = collect_values([whole], schema, 10)
    assert set(known["city"].values()) == {b"caf\xe9"}
    assert set(known["city"]) == hashes_read(whole, schema)["city"]
    write_known(tmp_path / "values.parquet", known)
    assert read_known(tmp_path / "values.parquet") == known
    assert decoded(b"caf\xe9") == "caf\\xe9"


def test_of_a_format_without_a_reader_no_text_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, schema = plain(tmp_path, make_rows(5, 1))
    monkeypatch.delitem(texts._READERS, "text")
    assert not any(collect_values([open_log(path, schema).whole()], schema, 10).values())
