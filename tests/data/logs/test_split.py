"""Days in the order of their numbers, the last one halved; no line in two splits."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from recmill.data.logs.opening import open_splits
from recmill.data.logs.raw_format import RawSegment, RawSource
from recmill.data.logs.split import Splits, find_all, find_days, find_files, refuse_overlap, split_by_day, split_tail
from recmill.data.logs.text_file import Segment, Source
from recmill.errors import ConfigError, DataError
from recmill.settings.data import SPLIT_NAMES, DataConfig
from tests.data.lines import COUNT, LABEL, lines_of, schema_of

SMALL = schema_of(LABEL, COUNT)


def _make(directory: Path, *names: str, text: bytes = b"1\n2\n3\n") -> list[Path]:
    packers = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
    for name in names:
        (directory / name).write_bytes(packers.get(Path(name).suffix, bytes)(text))
    return [directory / name for name in names]


def _complaint_of_days(directory: Path) -> str:
    with pytest.raises(DataError) as caught:
        find_days(directory)
    return str(caught.value)


def _text(source: RawSource) -> NDArray[np.uint8]:
    assert isinstance(source, Source)
    return source.buffer


def _lines(segments: tuple[RawSegment, ...]) -> list[bytes]:
    return [line for s in segments for line in lines_of(_text(s.source)[s.start : s.stop].tobytes())]


# Finding days.


def test_days_are_ordered_by_number(tmp_path: Path) -> None:
    _make(tmp_path, *(f"day_{i}" for i in range(12)))
    assert [path.name for path in find_days(tmp_path)] == [f"day_{i}" for i in range(12)]


def test_days_may_be_packed(tmp_path: Path) -> None:
    _make(tmp_path, "day_0.zst", "day_1", "day_2.gz")
    assert [path.name for path in find_days(tmp_path)] == ["day_0.zst", "day_1", "day_2.gz"]


def test_other_files_are_not_days(tmp_path: Path) -> None:
    _make(tmp_path, "day_0", "day_1", "world.json", "day_", "day_2.bak", "xday_2", "day_2.gz.part", "day_x", "my_day_3")
    assert [path.name for path in find_days(tmp_path)] == ["day_0", "day_1"]


def test_a_missing_day_is_named(tmp_path: Path) -> None:
    _make(tmp_path, "day_1", "day_2", "day_5.gz")
    assert _complaint_of_days(tmp_path) == f"{tmp_path} has day_5 but lacks day_0, day_3, day_4"


@pytest.mark.parametrize("twin", ["day_1.gz", "day_1.zst", "day_01"])
def test_a_day_twice_is_refused(tmp_path: Path, twin: str) -> None:
    _make(tmp_path, "day_0", "day_1", twin)
    first, second = sorted((tmp_path / "day_1", tmp_path / twin))
    assert _complaint_of_days(tmp_path) == f"{first} and {second} are the same day; remove one of them"


def test_no_days_are_refused(tmp_path: Path) -> None:
    _make(tmp_path, "train.csv")
    assert (
        _complaint_of_days(tmp_path)
        == f"{tmp_path} holds no files named day_0, day_1, … (plain, .gz, .zst, .bz2, .parquet, .jsonl or .ndjson)"
    )


def test_no_directory_is_refused_with_a_way_out(tmp_path: Path) -> None:
    missing = tmp_path / "data"
    assert _complaint_of_days(missing) == (
        f"there is no directory {missing}; make one with `recmill synth criteo --out {missing}`"
    )


# Finding files by pattern.


def test_files_come_in_the_order_of_the_patterns(tmp_path: Path) -> None:
    _make(tmp_path, "b_1", "b_0", "a_0", "c_0")
    (tmp_path / "b_dir").mkdir()
    found = find_files(tmp_path, ["b_*", "a_0", "?_0"], "data.train_files")
    assert [path.name for path in found] == ["b_0", "b_1", "a_0", "c_0"]


def test_files_may_lie_deeper(tmp_path: Path) -> None:
    (tmp_path / "2024").mkdir()
    _make(tmp_path / "2024", "x")
    assert find_files(tmp_path, ["2024/*"], "data.train_files") == [tmp_path / "2024" / "x"]


@pytest.mark.parametrize("pattern", ["day_9", "*.csv", "dir"])
def test_a_pattern_without_a_file_is_named(tmp_path: Path, pattern: str) -> None:
    _make(tmp_path, "day_0")
    (tmp_path / "dir").mkdir()
    with pytest.raises(DataError) as caught:
        find_files(tmp_path, ["day_0", pattern], "data.test_files")
    assert str(caught.value) == f"data.test_files: no file in {tmp_path} matches {pattern!r}"


@pytest.mark.parametrize("pattern", ["/data/day_0", "", "day_**"])
def test_a_pattern_that_is_none_is_refused_by_its_setting(tmp_path: Path, pattern: str) -> None:
    """An absolute path, an empty text: Path.glob's own complaints name no setting."""
    with pytest.raises(DataError, match=r"^data\.train_files: .*" + pattern.replace("*", r"\*")):
        find_files(tmp_path, [pattern], "data.train_files")


