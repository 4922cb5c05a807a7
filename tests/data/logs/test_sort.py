"""Sorting is stable and lossless, whatever the files are and however little memory there is."""

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recmill.data.logs.opening import open_splits
from recmill.data.logs.sorting import blocks
from recmill.data.logs.sorting.sort import SortLimits, sort_files
from recmill.errors import ConfigError, DataError
from recmill.settings.columns import Schema
from recmill.settings.data import DataConfig
from tests.data.lines import COUNT, LABEL, NOTE, part_of, schema_of, time_column

WHEN = time_column("iso")
COLUMNS = (LABEL, WHEN, NOTE, COUNT, part_of(WHEN, "hour"))
TEXT = schema_of(*COLUMNS)
QUOTED = TEXT.with_({"quoted": True, "header": True})
HEADER = b"clicked,when,note,count"


def _times(random: Random, num_rows: int) -> list[str]:
    """Few different ones, so that many are equal; some are missing, some are none."""
    moments = [f"2024-05-{random.randint(1, 9):02} {random.randint(0, 23):02}:00:00" for _ in range(num_rows)]
    return [random.choice(("", "never")) if random.random() < 0.1 else moment for moment in moments]


def _lines(random: Random, num_rows: int, *, quoted: bool, end: bytes = b"\n") -> list[bytes]:
    notes = [b"x", b"", b"a longer note", *([b'"two\nlines"', b'"a ""word"", or\r\ntwo"'] if quoted else [])]
    return [
        b"%d,%s,%s,%d" % (i % 2, time.encode(), random.choice(notes), i) + end
        for i, time in enumerate(_times(random, num_rows))
    ]


def _key(line: bytes, above: str) -> str:
    time = line.split(b",")[1].decode()
    return time if time.startswith("2024") else above


