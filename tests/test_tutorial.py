"""The tutorials do what they say: that of one's own CSV on fewer rows."""

import json
import re
from pathlib import Path

import pytest

from recmill.cli.main import main

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "own-csv.md").read_text()


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


@pytest.mark.slow
def test_the_tutorial_of_the_next_item_shows_what_a_model_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in re.findall(r"^    \$ recmill (.*)$", (DOCS / "next-item.md").read_text(), re.M):
        assert main(command.split()) == 0, command
    results = json.loads((tmp_path / "runs" / "next" / "results.json").read_text())
    assert results["test"]["ndcg@10"] > results["baselines"]["markov"]["ndcg@10"] + 0.1