# Halving the last day.


@pytest.mark.parametrize("ending", [b"\n", b""], ids=["newline", "unfinished"])
def test_the_first_half_has_the_odd_line(tmp_path: Path, ending: bytes) -> None:
    for num_lines in range(1, 12):
        directory = tmp_path / str(num_lines)
        directory.mkdir()
        lines = [b"line %d" % i for i in range(num_lines)]
        paths = [*_make(directory, "day_0", "day_1"), *_make(directory, "day_2", text=b"\n".join(lines) + ending)]
        splits = split_by_day(paths)
        half = -(-num_lines // 2)
        assert _lines(splits.train) == [b"1", b"2", b"3"] * 2
        assert _lines(splits.validation) == lines[:half]
        assert _lines(splits.test) == lines[half:]


@pytest.mark.parametrize("ending", [b"\n", b""], ids=["newline", "unfinished"])
@pytest.mark.parametrize("num_lines", [40_000, 40_001])
def test_halves_of_a_file_of_several_strides(tmp_path: Path, num_lines: int, ending: bytes) -> None:
    lines = [b"%d" % i + b"." * (i % 281) for i in range(num_lines)]
    text = b"\n".join(lines) + ending
    assert len(text) > 5 << 20, "the middle lies behind several strides of counting"
    splits = split_by_day([*_make(tmp_path, "day_0"), *_make(tmp_path, "day_1.gz", text=text)])
    assert _lines(splits.validation) == lines[: (num_lines + 1) // 2]
    assert _lines(splits.test) == lines[(num_lines + 1) // 2 :]


@pytest.mark.parametrize("ending", [b"\n", b""], ids=["newline", "unfinished"])
@pytest.mark.parametrize("num_lines", range(1, 10))
def test_the_two_orders_of_the_halves_are_mirror_images(tmp_path: Path, num_lines: int, ending: bytes) -> None:
    lines = [b"line %d" % i for i in range(num_lines)]
    paths = [*_make(tmp_path, "day_0"), *_make(tmp_path, "day_1", text=b"\n".join(lines) + ending)]
    torchrec, oneflow = split_by_day(paths, first_half="validation"), split_by_day(paths, first_half="test")
    assert split_by_day(paths).first_half == "validation", "what is not asked for is as TorchRec has it"
    assert _lines(oneflow.train) == _lines(torchrec.train)
    assert _lines(oneflow.test) == _lines(torchrec.validation) == lines[: -(-num_lines // 2)]
    assert _lines(oneflow.validation) == _lines(torchrec.test) == lines[-(-num_lines // 2) :]
    for splits in (torchrec, oneflow):
        assert [line for name in splits.in_file_order[1:] for line in _lines(splits.of(name))] == lines


def test_an_empty_last_day_has_empty_halves(tmp_path: Path) -> None:
    splits = split_by_day([*_make(tmp_path, "day_0"), *_make(tmp_path, "day_1", text=b"")])
    assert [segment.num_bytes for segment in (*splits.validation, *splits.test)] == [0, 0]


def test_one_day_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        split_by_day(_make(tmp_path, "day_0"))
    assert str(caught.value).startswith(f"{tmp_path} has one day; training on it and testing on it needs at least two")
    assert "data.holdout_frac" in str(caught.value)


def test_closing_splits_closes_their_sources(tmp_path: Path) -> None:
    splits = split_by_day(_make(tmp_path, "day_0", "day_1"))
    splits.close()
    assert [len(_text(s.source)) for name in SPLIT_NAMES for s in splits.of(name)] == [0, 0, 0]


# The last lines of all files.


@pytest.mark.parametrize("ending", [b"\n", b""], ids=["newline", "unfinished"])
@pytest.mark.parametrize("held", range(2, 9))
def test_the_tail_of_several_files_is_held_out_in_their_order(tmp_path: Path, held: int, ending: bytes) -> None:
    lines = [b"line %d" % i for i in range(9)]
    texts = (b"\n".join(lines[:4]) + ending, b"", b"\n".join(lines[4:5]) + ending, b"\n".join(lines[5:]) + ending)
    sources = [Source(_make(tmp_path, f"part-{i}", text=text)[0]) for i, text in enumerate(texts)]
    splits = split_tail([source.whole() for source in sources], num_rows=held)
    half = (held + 1) // 2
    assert _lines(splits.train) == lines[: 9 - held]
    assert _lines(splits.validation) == lines[9 - held :][:half]
    assert _lines(splits.test) == lines[9 - held :][half:]
    by_share = split_tail([source.whole() for source in sources], frac=held / 9)
    assert [_lines(by_share.of(name)) for name in SPLIT_NAMES] == [_lines(splits.of(name)) for name in SPLIT_NAMES]


def test_the_halves_of_the_tail_change_places_too(tmp_path: Path) -> None:
    sources = [Source(path) for path in _make(tmp_path, "a", "b")]
    segments = [source.whole() for source in sources]
    first, second = (split_tail(segments, num_rows=5, first_half=half) for half in ("validation", "test"))
    assert _lines(first.train) == _lines(second.train) == [b"1"]
    assert _lines(first.validation) == _lines(second.test) == [b"2", b"3", b"1"]
    assert _lines(first.test) == _lines(second.validation) == [b"2", b"3"]


def test_the_tail_begins_behind_the_header(tmp_path: Path) -> None:
    source = Source(_make(tmp_path, "a", text=b"name\n1\n2\n3\n")[0])
    source.rows_start = 5
    splits = split_tail([source.whole()], num_rows=2)
    assert [_lines(splits.of(name)) for name in SPLIT_NAMES] == [[b"1"], [b"2"], [b"3"]]


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"frac": 0.1}, "data.holdout_frac = 0.1 keeps 0 of 3 lines for validation and test"),
        ({"num_rows": 3}, "data.holdout_rows = 3 keeps 3 of 3 lines for validation and test"),
    ],
)
def test_a_tail_that_leaves_a_split_empty_is_refused(tmp_path: Path, asked: dict[str, Any], complaint: str) -> None:
    source = Source(_make(tmp_path, "a")[0])
    with pytest.raises(DataError) as caught:
        split_tail([source.whole()], **asked)
    assert str(caught.value).startswith(complaint)


# Leaks.


def _splits_of_paths(train: Path, validation: Path, test: Path) -> Splits:
    return Splits((Source(train).whole(),), (Source(validation).whole(),), (Source(test).whole(),))


def test_disjoint_files_are_fine(tmp_path: Path) -> None:
    a, b, c = _make(tmp_path, "a", "b", "c")
    splits = _splits_of_paths(a, b, c)
    assert [splits.of(name)[0].source.path for name in SPLIT_NAMES] == [a, b, c]


@pytest.mark.parametrize(("first", "second"), [("train", "validation"), ("train", "test"), ("validation", "test")])
def test_a_file_in_two_splits_is_refused_by_name(tmp_path: Path, first: str, second: str) -> None:
    a, b, _ = _make(tmp_path, "a", "b", "c")
    paths = {name: (a if name in (first, second) else b) for name in SPLIT_NAMES}
    with pytest.raises(DataError) as caught:
        _splits_of_paths(paths["train"], paths["validation"], paths["test"])
    assert str(caught.value) == f"{a} has lines in both {first} and {second}; a split may share none"


def test_the_same_file_through_a_link_is_refused(tmp_path: Path) -> None:
    a, b = _make(tmp_path, "a", "b")
    link = tmp_path / "elsewhere"
    link.symlink_to(a)
    with pytest.raises(DataError, match=r"a has lines in both train and test"):
        _splits_of_paths(a, b, link)


def test_the_same_file_under_another_spelling_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = _make(tmp_path, "a", "b")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"a has lines in both train and test"):
        _splits_of_paths(a, b, Path("a"))


def test_the_same_file_by_a_second_name_is_refused(tmp_path: Path) -> None:
    a, b = _make(tmp_path, "a", "b")
    twin = tmp_path / "twin"
    os.link(a, twin)
    with pytest.raises(DataError, match=r"a has lines in both train and test"):
        _splits_of_paths(a, b, twin)


def test_segments_of_one_file_may_touch_and_not_overlap(tmp_path: Path) -> None:
    source = Source(_make(tmp_path, "a")[0])
    refuse_overlap("train", [Segment(source, 0, 2)], "test", [Segment(source, 2, 6), Segment(source, 0, 0)])
    with pytest.raises(DataError, match=r"a has lines in both train and test"):
        refuse_overlap("train", [Segment(source, 0, 4)], "test", [Segment(source, 2, 6)])


# Files without days, of which the last lines are held out.


def _held_out(data_dir: object) -> list[str]:
    data = DataConfig(dir=str(data_dir), holdout_rows=2, row_schema=SMALL)
    splits = open_splits(data)
    return [segment.source.path.name for name in SPLIT_NAMES for segment in splits.of(name)]


def test_a_pattern_or_a_directory_without_days_is_all_its_files_by_name(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.txt", ".hidden"):
        (tmp_path / name).write_bytes(b"1,2\n0,3\n")
    assert _held_out(tmp_path / "*.csv") == ["a.csv", "b.csv", "b.csv"]
    assert _held_out(tmp_path) == ["a.csv", "b.csv", "c.txt", "c.txt"]


def test_a_pattern_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.dir: no file matches"):
        _held_out(tmp_path / "*.csv")


def test_a_pattern_needs_a_held_out_share(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1,2\n")
    with pytest.raises(ConfigError, match="is a pattern of files; say which share"):
        open_splits(DataConfig(dir=str(tmp_path / "*.csv"), row_schema=SMALL))


def test_files_beside_logs_are_not_read_as_rows(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv.gz", "truth.npz", "world.json", "schema.toml", ".hidden", "_SUCCESS"):
        (tmp_path / name).write_text("x\n")
    assert [path.name for path in find_all(tmp_path)] == ["a.csv.gz", "b.csv"]


def test_json_is_rows_where_there_is_nothing_else(tmp_path: Path) -> None:
    for name in ("b.json", "README.md"):
        (tmp_path / name).write_text("{}\n")
    assert [path.name for path in find_all(tmp_path)] == ["b.json"]
    (tmp_path / "b.json").unlink()
    with pytest.raises(DataError, match="no file of rows"):
        find_all(tmp_path)
