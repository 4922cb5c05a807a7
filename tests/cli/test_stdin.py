"""Rows through a pipe are the rows of a file; what cannot work with a pipe is explained."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recmill.cli.main import main
from recmill.data.infer.schema_file import render
from recmill.data.logs.stdin_file import is_spooled
from recmill.settings.columns import Schema
from tests.data.tables import JSON_LINES, TEXT, make_rows, to_json_lines, write_csv

TINY = ("data.global_batch=64", "data.num_lanes=2", "model.bottom=[16]", "stop.max_steps=3", "data.holdout_rows=60")
WORDS = [word for setting in TINY for word in ("--set", setting)]

Pipe = Callable[[bytes], None]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    """Gives bytes to standard input, as a file or, if they are few, through a pipe."""
    before = os.dup(0)

    def give(data: bytes) -> None:
        if len(data) < 4096:
            end, begin = os.pipe()
            os.write(begin, data)
            os.close(begin)
        else:
            (tmp_path / "given").write_bytes(data)
            end = os.open(tmp_path / "given", os.O_RDONLY)
        os.dup2(end, 0)
        os.close(end)

    yield give
    os.dup2(before, 0)
    os.close(before)


def _write_schema(path: Path, schema: Schema) -> list[str]:
    columns = tuple(c.with_({"rows": 100}) if c.role == "category" else c for c in schema.columns)
    path.write_text(render(schema.with_({"columns": columns})))
    return ["--schema", str(path)]


@pytest.mark.parametrize("word", ["-", "/dev/stdin"])
def test_a_pipe_trains_and_predicts_like_a_file(
    word: str, tmp_path: Path, pipe: Pipe, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = make_rows(300, 1)
    path, schema = write_csv(tmp_path / "rows.csv", rows), _write_schema(tmp_path / "shop.toml", TEXT)
    assert main(["train", "demo", "--data", str(path), *schema, "--run", str(tmp_path / "file"), *WORDS]) == 0
    pipe(path.read_bytes())
    assert not is_spooled()
    assert main(["train", "demo", "--data", word, *schema, "--run", str(tmp_path / "pipe"), *WORDS]) == 0
    assert is_spooled()
    results = [json.loads((tmp_path / run / "results.json").read_text())["test"] for run in ("file", "pipe")]
    assert results[0] == results[1]
    for name, data in {"file": str(path), "pipe": word}.items():
        pipe(path.read_bytes())
        assert main(["predict", str(tmp_path / name), "--data", data, "--out", str(tmp_path / f"{name}.csv")]) == 0
    assert (tmp_path / "pipe.csv").read_bytes() == (tmp_path / "file.csv").read_bytes()
    evaluated = []
    for data in (str(path), word):
        pipe(path.read_bytes())
        capsys.readouterr()
        assert main(["evaluate", str(tmp_path / "file"), "--data", data, "--json"]) == 0
        evaluated.append(json.loads(capsys.readouterr().out)["auroc"])
    assert evaluated[0] == evaluated[1]
    for name, data in {"file": str(path), "pipe": word}.items():
        pipe(path.read_bytes())
        holdout = ["--set", "data.holdout_rows=60"]
        assert main(["prepare", "--data", data, *schema, *holdout, "--out", str(tmp_path / f"{name}_rows")]) == 0
    prepared = [(tmp_path / f"{name}_rows" / "train_sparse.npy").read_bytes() for name in ("file", "pipe")]
    assert prepared[0] == prepared[1]
    capsys.readouterr()
    pipe(path.read_bytes())  # may be other rows
    assert main(["train", "--resume", "--run", str(tmp_path / "pipe")]) == 2
    assert "cannot go on: its rows came through standard input, and nobody has kept them" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "pipe")]) == 2
    assert "the rows came through standard input, and nobody has kept them; give them" in capsys.readouterr().err


def test_json_lines_are_recognized_without_a_name(
    tmp_path: Path, pipe: Pipe, capsys: pytest.CaptureFixture[str]
) -> None:
    data = to_json_lines(make_rows(300, 2))
    pipe(data)
    assert main(["schema", "infer", "-", "--label", "clicked"]) == 0
    assert 'name = "stdin"\nformat = "jsonl"\n' in capsys.readouterr().out
    schema = _write_schema(tmp_path / "shop.toml", JSON_LINES)
    pipe(data)
    assert main(["train", "demo", "--data", "-", *schema, "--run", str(tmp_path / "run"), *WORDS]) == 0
    pipe(data)
    assert main(["predict", str(tmp_path / "run"), "--data", "-", "--out", str(tmp_path / "out.csv")]) == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 301


def test_a_short_text_is_inferred_from_a_pipe(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    pipe(b"click,price\n" + b"0,1.5\n1,2.5\n" * 20)
    assert main(["schema", "infer", "-"]) == 0
    assert 'name = "click", role = "label"' in capsys.readouterr().out


def test_what_cannot_be_read_is_explained(
    tmp_path: Path, pipe: Pipe, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", "demo", "--data", "-", "--run", str(tmp_path / "run")]
    pipe(b"")
    assert main(words) == 2
    assert "standard input is empty" in capsys.readouterr().err
    assert main([*words, "--procs", "2"]) == 2
    assert "--data -: several processes cannot read standard input; write the rows" in capsys.readouterr().err
    monkeypatch.setattr("os.isatty", lambda _: True)
    assert main(words) == 2
    assert "nothing comes through standard input" in capsys.readouterr().err
