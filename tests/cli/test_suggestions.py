"""Whatever command a message suggests works when it is followed."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recmill.cli.main import main
from tests.data.shop import write_shop

Follow = Callable[..., list[str]]
TINY = ["--set", "data.global_batch=100", "--set", "stop.max_steps=3"]


def suggested(text: str) -> list[list[str]]:
    """The commands of recmill in a message: behind `next:`, or within backticks."""
    found = re.findall(r"next: (recmill .*)", text) + re.findall(r"`(recmill [^`]*)`", text)
    return [shlex.split(command)[1:] for command in found]


@pytest.fixture
def follow(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Follow:
    """Runs a command, then the first one that it suggests with more words behind it; the words of that one."""
    monkeypatch.chdir(tmp_path)

    def followed(*words: object, status: int = 0, more: tuple[object, ...] = ()) -> list[str]:
        assert main([str(word) for word in words]) == status
        commands = suggested("\n".join(capsys.readouterr()))
        assert commands, words
        assert main([*commands[0], *map(str, more)]) == 0, capsys.readouterr().err
        return commands[0]

    return followed


def test_a_log_that_is_not_there_is_made_and_trained_on(follow: Follow) -> None:
    made = follow("train", "demo", "--data", "nowhere", "--run", "x", status=2, more=("--rows", 3000, "--days", 3))
    assert made[:2] == ["synth", "criteo"]
    trained = follow("synth", "criteo", "--rows", 3000, "--days", 3, "--scale", 0.0001, "--out", "log", more=TINY)
    assert trained[0] == "train"


def test_synthetic_events_are_prepared_and_trained_on(follow: Follow) -> None:
    prepared = follow("synth", "interactions", "--users", 100, "--items", 80, "--out", "world")
    assert prepared[:2] == ["prepare", "--preset"]
    follow(*prepared, "--overwrite", more=("--set", "model.embedding_dim=8", "--set", "stop.max_steps=3"))


def test_events_without_a_validation_split_can_be_trained_on(
    follow: Follow, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synth", "interactions", "--users", "100", "--items", "80", "--out", "world"]) == 0
    capsys.readouterr()
    words = ("prepare", "--preset", "events", "--data", "world/interactions.csv", "--out", "seq", "--split", "last")
    follow(*words, more=("--set", "model.embedding_dim=8", "--set", "stop.max_steps=3"))


def test_prepared_rows_are_trained_on(follow: Follow, tiny_world_dir: Path) -> None:
    trained = follow("prepare", "--data", tiny_world_dir, "--out", "rows", more=TINY)
    assert trained == ["train", "small", "--data", "rows", "--run", "runs/rows"]


def test_an_inferred_schema_is_trained_with(follow: Follow, tmp_path: Path) -> None:
    write_shop(tmp_path / "shop.csv")
    trained = follow("schema", "infer", "shop.csv", "--out", "shop.toml", "--label", "clicked", more=TINY)
    assert trained[:2] == ["train", "auto"]


def test_a_schema_that_is_not_there_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_shop(tmp_path / "shop.csv")
    audit = ["audit", "--data", str(tmp_path / "shop.csv"), "--schema", str(tmp_path / "own.toml")]
    assert main(audit) == 2
    (command,) = suggested(capsys.readouterr().err)
    assert main([str(tmp_path / "shop.csv") if word == "FILE" else word for word in command]) == 0
    assert main(audit) == 0


def test_a_file_of_the_other_format_gets_a_schema_that_fits(follow: Follow, tmp_path: Path) -> None:
    import polars as pl

    write_shop(tmp_path / "shop.csv")
    pl.read_csv(tmp_path / "shop.csv").write_parquet(tmp_path / "shop.parquet")
    follow("audit", "--data", "shop.parquet", "--schema", "criteo", status=2)
    assert (tmp_path / "shop.toml").is_file()


def test_exported_weights_are_evaluated(follow: Follow, tiny_world_dir: Path) -> None:
    assert main(["train", "demo", "--data", str(tiny_world_dir), "--run", "run", *TINY]) == 0
    follow("checkpoint", "export", "run", "--out", "weights")


def test_a_bad_row_is_skipped_by_the_same_command_with_the_option(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that ended by a bad row is begun again, or goes on, with the option that its message names."""
    for path in tiny_world_dir.glob("day_*"):
        (tmp_path / path.name).write_text(path.read_text())
    with (tmp_path / "day_0").open("a") as file:
        file.write("no row\n")
    sets = ["--set", "data.global_batch=100", "--set", "data.num_lanes=1"]
    words = ["train", "demo", "--data", str(tmp_path), *sets]
    for name, more in (("again", []), ("saved", ["--set", "cadence.save_every_steps=2"])):
        run = ["--run", str(tmp_path / name)]
        assert main([*words, *run, *more]) == 2
        assert "pass --bad-rows skip" in capsys.readouterr().err
        going_on = ["train", "--resume", *run] if more else [*words, *run, *more]
        assert main([*going_on, "--bad-rows", "skip"]) == 0, capsys.readouterr().err


