"""Directories that are written to: one process at a time, and none that is dead is in the way."""

import json
import os
import socket
from pathlib import Path

import pytest

from recmill.cli.main import main
from recmill.errors import RunError
from recmill.files import finished_dir
from recmill.lock import locked_output

CRITEO = ("synth", "criteo", "--days", "3", "--rows", "60")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A click log and events."""
    place = tmp_path_factory.mktemp("place")
    assert main([*CRITEO, "--out", str(place / "log")]) == 0
    users = ("--users", "40", "--items", "80")
    assert main(["synth", "interactions", *users, "--out", str(place / "events")]) == 0
    return place


def commands(place: Path) -> dict[str, list[str]]:
    """Every kind of command that writes a directory in stages, without its --out."""
    return {
        "rows": ["prepare", "--data", str(place / "log")],
        "events": ["prepare", "--preset", "events", "--data", str(place / "events" / "interactions.csv")],
        "criteo": [*CRITEO],
        "interactions": ["synth", "interactions", "--users", "40", "--items", "80"],
        "table": ["synth", "table", "--rows", "200"],
        "split": ["split", str(place / "log" / "day_0"), "--parts", "2", "--rows", "5"],
    }


@pytest.mark.parametrize("name", list(commands(Path())))
def test_a_second_writer_is_rejected_by_directory_and_process(
    name: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "out"
    words = [*commands(place)[name], "--out", str(out)]
    with locked_output(out):
        assert main(words) == 2
        assert f"{out} is in use by process {os.getpid()}" in capsys.readouterr().err
    assert not out.exists()
    assert main(words) == 0
    assert [path.name for path in out.parent.iterdir()] == ["out"]  # the lock is gone


@pytest.mark.parametrize("name", ["rows", "events"])
def test_the_lock_of_a_dead_process_is_no_obstacle(name: str, place: Path, tmp_path: Path) -> None:
    owner = {"host": socket.gethostname(), "pid": 2**22 - 1}
    (tmp_path / ".out.lock").write_text(json.dumps(owner))
    assert main([*commands(place)[name], "--out", str(tmp_path / "out")]) == 0


def test_a_directory_that_is_being_written_is_rejected(tmp_path: Path) -> None:
    with finished_dir(tmp_path / "out") as scratch:
        (scratch / "file").touch()
        with pytest.raises(RunError, match="is in use by process"), finished_dir(tmp_path / "out"):
            pass
    assert (tmp_path / "out" / "file").exists()
