"""Every verb takes Parquet where it takes text: days, patterns, a single file with a tail held out."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from recmill.cli.main import main
from recmill.data.infer.schema_file import render
from recmill.settings.columns import Schema
from tests.data.tables import PARQUET, TEXT, make_rows, to_table, write_csv, write_parquet

TINY = ("data.global_batch=64", "data.num_lanes=2", "data.block_rows=50", "model.bottom=[16]", "stop.max_steps=3")


def _write_schema(path: Path, schema: Schema) -> Path:
    columns = tuple(c.with_({"rows": 100}) if c.role == "category" else c for c in schema.columns)
    path.write_text(render(schema.with_({"columns": columns})))
    return path


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """Two days of 300 rows as Parquet, the schema of which lies beside them."""
    directory = tmp_path / "days"
    directory.mkdir()
    for day in range(2):
        write_parquet(directory / f"day_{day}.parquet", to_table(make_rows(300, day)))
    _write_schema(tmp_path / "shop.toml", PARQUET)
    return directory


def _settings(*settings: str) -> list[str]:
    return [word for setting in (*TINY, *settings) for word in ("--set", setting)]


def test_days_are_audited_prepared_trained_on_and_judged(
    days: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = ["--schema", str(tmp_path / "shop.toml")]
    assert main(["audit", "--data", str(days), *schema, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["train"]["num_rows"], report["test"]["num_rows"]) == (300, 300)
    assert main(["prepare", "--data", str(days), *schema, "--out", str(tmp_path / "rows")]) == 0
    assert "600 rows (300 for train, 150 for validation, 150 for test)" in capsys.readouterr().out
    for name, words in {
        "raw": ["--data", str(days), *schema],
        "vocabulary": ["--data", str(days), "--vocabulary", str(tmp_path / "rows")],
        "prepared": ["--data", str(tmp_path / "rows")],
    }.items():
        assert main(["train", "demo", *words, "--run", str(tmp_path / name), *_settings()]) == 0, name
        assert main(["evaluate", str(tmp_path / name), "--json"]) == 0
        judged = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert judged["num_rows"] == 150
    results = [json.loads((tmp_path / run / "results.json").read_text())["test"] for run in ("vocabulary", "prepared")]
    assert results[0] == results[1]


def test_patterns_and_tails_choose_the_rows(days: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = ["--schema", str(tmp_path / "shop.toml")]
    assert main(["audit", "--data", str(days), "--files", "*.parquet", *schema, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["train"]["num_rows"] == 600
    out = ["--out", str(tmp_path / "rows"), "--overwrite"]
    patterns = ["--set", "data.train_files=['*.parquet']", "--set", "data.holdout_rows=100"]
    assert main(["prepare", "--data", str(days), *schema, *out, *patterns]) == 0
    assert "(500 for train, 50 for validation, 50 for test)" in capsys.readouterr().out
    share = ["--set", "data.holdout_frac=0.2"]
    assert main(["prepare", "--data", str(days / "day_0.parquet"), *schema, *out, *share]) == 0
    assert "(240 for train, 30 for validation, 30 for test)" in capsys.readouterr().out


@pytest.mark.parametrize("store", ["npy", "parquet"])
def test_prepared_from_parquet_and_from_text_are_the_same_bytes(tmp_path: Path, store: str) -> None:
    rows = make_rows(400, 9)
    write_csv(tmp_path / "log.csv", rows)
    write_parquet(tmp_path / "log.parquet", to_table(rows))
    made = list[dict[str, bytes]]()
    for schema, name in ((TEXT, "log.csv"), (PARQUET, "log.parquet")):
        words = ["--data", str(tmp_path / name), "--schema", str(_write_schema(tmp_path / "shop.toml", schema))]
        out_dir = tmp_path / f"{name}.rows"
        words += ["--out", str(out_dir), "--set", "data.holdout_frac=0.2", "--format", store, "--seed", "3"]
        assert main(["prepare", *words]) == 0
        files = [path for path in out_dir.rglob("*") if path.is_file() and path.name != "manifest.json"]
        made.append({str(path.relative_to(out_dir)): path.read_bytes() for path in files})
    assert len(made[0]) > 5
    assert made[0] == made[1]


def test_a_bad_row_stops_a_run_with_its_place_or_is_counted(
    days: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = make_rows(300, 0)
    rows[122][1] = b""
    path = write_parquet(days / "day_0.parquet", to_table(rows))
    words = ["--data", str(days), "--schema", str(tmp_path / "shop.toml")]
    place = f"{path}, row 123: column clicked holds 'null': a label is 0 or 1; "
    place += "of others the schema says which are positive (positive = ...)"
    for verb in (
        ["audit", *words],
        ["prepare", *words, "--out", str(tmp_path / "rows")],
        ["train", "demo", *words, "--run", str(tmp_path / "run"), *_settings("stop.max_steps=9")],
    ):
        assert main(verb) == 2
        captured = capsys.readouterr()
        told = captured.out + captured.err
        assert place in told
        assert "--bad-rows skip" in told
    assert main(["audit", *words, "--bad-rows", "skip", "--json"]) == 0
    bad = json.loads(capsys.readouterr().out)["bad"]
    assert (bad["count"], bad["first"], bad["gave_up"]) == (1, [place], False)
    assert main(["prepare", *words, "--out", str(tmp_path / "good"), "--bad-rows", "skip"]) == 0
    told = capsys.readouterr().out
    assert "599 rows (299 for train" in told
    assert "1 bad lines ignored" in told
    run = ["--run", str(tmp_path / "run"), "--overwrite", "--bad-rows", "skip", *_settings("stop.max_steps=9")]
    assert main(["train", "demo", *words, *run]) == 0
    assert json.loads((tmp_path / "run" / "results.json").read_text())["skipped_rows"] == 1


def test_text_and_parquet_do_not_mix(days: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--data", str(days)]) == 2
    assert "day_0.parquet is Parquet, and schema criteo is one of text; `recmill schema inf" in capsys.readouterr().err
    text = write_csv(tmp_path / "log.csv", make_rows(5, 1))
    assert main(["schema", "infer", str(days / "day_0.parquet"), str(text)]) == 2
    assert "some of the files are Parquet and some are not" in capsys.readouterr().err
    assert main(["audit", "--data", str(text), "--schema", str(tmp_path / "shop.toml")]) == 2
    assert f"{text} is not a complete Parquet file" in capsys.readouterr().err


def test_a_schema_is_inferred_shown_and_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"click": [0, 1] * 60, "age": list(range(120)), "likes": [["a", "b"], None] * 60})
    path, out = write_parquet(tmp_path / "likes.parquet", table), tmp_path / "likes.toml"
    assert main(["schema", "infer", str(path), "--out", str(out)]) == 0
    assert 'format = "parquet"' in out.read_text()
    assert main(["schema", "show", str(out)]) == 0
    shown = capsys.readouterr().out
    assert '{ name = "likes", role = "category", kind = "string", rows = 1_000, max_values = 2 }' in shown
