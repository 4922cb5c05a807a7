"""What is said of raw files that are no longer what they were."""

import shutil
from pathlib import Path

import pytest

from recmill.files import STDIN
from recmill.settings.data import DataConfig
from recmill.training.raw_files import difference_of_logs, identity_of_logs, is_of_logs


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    for day in range(3):
        (tmp_path / "log" / f"day_{day}").write_text(f"row {day}\n" * 100)
    return tmp_path / "log"


def identity(path: Path, **settings: object) -> str:
    return identity_of_logs(DataConfig(dir=str(path), table_rows=(2,) * 26, **settings))


def test_files_that_are_moved_or_touched_are_the_same(log: Path, tmp_path: Path) -> None:
    before = identity(log)
    shutil.copytree(log, tmp_path / "moved")
    assert identity(tmp_path / "moved") == before
    assert difference_of_logs(before, before) is None


def test_a_single_file_may_be_renamed(log: Path, tmp_path: Path) -> None:
    before = identity(log / "day_0", holdout_frac=0.1)
    shutil.copy(log / "day_0", tmp_path / "rows, with = and / signs".replace("/", "%"))
    after = identity(tmp_path / "rows, with = and % signs", holdout_frac=0.1)
    assert before != after
    assert difference_of_logs(before, after) is None


def test_what_has_become_of_a_file_is_said(log: Path) -> None:
    before = identity(log)
    contents = {path.name: path.read_text() for path in log.iterdir()}

    def told() -> str | None:
        found = difference_of_logs(before, identity(log))
        for name, content in contents.items():
            (log / name).write_text(content)
        return found

    (log / "day_1").write_text("row 7\n" * 100)
    assert told() == "day_1 is of the same size as then and has another content"
    (log / "day_2").write_text("row 2\n" * 101)
    assert told() == "day_2 had 600 bytes then and has 606 now"
    shutil.copy(log / "day_0", log / "day_3")
    assert told() == "day_3 was not among them then"
    (log / "day_3").unlink()
    for day, other in ((0, 1), (1, 0)):
        (log / f"day_{day}").write_text(contents[f"day_{other}"])
    assert told() == "day_0 is of the same size as then and has another content"
    (log / "day_2").unlink()
    assert told() == "day_2 is no longer among them"


def test_standard_input_and_prepared_rows_have_none() -> None:
    assert identity(Path(STDIN), holdout_frac=0.1) == ""
    assert not is_of_logs("")
    assert difference_of_logs("0" * 64, "1" * 64) is None
