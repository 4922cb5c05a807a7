"""`recmill sort` as a person meets it."""

import re
import shlex
from pathlib import Path

import pytest

from recmill.cli.main import main

SCHEMA = """
separator = ","
header = true
columns = [
    { name = "clicked", role = "label", kind = "int" },
    { name = "seen", role = "time", kind = "time" },
    { name = "price", role = "dense", kind = "float" },
    { name = "hour", role = "category", source = "seen", part = "hour" },
]
"""


def test_the_error_of_an_unsorted_file_names_the_command_that_sorts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, schema = tmp_path / "my log.csv", tmp_path / "shop.toml"
    schema.write_text(SCHEMA)
    log.write_text("clicked,seen,price\n" + "".join(f"{i % 2},2024-05-{30 - i:02},{i}\n" for i in range(29)) + "1,,3\n")
    words = ["--schema", str(schema), "--set", "data.holdout_frac=0.2"]
    assert main(["prepare", "--data", str(log), "--out", str(tmp_path / "rows"), *words]) == 2
    command = re.search(r"with `recmill (sort .*?)`", capsys.readouterr().err)
    assert command is not None
    assert main(shlex.split(command[1])) == 0
    told = capsys.readouterr().out
    assert "my log-sorted: 30 rows in 1 file in the order of seen, " in told
    assert "1 lines have no seen that can be read" in told
    audit = re.search(r"`recmill (audit .*?)`", told)
    assert audit is not None
    assert main(shlex.split(audit[1])) in (0, 2)
    assert "no files" not in capsys.readouterr().err
    assert main(shlex.split(command[1])) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["prepare", "--data", str(tmp_path / "my log-sorted"), "--out", str(tmp_path / "rows"), *words]) == 0


def test_train_names_the_schema_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop.toml").write_text(SCHEMA)
    (tmp_path / "log.csv").write_text("clicked,seen,price\n1,2024-05-02,1\n0,2024-05-01,2\n")
    words = ["--data", str(tmp_path / "log.csv"), "--schema", str(tmp_path / "shop.toml"), "--run", str(tmp_path / "r")]
    assert main(["train", "demo", *words, "--set", "data.holdout_frac=0.5"]) == 2
    expected = f"recmill sort {tmp_path}/log.csv --schema {tmp_path}/shop.toml --out {tmp_path}/log-sorted"
    assert expected in capsys.readouterr().err
