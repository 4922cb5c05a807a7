"""From raw days to a trained model in two commands; a preparation that is killed ends with the same bytes."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from recmill.cli.main import main
from recmill.data.synthetic.clicks import write_criteo
from recmill.settings.synthetic import SynthSpec

RUN = [sys.executable, "-m", "recmill"]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out_dir = tmp_path_factory.mktemp("log") / "data"
    write_criteo(SynthSpec(rows=120_000, days=3, seed=2), out_dir)
    return out_dir


def _files(out_dir: Path) -> dict[str, object]:
    files: dict[str, object] = json.loads((out_dir / "manifest.json").read_text())["files"]
    return files


def test_three_kills_change_no_byte(data_dir: Path, tmp_path: Path) -> None:
    options = ["prepare", "--data", str(data_dir), "--preset", "torchrec", "--seed", "1", "--memory", "64MiB"]
    subprocess.run([*RUN, *options, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    command, random, num_kills = [*RUN, *options, "--out", str(tmp_path / "killed")], Random(4), 0
    while num_kills < 3:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        work_dir = tmp_path / ".killed.preparing"
        while child.poll() is None and not work_dir.exists():
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.5))
        child.send_signal(signal.SIGKILL)
        child.wait()
        num_kills += 1
        if (tmp_path / "killed").exists():
            break  # it was through before it was hit
    if not (tmp_path / "killed").exists():
        subprocess.run(command, check=True, capture_output=True)
    assert _files(tmp_path / "killed") == _files(tmp_path / "whole")


def test_from_raw_to_trained_in_two_commands(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", "--data", str(data_dir), "--out", str(tmp_path / "rows")]) == 0
    assert "120,000 rows (80,000 for train, 20,000 for validation, 20,000 for test)" in capsys.readouterr().out
    for run, options in {
        "prepared": ["--data", str(tmp_path / "rows")],
        "raw": ["--data", str(data_dir), "--vocabulary", str(tmp_path / "rows")],
    }.items():
        command = ["train", "demo", *options, "--run", str(tmp_path / run), "--set", "stop.max_steps=20"]
        assert main(command) == 0
        capsys.readouterr()
        assert main(["evaluate", str(tmp_path / run), "--json"]) == 0
        judged = json.loads(capsys.readouterr().out)
        recorded = json.loads((tmp_path / run / "results.json").read_text())["test"]
        assert judged["auroc"] == recorded["auroc"] > 0.5
        assert judged["num_rows"] == 20_000


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--preset", "criteo"], "there is no preset 'criteo'; choose from torchrec"),
        (["--memory", "lots"], "--memory 'lots' is not a size; write 2GiB"),
        (["--memory", "1MiB"], "--memory 1MiB is too little to work in"),
        (["--jobs", "0"], "--jobs 0: it takes at least one thread"),
        (["--schema", "creteo"], "there is no schema 'creteo'; did you mean criteo?"),
        (["--set", "model.top=[1]"], "only settings of [data] matter here"),
        (["--set", "data.holdout=0.1"], "holdout = 0.1 is not a setting"),
        (["--max-values", "0"], "--max-values 0: give at least 1"),
        (
            ["--preset", "mlperf", "--max-values", "9"],
            "--max-values 9: preset mlperf gives rows to values as first seen",
        ),
        (["--preset", "oneflow-mod", "--min-count", "9"], "--min-count 9: preset oneflow-mod counts no values"),
        (["--modulo", "9"], "--modulo 9: preset recmill counts values, and takes none modulo"),
        (["--multi-hot", "3,2,1"], "data.multi_hot has 3 numbers; schema criteo has 26 category columns"),
        (["--multi-hot", "lots"], "data.multi_hot = 'lots' is neither mlperf nor numbers such as 3,2,1"),
        (["--multi-hot", "mlperf", "--format", "parquet"], "--multi-hot writes npz archives, and --format is parquet"),
        (["--multi-hot-distribution", "pareto"], "data.multi_hot_distribution is pareto and data.multi_hot is empty"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    assert main(["prepare", "--data", str(data_dir), "--out", str(tmp_path / "rows"), *options]) == 2
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_prepared_directory_takes_no_vocabulary(data_dir: Path, tmp_path: Path) -> None:
    assert main(["prepare", "--data", str(data_dir), "--out", str(tmp_path / "rows")]) == 0
    options = ["--data", str(tmp_path / "rows"), "--vocabulary", str(tmp_path / "rows")]
    assert main(["train", "demo", *options, "--run", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()
