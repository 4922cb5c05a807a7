"""An audit takes files, schemas, splits and bad lines as training takes them."""

import gzip
import json
from pathlib import Path

import pytest

import recmill as rm
from recmill.cli.main import main
from recmill.errors import ConfigError
from tests.data.shop import write_shop


def _shop(path: Path) -> Path:
    write_shop(path)
    return path


def test_the_last_lines_are_held_out_as_for_training(tmp_path: Path) -> None:
    path = _shop(tmp_path / "shop.csv")
    num_rows = len(path.read_text().splitlines()) - 1
    report = rm.audit(path, schema="auto", overrides={"data.holdout_frac": 0.2}, max_overlap=1.0)
    assert (report.train.num_rows, report.test.num_rows) == (num_rows - round(num_rows * 0.2), round(num_rows * 0.2))
    assert any("recmill schema infer" in note for note in report.notes)
    whole = rm.audit(path, max_overlap=1.0)
    assert (whole.schema_name, whole.train.num_rows) == ("shop", num_rows)  # not Criteo's columns, so inferred


def test_a_date_splits_as_for_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{row % 3 % 2},2024-05-{1 + row // 20:02},{row * 7919 % 97},c{row % 5}" for row in range(400)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["click,seen,price,city", *rows]) + "\n")
    assert main(["audit", "--data", str(path), "--test-after", "2024-05-11", "--max-overlap", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["train"]["num_rows"], report["test"]["num_rows"]) == (180, 220)  # a tenth of 200 validates


def test_patterns_directories_and_packed_files_are_taken(tmp_path: Path) -> None:
    path = _shop(tmp_path / "a.csv")
    num_rows = len(path.read_text().splitlines()) - 1
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    for data in (tmp_path, tmp_path / "*.csv*"):
        assert rm.audit(data, schema="auto").train.num_rows == 2 * num_rows


def test_the_settings_of_a_recipe_and_of_a_run_are_taken(tmp_path: Path, tiny_world_dir: Path) -> None:
    report = rm.audit(tiny_world_dir, source="demo", max_overlap=1.0)
    assert (report.train.num_rows, report.test.num_rows) == (2000, 1000)
    settings = rm.config("demo", data=tiny_world_dir, overrides={"data.bad_rows": "skip"})
    (tmp_path / "config.toml").write_text(_toml(settings))
    of_run = rm.audit(source=tmp_path, max_overlap=1.0)
    assert (of_run.limits.bad_rows, of_run.train.num_rows) == ("skip", 2000)
    with pytest.raises(ConfigError, match="there is nothing to look at"):
        rm.audit()
    with pytest.raises(ConfigError, match="of a sequence model"):
        rm.audit(tiny_world_dir, source="sasrec")


def _toml(settings: object) -> str:
    from recmill.settings.tree import Settings, to_toml

    assert isinstance(settings, Settings)
    return to_toml(settings)


def test_an_audit_that_takes_bad_lines_otherwise_than_training_says_so(tmp_path: Path) -> None:
    path = _shop(tmp_path / "shop.csv")
    differs = "this audit takes --bad-rows skip, and training would take data.bad_rows = fail"
    assert any(note.startswith(differs) for note in rm.audit(path, bad_rows="skip").notes)
    same = rm.audit(path, overrides={"data.bad_rows": "skip"})
    assert same.limits.bad_rows == "skip"
    assert not any("this audit takes" in note for note in same.notes)


def test_standard_input_is_audited(tmp_path: Path) -> None:
    import subprocess
    import sys

    text = _shop(tmp_path / "shop.csv").read_bytes()
    words = [sys.executable, "-m", "recmill", "audit", "--data", "-", "--json"]
    done = subprocess.run(words, input=text, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["train"]["num_rows"] == text.count(b"\n") - 1
