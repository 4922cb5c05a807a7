"""The parts of a file, put together, are its first lines, and nothing is written unless all of them are."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.logs import cut
from recmill.data.logs.cut import cut_file
from recmill.data.logs.split import find_days
from recmill.errors import ConfigError, DataError, FailureError

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cut")


@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=90).map(lambda line: line.replace(b"\n", b"_")), max_size=40),
    is_unfinished=st.booleans(),
    num_parts=st.integers(1, 5),
    part_rows=st.integers(1, 9),
)
def test_parts_are_the_first_lines_in_their_order(
    directory: Path, lines: list[bytes], is_unfinished: bool, num_parts: int, part_rows: int
) -> None:
    if is_unfinished and lines:
        lines[-1] += b"x"  # an empty last line without a newline is no line
    path, out_dir = directory / "all", directory / "parts"
    path.write_bytes(b"\n".join(lines) + (b"" if is_unfinished or not lines else b"\n"))
    needed = num_parts * part_rows
    if len(lines) < needed:
        with pytest.raises(DataError, match=f"has {len(lines)} lines; .* need {needed}: lower --parts or --rows"):
            cut_file(path, out_dir, num_parts=num_parts, part_rows=part_rows, overwrite=True)
        return
    done = cut_file(path, out_dir, num_parts=num_parts, part_rows=part_rows, overwrite=True)
    parts = [part.read_bytes() for part in find_days(out_dir)]
    assert [part.split(b"\n")[:-1] for part in parts] == [
        lines[first : first + part_rows] for first in range(0, needed, part_rows)
    ]
    assert all(part.endswith(b"\n") for part in parts)
    assert (done.num_rows, done.num_bytes, done.left_over_rows) == (needed, sum(map(len, parts)), len(lines) - needed)
    assert len(list(out_dir.iterdir())) == num_parts


@pytest.mark.parametrize("suffix", PACKERS)
def test_packed_files_are_unpacked(tmp_path: Path, suffix: str) -> None:
    text = b"".join(b"line %d\n" % i for i in range(5000))
    path = tmp_path / f"log{suffix}"
    path.write_bytes(PACKERS[suffix](text))
    cut_file(path, tmp_path / "out", num_parts=4, part_rows=1250)
    assert b"".join((tmp_path / "out" / f"day_{i}").read_bytes() for i in range(4)) == text


def test_a_part_may_be_longer_than_what_is_copied_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "_COPY_BYTES", 7)
    (tmp_path / "log").write_bytes(b"one\ntwo\nthree\nfour\nfive\nsix\n")
    cut_file(tmp_path / "log", tmp_path / "out", num_parts=2, part_rows=3)
    assert (tmp_path / "out" / "day_0").read_bytes() == b"one\ntwo\nthree\n"
    assert (tmp_path / "out" / "day_1").read_bytes() == b"four\nfive\nsix\n"


@pytest.mark.parametrize(("num_parts", "part_rows", "option"), [(0, 1, "--parts 0"), (1, -3, "--rows -3")])
def test_there_is_no_part_of_nothing(tmp_path: Path, num_parts: int, part_rows: int, option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} is rejected: it is 1 or more"):
        cut_file(tmp_path / "log", tmp_path / "out", num_parts=num_parts, part_rows=part_rows)


def test_an_occupied_directory_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"1\n2\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(DataError, match="is not empty"):
        cut_file(tmp_path / "log", tmp_path / "out", num_parts=1, part_rows=1)
    cut_file(tmp_path / "log", tmp_path / "out", num_parts=1, part_rows=1, overwrite=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["day_0"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent cannot be read: No such file"):
        cut_file(tmp_path / "absent", tmp_path / "out", num_parts=1, part_rows=1)


def test_nothing_stays_behind_when_a_count_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(b"1\n2\n3\n4\n")
    write_part = cut._write_part
    monkeypatch.setattr(
        cut, "_write_part", lambda source, start, stop, *rest: write_part(source, start, stop - 2, *rest)
    )
    with pytest.raises(FailureError, match="day_0 has 1 lines after writing and not 2"):
        cut_file(tmp_path / "log", tmp_path / "out", num_parts=2, part_rows=2)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_full_disk_is_noticed_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(b"1\n2\n")

    def refuse(directory: Path, needed_bytes: int, purpose: str) -> None:
        raise DataError(f"{purpose} needs {needed_bytes}")

    monkeypatch.setattr(cut, "require_free_space", refuse)
    with pytest.raises(DataError, match=r"2 parts of .*log needs 5"):
        cut_file(tmp_path / "log", tmp_path / "out", num_parts=2, part_rows=1)
    assert not (tmp_path / "out").exists()
