"""A source is the file's bytes, whatever it is packed in; its parts share no line and leave none out."""

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from recmill.data.logs.text_file import Segment, Source
from recmill.errors import DataError
from tests.data.lines import MakeSource, lines_of, new_source

TEXT = b"".join(b"line %d\n" % i for i in range(3000)) + b"the last one is unfinished"

# Newlines close together, and none for a while.
texts = st.lists(st.sampled_from((b"\n", b"a", b"bc", b"\r", b"longer, much longer")), max_size=30).map(b"".join)


def _gz(text: bytes) -> bytes:
    return gzip.compress(text, 1)


def _zst(text: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(text)


PACKERS: list[tuple[str, Callable[[bytes], bytes]]] = [(".gz", _gz), (".zst", _zst)]
packed = pytest.mark.parametrize(("suffix", "pack"), PACKERS, ids=["gz", "zst"])


@pytest.fixture(autouse=True, scope="module")
def scratch_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where files are unpacked, apart from everything else."""
    directory = tmp_path_factory.mktemp("unpacked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(directory))
        yield directory


@pytest.fixture(scope="module")
def make_source(tmp_path_factory: pytest.TempPathFactory) -> MakeSource:
    path = tmp_path_factory.mktemp("source") / "lines"
    return lambda text: new_source(path, text)


def _content(path: Path) -> bytes:
    source = Source(path)
    assert source.num_bytes == len(source.buffer)
    return source.buffer.tobytes()


def _complaint(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        Source(path)
    return str(caught.value)


# What is in the file.


def test_a_plain_file_is_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    path.write_bytes(TEXT)
    assert _content(path) == TEXT


@packed
def test_a_packed_file_is_what_it_unpacks_to(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"day_0{suffix}"
    path.write_bytes(pack(TEXT))
    assert _content(path) == TEXT


@packed
def test_packed_pieces_follow_each_other(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"day_0{suffix}"
    path.write_bytes(
        b"".join(pack(TEXT[at : at + 5000]) for at in range(0, len(TEXT), 5000)) + pack(b"") + pack(b"end")
    )
    assert _content(path) == TEXT + b"end"


@packed
def test_a_file_may_be_larger_than_one_copy(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    text = Random(1).randbytes(3 << 20)  # cannot be made smaller, so that the packed file is read in pieces too
    path = tmp_path / f"day_0{suffix}"
    path.write_bytes(pack(text[: 5 << 18]) + pack(text[5 << 18 :]))
    assert _content(path) == text


@packed
def test_nothing_stays_behind(tmp_path: Path, scratch_dir: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    good, bad = tmp_path / f"good{suffix}", tmp_path / f"bad{suffix}"
    good.write_bytes(pack(TEXT))
    bad.write_bytes(pack(TEXT)[:-5])
    source = Source(good)
    with pytest.raises(DataError):
        Source(bad)
    assert list(scratch_dir.iterdir()) == []
    assert source.buffer.tobytes() == TEXT


def test_zstd_without_a_recorded_size_is_read(tmp_path: Path) -> None:
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    path = tmp_path / "day_0.zst"
    path.write_bytes(packer.compress(TEXT) + packer.flush())
    assert _content(path) == TEXT


def test_an_empty_file_has_no_bytes(tmp_path: Path) -> None:
    plain, gz, zst = (tmp_path / name for name in ("empty", "empty.gz", "empty.zst"))
    plain.touch()
    gz.write_bytes(_gz(b""))
    zst.write_bytes(_zst(b""))
    for path in (plain, gz, zst):
        source = Source(path)
        assert source.num_bytes == 0
        assert (source.line_start(0), source.line_end(0), source.last_line_start(0, 0)) == (0, 0, 0)
        assert source.whole().part(0, 10) == Segment(source, 0, 0)


# What is wrong with the file.


@packed
def test_a_file_cut_short_anywhere_is_refused_by_name(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    first, second = pack(TEXT[:9000]), pack(TEXT[9000:9300])
    path = tmp_path / f"day_0{suffix}"
    for cut in [*range(1, 40), *range(40, len(first), 97), *range(len(first) - 12, len(first) + len(second))]:
        if cut == len(first):
            continue  # the end of a piece: nothing tells that there was a second one
        path.write_bytes((first + second)[:cut])
        assert _complaint(path).startswith(f"{path} is damaged or cut short: "), cut


@packed
def test_a_packed_file_without_a_byte_is_cut_short_too(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    """A download that never began: nothing packs to no bytes, and gzip -t and zstd -t refuse them."""
    path = tmp_path / f"day_0{suffix}"
    path.touch()
    assert _complaint(path).startswith(f"{path} is damaged or cut short")
    path.write_bytes(pack(b""))
    assert _content(path) == b""


@packed
@pytest.mark.parametrize(
    "garbage", [b"label\tint_0\n1\t2\n", b"\x1f\x8b" + b"\xff" * 30, b"\x28\xb5\x2f\xfd" + b"\xff" * 30]
)
def test_garbage_is_refused_by_name(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes], garbage: bytes
) -> None:
    path = tmp_path / f"day_0{suffix}"
    for content in (garbage, pack(TEXT) + garbage):
        path.write_bytes(content)
        assert _complaint(path).startswith(f"{path} is damaged or cut short: ")


@packed
def test_a_flipped_bit_is_noticed(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    content = bytearray(
        gzip.compress(TEXT) if suffix == ".gz" else zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    )
    content[-6] ^= 1
    path = tmp_path / f"day_0{suffix}"
    path.write_bytes(content)
    assert str(path) in _complaint(path)


@pytest.mark.parametrize("name", ["day_0", "day_0.gz", "day_0.zst"])
def test_a_missing_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    assert _complaint(tmp_path / name) == f"{tmp_path / name} cannot be read: No such file or directory"


@pytest.mark.parametrize("name", ["day_0", "day_0.gz", "day_0.zst"])
def test_a_directory_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert _complaint(tmp_path / name) == f"{tmp_path / name} cannot be read: Is a directory"


def test_a_full_disk_is_foreseen(tmp_path: Path, scratch_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "day_0.gz"
    path.write_bytes(_gz(TEXT))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=0))
    assert _complaint(path).startswith(
        f"unpacking {path} needs about 0.0 GiB in {scratch_dir.resolve()}, which has 0.0 GiB"
    )


def test_a_closed_source_lets_go_of_its_memory(make_source: MakeSource) -> None:
    source = make_source(TEXT)
    seen = source.buffer
    mapped = os.fspath(source.path)
    assert mapped in Path("/proc/self/maps").read_text()
    source.close()
    assert seen.tobytes() == TEXT, "an array that looks into the memory keeps it"
    del seen
    assert mapped not in Path("/proc/self/maps").read_text()


# Line borders, against a list of them.


@settings(max_examples=300, deadline=None)
@given(text=texts)
def test_line_borders(make_source: MakeSource, text: bytes) -> None:
    source = make_source(text)
    borders = sorted({0, len(text), *(i + 1 for i, byte in enumerate(text) if byte == ord("\n"))})
    for at in range(-2, len(text) + 3):
        assert source.line_start(at) == min((b for b in borders if b >= at), default=len(text))
    for at in range(len(text) + 1):
        newlines = [i for i in range(at, len(text)) if text[i] == ord("\n")]
        assert source.line_end(at) == (newlines[0] if newlines else len(text))
    for start in borders:
        assert source.line_number(start) == text[:start].count(b"\n") + 1
        for stop in range(start, len(text) + 1):
            inside = [b for b in borders if start < b <= stop and text[b - 1] == ord("\n")]
            assert source.last_line_start(start, stop) == (inside[-1] if inside else start)


@settings(max_examples=300, deadline=None)
@given(text=texts, data=st.data())
def test_parts_share_no_line_and_leave_none_out(make_source: MakeSource, text: bytes, data: st.DataObject) -> None:
    source = make_source(text)
    borders = [0, *(i + 1 for i, byte in enumerate(text) if byte == ord("\n")), len(text)]
    start, stop = sorted((data.draw(st.sampled_from(borders)), data.draw(st.sampled_from(borders))))
    segment = Segment(source, start, stop)
    inner = data.draw(st.lists(st.integers(0, segment.num_bytes), max_size=8).map(sorted))
    cuts = [0, *inner, segment.num_bytes + data.draw(st.integers(0, 5))]
    parts = [segment.part(a, b) for a, b in pairwise(cuts)]
    assert parts[0].start == start
    assert parts[-1].stop == stop
    assert all(a.stop == b.start for a, b in pairwise(parts))
    lines = [line for part in parts for line in lines_of(text[part.start : part.stop])]
    assert lines == lines_of(text[start:stop])
    for part, first, last in zip(parts, cuts, cuts[1:], strict=False):
        begins = [b - start for b in borders[:-1] if part.start <= b < part.stop]
        assert all(first <= at < last for at in begins), "a part holds the lines that begin in it"