def _sorted(lines: list[bytes]) -> list[bytes]:
    """The oracle: Python's stable sort, a line without a time with the key of the line above."""
    keys, above = [], ""
    for line in lines:
        above = _key(line, above)
        keys.append(above)
    return [line for _, line in sorted(zip(keys, lines, strict=True), key=lambda pair: pair[0])]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and frames of some lines: many runs, merged in several passes."""
    monkeypatch.setattr(blocks.SortMemory, "frame_bytes", property(lambda _self: 200))
    monkeypatch.setattr(blocks.SortMemory, "num_runs", property(lambda _self: 3))
    monkeypatch.setattr("recmill.data.logs.sorting.sort._LEAST_BYTES", 1000)


def _content(directory: Path, header: bytes = b"") -> bytes:
    parts = [path.read_bytes() for path in sorted(directory.iterdir())]
    assert all(part.startswith(header) for part in parts)
    return b"".join(part.removeprefix(header) for part in parts)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(12))
def test_lines_are_sorted_stably_and_kept_byte_for_byte(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    quoted, end = seed % 2 == 0, (b"\n", b"\r\n")[seed % 3 == 0]
    schema, header = (QUOTED, HEADER + end) if quoted else (TEXT, b"")
    lines, paths = _lines(random, random.choice((1, 2, 40, 300)) + 2, quoted=quoted, end=end), list[Path]()
    lines[0] = b"1,2024-05-05 00:00:00,x,0" + end
    cuts = sorted(random.sample(range(len(lines) + 1), 2))
    for i, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(lines)], strict=True)):
        text = header + b"".join(lines[start:stop])
        text = text.removesuffix(end) if stop > start + 1 and random.random() < 0.5 else text
        paths.append(tmp_path / f"{i}.csv{('', '.gz')[i % 2]}")
        paths[-1].write_bytes(gzip.compress(text) if i % 2 else text)
    part_bytes = random.choice((120, 1000, 1 << 20))
    found = sort_files(paths, schema, tmp_path / "out", limits=SortLimits(memory_bytes=1, part_bytes=part_bytes))
    assert _content(tmp_path / "out", header) == b"".join(_sorted(lines))
    assert found.num_rows == len(lines)
    assert found.num_keyless == sum(_key(line, "") == "" for line in lines)
    sizes = [path.stat().st_size for path in (tmp_path / "out").iterdir()]
    assert max(sizes) <= max(part_bytes, len(header) + max(map(len, lines)))
    assert found.num_files == len(sizes)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".csv"}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(4))
def test_json_lines_and_parquet_are_sorted_as_text_is(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    rows = [
        {"clicked": i % 2, "when": time or None, "note": random.choice(("x", None, "é")), "count": i}
        for i, time in enumerate(_times(random, 200))
    ]
    rows[0]["when"] = "2024-05-05 00:00:00"
    keys, above = [], ""
    for row in rows:
        above = str(row["when"]) if str(row["when"]).startswith("2024") else above
        keys.append(above)
    expected = [row for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: pair[0])]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    json_lines = Schema(name="json", format="jsonl", columns=COLUMNS)
    sort_files([path], json_lines, tmp_path / "json", limits=SortLimits(memory_bytes=1, part_bytes=2000))
    assert [json.loads(line) for line in _content(tmp_path / "json").splitlines()] == expected
    table = pa.Table.from_pylist(rows)
    table = table.set_column(2, "note", table.column("note").dictionary_encode())
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=70, compression="zstd")
    typed = Schema(name="typed", format="parquet", columns=COLUMNS)
    found = sort_files(
        [tmp_path / "rows.parquet"], typed, tmp_path / "parquet", limits=SortLimits(memory_bytes=1, part_bytes=3000)
    )
    parts = [pq.read_table(part) for part in sorted((tmp_path / "parquet").iterdir())]
    assert [row for part in parts for row in part.to_pylist()] == expected
    assert all(part.schema.equals(table.schema) for part in parts)
    assert found.num_files == len(parts) > 1


def test_a_sorted_directory_is_split_by_time(tmp_path: Path) -> None:
    lines = [line for line in _lines(Random(1), 300, quoted=False) if b"never" not in line]
    (tmp_path / "rows.csv").write_bytes(b"".join(lines))
    settings: dict[str, Any] = {"row_schema": TEXT, "holdout_frac": 0.2}
    with pytest.raises(DataError, match=r"recmill sort \S*rows.csv --schema \S+ --out \S*rows-sorted"):
        open_splits(DataConfig(dir=str(tmp_path / "rows.csv"), **settings))
    sort_files([tmp_path / "rows.csv"], TEXT, tmp_path / "out", limits=SortLimits(part_bytes=1000))
    splits = open_splits(DataConfig(dir=str(tmp_path / "out"), **settings))
    assert sum(segment.count_rows() for segment in splits.train) == len(lines) - round(len(lines) / 5)
    splits.close()


def test_rows_are_sorted_by_a_column_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("0,2024-05-01,b,2\n0,2024-05-01,a,-7\n0,2024-05-01,c,2\n")
    assert sort_files([tmp_path / "rows.csv"], TEXT, tmp_path / "out", by="count").column == "count"
    assert _content(tmp_path / "out") == b"0,2024-05-01,a,-7\n0,2024-05-01,b,2\n0,2024-05-01,c,2\n"


def test_what_cannot_be_sorted_is_rejected_and_leaves_nothing(tmp_path: Path) -> None:
    path, out = tmp_path / "rows.csv", tmp_path / "out"
    path.write_text("0,never,x,1\n")
    with pytest.raises(DataError, match=r"no line of .*rows.csv has a when that can be read"):
        sort_files([path], TEXT, out)
    with pytest.raises(ConfigError, match=r"--by note: .* neither as a time nor as a number"):
        sort_files([path], TEXT, out, by="note")
    with pytest.raises(ConfigError, match=r"--by whom: .*its columns are clicked, when, note, count"):
        sort_files([path], TEXT, out, by="whom")
    with pytest.raises(ConfigError, match="has no column of role time; name the column to sort by"):
        sort_files([path], schema_of(LABEL, NOTE), out)
    assert not out.exists()
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(DataError, match="is not empty"):
        sort_files([path], TEXT, out)
