"""`recmill audit` as a person, or a script, meets it."""

import json
from pathlib import Path

import pytest

from recmill.cli.main import main
from tests.laws.hostile import tell


def _audit(*words: str | Path) -> int:
    return main(["audit", *(str(word) for word in words)])


def test_a_sound_log_is_described_and_passes(tiny_world_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _audit("--data", tiny_world_dir, "--max-overlap", "1") == 0
    told = capsys.readouterr().out
    assert "train 2,000 rows, click rate 0." in told
    assert "test  1,000 rows, click rate 0." in told
    assert " rows/s\n" in told
    for name in ("int_0", "int_12", "cat_0", "cat_25"):
        assert name in told
    assert "table rows for 99.00% of the values: " in told
    assert "nothing found that forbids training on this" in told
    assert "…" not in told


def test_json_is_one_object(tiny_world_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _audit("--data", tiny_world_dir, "--max-overlap", "1", "--json", "--coverage", "0.5", "--threads", "1") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert report["reasons"] == []
    assert report["train"]["num_rows"] == 2000
    assert report["limits"] == {"coverage_frac": 0.5, "max_overlap_frac": 1.0, "bad_rows": "fail", "max_bad_frac": 0.01}
    assert len(report["dense"]) == 13
    assert report["suggested_table_rows"] == [column["table_rows"] for column in report["categories"]]
    assert {column["distinct_method"] for column in report["categories"]} == {"exact"}


def test_a_single_file_is_all_for_training(tiny_world_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _audit("--data", tiny_world_dir / "day_0", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["train"]["num_rows"], report["test"]["num_rows"]) == (1000, 0)
    assert _audit("--data", tiny_world_dir / "day_0", "--files", "day_0") == 2
    assert "day_0 is a file; --files needs the directory in which it lies" in capsys.readouterr().err


@pytest.mark.parametrize("store", ["npy", "parquet"])
def test_prepared_rows_are_audited_too(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], store: str
) -> None:
    out_dir = tmp_path / "rows"
    assert main(["prepare", "--data", str(tiny_world_dir), "--out", str(out_dir), "--format", store]) == 0
    capsys.readouterr()
    assert _audit("--data", out_dir, "--max-overlap", "1") == 0
    told = capsys.readouterr().out
    assert "train 2,000 rows, click rate 0." in told
    assert "test  1,000 rows (500 validation, 500 test), click rate 0." in told
    assert "table rows of the manifest: " in told
    assert "nothing found that forbids training on this" in told
    assert _audit("--data", out_dir, "--max-overlap", "1", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    manifest = json.loads((out_dir / "manifest.json").read_text())
    assert report["ok"] is True
    assert report["prepared"]["rows"] == manifest["rows"]
    assert report["prepared"]["table_rows"] == manifest["table_rows"]
    assert _audit("--data", out_dir, "--schema", "criteo") == 2
    assert "its manifest says what its rows are; leave out --schema" in capsys.readouterr().err
    tell(out_dir, lambda _directory, found: found.update(table_rows=[2] * 26))
    assert _audit("--data", out_dir, "--max-overlap", "1") == 2
    assert "WRONG cat_0: ids outside its table of 2 rows" in capsys.readouterr().out


def test_patterns_choose_the_files(tiny_world_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--data", tiny_world_dir, "--max-overlap", "1", "--json")
    assert _audit(*words, "--files", "day_[01]", "day_2") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["train"]["num_rows"], report["test"]["num_rows"]) == (3000, 0)
    assert "there are no test rows" in report["notes"]
    assert _audit(*words, "--files", "day_2", "--test-files", "day_[01]") == 0
    assert json.loads(capsys.readouterr().out)["test"]["num_rows"] == 2000


def test_a_test_day_that_was_trained_on_is_status_2(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in (0, 1):
        (tmp_path / f"day_{day}").write_bytes((tiny_world_dir / "day_0").read_bytes())
    assert _audit("--data", tmp_path) == 2
    told = capsys.readouterr().out
    assert "WRONG 100.00% of the test rows have the features of a training row, more than 1.00%" in told
    assert "nothing found" not in told


def test_a_leak_is_status_2_and_bad_lines_are_shown(
    tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [line.split(b"\t") for line in (tiny_world_dir / "day_0").read_bytes().splitlines()]
    for fields in rows:
        fields[20] = b"%08x" % int(fields[0])
    lines = [b"\t".join(fields) + b"\n" for fields in rows]
    lines[6] = b"[red]not a row[/red]\n"
    (tmp_path / "day_0").write_bytes(b"".join(lines))
    assert _audit("--data", tmp_path) == 2
    told = capsys.readouterr().out
    assert "WRONG cat_6 alone predicts the label with AUROC 1.0000" in told
    assert f"{tmp_path}/day_0:7: the line has 1 fields" in told
    assert "[red]not a row[/red]" in told
    assert "WRONG 1 bad lines, and training stops at the first of them" in told
    assert _audit("--data", tmp_path, "--bad-rows", "skip") == 2
    assert "training stops" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--schema", "cretio"), "there is no schema 'cretio'; did you mean criteo?"),
        (("--test-files", "day_2"), "--test-files needs --files, which names the training files"),
        (("--files", "week_*"), "--files: no file in"),
        (("--coverage", "0"), "--coverage 0.0 is rejected: it is above 0 and at most 1"),
        (("--threads", "0"), "--threads 0 is rejected"),
        (("--files", "day_*", "--test-files", "day_1"), "day_1 is for training and for test"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    words: tuple[str, ...], message: str, tiny_world_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _audit("--data", tiny_world_dir, *words) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_a_missing_directory_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert _audit("--data", "/nowhere") == 2
    assert "there is no directory /nowhere" in capsys.readouterr().err


def test_texts_of_string_columns_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["clicked,country,tags"]
    lines += [f"{i % 2},{'US' if i % 3 else '[bold]x'},{'a b|c' if i % 5 else ''}" for i in range(200)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    assert main(["schema", "infer", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "rows.toml")]) == 0
    text = (tmp_path / "rows.toml").read_text()
    assert 'name = "country"' in text
    capsys.readouterr()
    _audit("--data", tmp_path / "rows.csv", "--schema", tmp_path / "rows.toml", "--json")
    report = json.loads(capsys.readouterr().out)
    country = next(column for column in report["categories"] if column["name"] == "country")
    assert [(top["value"], top["is_hash"]) for top in country["top_values"]] == [("US", False), ("[bold]x", False)]
    _audit("--data", tmp_path / "rows.csv", "--schema", tmp_path / "rows.toml")
    told = capsys.readouterr().out
    assert "US 66.5%  [bold]x 33.5%" in told
    assert "xxh64" not in told


def test_a_text_that_is_not_found_stays_a_hash_and_the_report_says_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "x" * 2000  # longer than a text that is kept
    (tmp_path / "rows.csv").write_text("clicked,country\n" + f"1,{long}\n0,US\n" * 30)
    assert main(["schema", "infer", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "rows.toml")]) == 0
    capsys.readouterr()
    _audit("--data", tmp_path / "rows.csv", "--schema", tmp_path / "rows.toml")
    told = capsys.readouterr().out
    assert "xxh64:" in told
    assert "US 50.0%" in told
    assert "note  xxh64:… is the hash of a string whose text is not in the parts of the files" in told
