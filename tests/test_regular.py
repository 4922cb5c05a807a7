"""Files that are none are rejected without a wait, and names that lead out of a directory without a look."""

import os
from pathlib import Path

import pytest

from recmill.errors import DataError
from recmill.regular import inside, is_plain_name, require_regular


def test_a_regular_file_and_a_link_to_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1234")
    (tmp_path / "link").symlink_to("file")
    assert require_regular(tmp_path / "file").st_size == require_regular(tmp_path / "link").st_size == 4


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name, complaint in {
        "none": "is missing; do so",
        "pipe": "is a named pipe, not a file; do so",
        "loop": "cannot be opened: Too many levels of symbolic links; do so",
        "device": "is a device, not a file; do so",
        "folder": "is a directory, not a file; do so",
        "\ud800": "cannot be opened",
        "nul\0": "cannot be opened",
    }.items():
        with pytest.raises(DataError, match=complaint):
            require_regular(tmp_path / name, "do so")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/", "/etc/passwd", "a/../..", "../x", "\0", "\ud800", None, 7, "x" * 2000]
)
def test_names_that_are_none(tmp_path: Path, name: object) -> None:
    assert not is_plain_name(name)
    with pytest.raises(DataError, match="is no name of a file in it"):
        inside(tmp_path, name)


def test_links_may_lead_about_in_a_directory_and_not_out_of_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_text("1")
    (home / "file").write_text("1")
    (home / "folder" / "in").symlink_to("../file")
    (home / "out").symlink_to("../secret")
    (home / "way").symlink_to(tmp_path)
    (tmp_path / "other").symlink_to(home)
    assert inside(home, "folder/in") == home / "folder" / "in"
    assert inside(tmp_path / "other", "file").read_text() == "1"
    for name in ("out", "way/secret"):
        with pytest.raises(DataError, match="is a link that leads out of"):
            inside(home, name)
