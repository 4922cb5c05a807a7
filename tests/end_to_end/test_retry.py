"""A start that failed by bad data is followed by the same command on the repaired data."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from recmill.cli.main import main
from recmill.data.prepared.directory import read_facts

SMALL = ("--set", "data.global_batch=100", "--set", "stop.max_steps=3")
SHOP = "clicked,price,shop\n" + "".join(f"{i % 3 == 0:d},{i % 17}.5,s{i % 5}\n" for i in range(600))
EVENTS = "user,item,time\n" + "".join(f"{i % 20},{i * 7 % 30},{i}\n" for i in range(400))


def fails_then_works(
    words: Sequence[str | Path], path: Path, good: str, bad: str, capsys: pytest.CaptureFixture[str]
) -> str:
    """Run a command on bad data, then on good data; what the first one says."""
    path.write_text(bad)
    assert main([str(word) for word in words]) == 2
    told = capsys.readouterr().err
    path.write_text(good)
    assert main([str(word) for word in words]) == 0, capsys.readouterr().err
    return told


@pytest.mark.parametrize("line", [0, 450], ids=["first line", "late line"])
def test_train_on_logs(line: int, tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in tiny_world_dir.glob("day_*"):
        (tmp_path / path.name).write_text(path.read_text())
    good = (tmp_path / "day_0").read_text()
    lines = good.splitlines(keepends=True)
    lines[line] = "no row\n"
    words = ("train", "demo", "--data", tmp_path, "--run", tmp_path / "run", *SMALL[:2], "--set", "stop.max_steps=30")
    told = fails_then_works(words, tmp_path / "day_0", good, "".join(lines), capsys)
    assert f"day_0:{line + 1}: " in told


def test_train_auto_on_a_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad_line = "x\n"
    path, run = tmp_path / "shop.csv", tmp_path / "runs" / "run"
    words = ("train", "auto", "--data", path, "--label", "clicked", "--run", run, *SMALL)
    path.write_text(SHOP + bad_line)
    assert main([str(word) for word in words]) == 2
    assert not run.exists()
    fails_then_works(words, path, SHOP, SHOP + bad_line, capsys)
    assert sum(read_facts(run / "rows").num_rows(name) for name in ("train", "validation", "test")) == 600


def test_train_auto_with_the_option_that_its_message_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, run = tmp_path / "shop.csv", tmp_path / "run"
    path.write_text(SHOP + "x\n")
    words = ["train", "auto", "--data", str(path), "--label", "clicked", "--run", str(run), *SMALL]
    assert main(words) == 2
    assert "pass --bad-rows skip" in capsys.readouterr().err
    assert main([*words, "--bad-rows", "skip"]) == 0, capsys.readouterr().err


def test_prepare_rows(tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (tiny_world_dir / "day_0").read_text()
    words = ("prepare", "--data", tmp_path / "day_0", "--out", tmp_path / "rows", "--set", "data.holdout_frac=0.1")
    fails_then_works(words, tmp_path / "day_0", good, good + "no row\n", capsys)


def test_prepare_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("prepare", "--preset", "events", "--data", tmp_path / "events.csv", "--out", tmp_path / "sequences")
    fails_then_works(words, tmp_path / "events.csv", EVENTS, EVENTS + "1,2,soon\n", capsys)
