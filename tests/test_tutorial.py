"""The tutorial of one's own CSV does what it says, on fewer rows."""

import re
from pathlib import Path

import pytest

from recmill.cli.main import main

PAGE = (Path(__file__).parents[1] / "docs" / "own-csv.md").read_text()


def test_the_tutorial_of_ones_own_csv_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    \$ recmill (.*)$", PAGE, re.M)
    assert [command.split()[0] for command in commands] == ["synth", "train", "schema", "train", "evaluate", "predict"]
    for command in commands:
        assert main(command.replace("100000", "4000").split()) == 0, command
    printed = capsys.readouterr().out
    assert "logistic regression" in printed
    assert "desktop" in printed
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 4_001
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(compile(script, "own-csv.md", "exec"), {})
    assert re.search(r"^0\.\d+ 0\.\d+$", capsys.readouterr().out, re.M)


def test_the_tutorial_is_short() -> None:
    assert len(PAGE.splitlines()) <= 45
