from pathlib import Path

import pytest

from recmill.errors import DataError, RunError
from recmill.files import (
    checksum,
    finished_dir,
    finished_file,
    read_manifest,
    refuse_unwritable,
    require_free_space,
    stated_checksum,
    write_atomic,
    write_listing,
    write_manifest,
)


def write_half(target: Path) -> None:
    with finished_dir(target) as scratch:
        (scratch / "half").write_text("x")
        assert not target.exists()
        raise RuntimeError


def test_a_directory_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "target"
    with pytest.raises(RuntimeError):
        write_half(target)
    assert list(target.parent.iterdir()) == []
    with finished_dir(target) as scratch:
        (scratch / "whole").write_text("x")
    assert [path.name for path in target.iterdir()] == ["whole"]


def write_half_a_file(path: Path) -> None:
    with finished_file(path) as scratch:
        scratch.write_text("half")
        raise RuntimeError


def test_a_file_keeps_its_old_content_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    with pytest.raises(RuntimeError):
        write_half_a_file(path)
    assert ([each.name for each in tmp_path.iterdir()], path.read_text()) == (["file"], "old")
    with finished_file(path) as scratch:
        scratch.write_text("new")
        assert path.read_text() == "old"
    assert ([each.name for each in tmp_path.iterdir()], path.read_text()) == (["file"], "new")


def test_an_occupied_directory_is_replaced_only_when_told_and_complete(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(DataError, match="target is not empty"), finished_dir(target):
        raise AssertionError("the body must not run")
    with pytest.raises(RuntimeError), finished_dir(target, overwrite=True):
        raise RuntimeError
    assert (target / "old").exists()
    with finished_dir(target, overwrite=True) as scratch:
        (scratch / "new").touch()
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    with pytest.raises(DataError, match="is a file"), finished_dir(target / "new"):
        raise AssertionError("the body must not run")


def test_an_atomic_write_leaves_the_old_content_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    with pytest.raises(TypeError):
        write_atomic(path, 5)  # type: ignore[arg-type]
    assert path.read_text() == "old"
    write_atomic(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "new"


def test_a_manifest_vouches_for_every_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    write_manifest(tmp_path, kind="test")
    assert read_manifest(tmp_path)["kind"] == "test"
    (tmp_path / "a").write_bytes(b"abd")
    with pytest.raises(RunError, match=r"a is not the file that manifest\.json lists"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("files", ["[]", "null", '"a"', '{"a": 3}'])
def test_a_manifest_without_a_table_of_files_is_named(tmp_path: Path, files: str) -> None:
    (tmp_path / "manifest.json").write_text(f'{{"files": {files}}}')
    with pytest.raises(RunError, match=r"manifest\.json is damaged: files.* is not a table"):
        read_manifest(tmp_path)


def test_what_cannot_fit_is_refused_before_it_is_written(tmp_path: Path) -> None:
    require_free_space(tmp_path / "not" / "yet", 1, "a byte")
    with pytest.raises(DataError, match=r"everything needs about \d+\.\d GiB in .* which has .* GiB free"):
        require_free_space(tmp_path / "not" / "yet", 1 << 60, "everything")


def test_directories_with_the_checksums_of_before_are_read_and_verified(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"abc")
    stated = {"bytes": 3, "sha256": checksum(tmp_path / "rows", "sha256")}
    write_listing(tmp_path, {"rows": stated})
    assert stated_checksum(read_manifest(tmp_path)["files"]["rows"]) == stated["sha256"]
    (tmp_path / "rows").write_bytes(b"abd")
    with pytest.raises(RunError, match="checksum differs"):
        read_manifest(tmp_path)


def test_a_listed_file_without_any_checksum_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"abc")
    write_listing(tmp_path, {"rows": {"bytes": 3}})
    with pytest.raises(RunError, match="checksum differs"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x/y", "/proc/self/fd/x/y"])
def test_a_place_that_cannot_be_written_is_rejected_before_any_work(place: str) -> None:
    with pytest.raises(DataError, match=f"^{place} cannot be .*; choose another place"):
        refuse_unwritable(Path(place))


def test_a_place_that_can_be_made_is_left_as_it_is(tmp_path: Path) -> None:
    refuse_unwritable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
