"""The README's commands and script do what they say, on less data."""

import re
from pathlib import Path

import pytest

from recmill.cli.main import main

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_readme_is_a_page() -> None:
    assert len(README.encode()) <= 10_000
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert (Path(__file__).parents[1] / target).exists(), target


def test_the_script_of_a_newcomer_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (script,) = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(script.splitlines()) <= 25
    exec(compile(script.replace("300_000", "160_000"), "README.md", "exec"), {})
    printed = capsys.readouterr()
    assert "did you mean dense.lr?" in printed.out
    assert printed.err == ""


def test_the_three_commands_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    \$ recmill (.*)$", README, re.M)
    assert [command.split()[0] for command in commands] == ["synth", "train", "evaluate"]
    for command in commands:
        assert main(command.replace("300000", "20000").split()) == 0