def test_too_many_bad_rows_are_allowed_by_the_setting_that_the_message_names(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in tiny_world_dir.glob("day_*"):
        lines = path.read_text().splitlines(keepends=True)
        (tmp_path / path.name).write_text("".join(line + "no row\n" * (i % 10 == 0) for i, line in enumerate(lines)))
    words = ["train", "demo", "--data", str(tmp_path), "--run", str(tmp_path / "run"), "--bad-rows", "skip", *TINY]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "lines read are bad (9." in told
    assert f"{tmp_path}/day_" in told
    assert "--set data.max_bad_frac=" in told
    assert main([*words, "--set", "data.max_bad_frac=0.2"]) == 0, capsys.readouterr().err
    evaluated = ["evaluate", str(tmp_path / "run"), "--bad-rows", "skip", "--set", "data.max_bad_frac=0.05"]
    for more in ([], ["--data", str(tmp_path / "day_0")]):
        assert main([*evaluated, *more]) == 2
        assert "lines read are bad (9.09%), more than data.max_bad_frac = 0.05" in capsys.readouterr().err


def test_a_run_that_was_stopped_goes_on_as_its_message_says(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "demo", "--data", str(tiny_world_dir), "--run", str(tmp_path / "run"), *TINY]
    assert main(words) == 0
    assert main(words) == 2
    assert "continue it with --resume, replace it with --overwrite" in capsys.readouterr().err
    assert main(["train", "--run", str(tmp_path / "run"), "--resume"]) == 0
    assert main([*words, "--overwrite"]) == 0


def test_a_setting_is_taken_as_the_message_writes_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The ways out that settings name, followed one by one until nothing is wrong."""
    words = ["plan", "demo", "--memory", "64GiB"]
    changes = ["model.bottom=[64,32]"]
    for _ in range(3):
        if main([*words, *(word for change in changes for word in ("--set", change))]) == 0:
            break
        said = re.findall(r"set (\S+=(?:\[[^\]]*\]|\S+))", capsys.readouterr().err)
        assert said
        changes = [*changes, said[0].rstrip(",;")]
    else:
        pytest.fail(f"{changes} never fit")
    assert len(changes) == 2


def test_a_random_shop_is_not_one_label(tmp_path: Path) -> None:
    write_shop(tmp_path / "shop.csv")
    labels = [line.split(",")[1] for line in (tmp_path / "shop.csv").read_text().splitlines()[1:]]
    assert 0.1 < np.mean([label == "1" for label in labels]) < 0.6


def test_an_inferred_schema_of_files_with_spaces_is_trained_with(follow: Follow, tmp_path: Path) -> None:
    (tmp_path / "my logs").mkdir()
    write_shop(tmp_path / "my logs" / "a b.csv")
    write_shop(tmp_path / "my logs" / "c.csv")
    files = ("my logs/a b.csv", "my logs/c.csv")
    options = ("--out", "my shop.toml", "--label", "clicked", "--ignore", "city")
    assert follow("schema", "infer", *files, *options, more=TINY)[:3] == ["train", "auto", "--data"]
    assert follow("schema", "infer", files[0], *options, "--overwrite", more=(*TINY, "--overwrite"))[3] == files[0]
