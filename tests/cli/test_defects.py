"""What users met and should not meet again."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from recmill.cli.main import main
from tests.cli.command import train_sasrec

TINY = ["--set", "data.global_batch=100", "--set", "stop.max_steps=3"]
SMALL = ["--set", "model.embedding_dim=8", "--set", "stop.max_steps=4", "--set", "stop.patience=0"]


@pytest.fixture(scope="module")
def sasrec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run on sequences."""
    return train_sasrec(tmp_path_factory.mktemp("sasrec"), *SMALL)


def test_two_equal_runs_do_not_differ(tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        assert main(["train", "demo", "--data", str(tiny_world_dir), "--run", str(tmp_path / name), *TINY]) == 0
    assert main(["checkpoint", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0, capsys.readouterr().out


def test_item_vectors_are_extracted_with_their_items(
    sasrec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["checkpoint", "extract", str(sasrec), "item", "--out", str(tmp_path / "item.npy")]) == 0
    assert "what ids stand for is in" in capsys.readouterr().out
    vectors, ids = np.load(tmp_path / "item.npy"), pl.read_parquet(tmp_path / "item.ids.parquet")
    assert vectors.shape == (len(ids) + 2, 8), "no item, the items, the mask"
    assert ids["id"].to_list() == list(range(1, len(ids) + 1))
    assert len(set(ids["item"])) == len(ids)
    assert main(["checkpoint", "extract", str(sasrec), "itm", "--out", str(tmp_path / "x.npy")]) == 2
    assert (
        main(["checkpoint", "extract", str(sasrec), "item", "--what", "state", "--out", str(tmp_path / "x.npy")]) == 2
    )


def test_lists_are_written_in_the_format_that_the_name_tells(
    sasrec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, read in (("lists.csv", pl.read_csv), ("lists.parquet", pl.read_parquet)):
        assert main(["recommend", str(sasrec), "--all", "-k", "3", "--out", str(tmp_path / name)]) == 0
        assert read(tmp_path / name).columns == ["user", "rank", "item", "score", "source"]
    assert pl.read_csv(tmp_path / "lists.csv").height == pl.read_parquet(tmp_path / "lists.parquet").height == 300
    assert main(["recommend", str(sasrec), "--all", "--out", str(tmp_path / "lists.txt")]) == 2
    assert "the ending tells the format" in capsys.readouterr().err


def test_models_of_the_other_family_name_the_other_verb(
    sasrec: Path, tiny_world_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(sasrec), "--data", str(tiny_world_dir / "day_0")]) == 2
    assert "use `recmill recommend`" in capsys.readouterr().err
    assert main(["train", "demo", "--data", str(tiny_world_dir), "--run", str(tmp_path / "run"), *TINY]) == 0
    assert main(["recommend", str(tmp_path / "run"), "--user", "1"]) == 2
    assert "use `recmill predict`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "small", "--procs", "2", "--device-memory", "12GoB"], "--device-memory '12GoB' is not a size"),
        (["plan", "small", "--memory", "1KiB"], "--memory 1KiB is too little to work in"),
        (["recipes", "show", "sasrek"], "did you mean sasrec?"),
        (["train", "demo", "--run", "/proc/x"], "data.dir is not set"),
        (["predict", "/nowhere", "--data", "x"], "/nowhere does not exist; give a run directory"),
    ],
)
def test_mistakes_are_named_for_what_they_are(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_lists_may_be_written_without_brackets_and_numbers_as_people_do(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for bottom, lr in (("64,16", ".1"), ("[64, 16]", "0.1")):
        sets = ["--set", f"model.bottom={bottom}", "--set", f"dense.lr={lr}"]
        assert main(["plan", "demo", "--memory", "64GiB", "--json", *sets]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]


@pytest.mark.parametrize("flags", [[], ["-O"]])
def test_settings_and_files_are_checked_without_assertions_too(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "manifest.json").write_text('{"format": "recmill prepared 1", "files": 3}')
    for words, message in (
        (["train", "demo", "--data", str(tmp_path / "rows"), "--run", str(tmp_path / "x")], "manifest.json is damaged"),
        (["plan", "demo", "--set", "model.top=[8]"], "model.top ends in 8"),
    ):
        command = [sys.executable, *flags, "-m", "recmill", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("words", [["--help"], ["recipes"], ["recipes", "show", "sasrec"], ["train", "--help"]])
def test_verbs_that_compute_nothing_load_nothing_heavy(words: list[str]) -> None:
    program = (
        "import sys\nfrom recmill.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'numba', 'polars', 'pyarrow', 'numpy'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_a_former_name_is_a_line_for_a_person(tiny_world_dir: Path, tmp_path: Path) -> None:
    words = ["train", "demo", "--data", str(tiny_world_dir), "--run", str(tmp_path / "run"), *TINY]
    command = [sys.executable, "-m", "recmill", *words, "--set", "model.dropout_frac=0.1"]
    done = subprocess.run(command, capture_output=True, text=True)
    told = [line for line in done.stderr.splitlines() if "old name" in line]
    assert done.returncode == 0
    assert told == [
        "recmill: warning: model.dropout_frac = 0.1 is an old name, which still works; write model.dropout = 0.1"
    ]


def test_a_run_directory_of_former_names_goes_on(tiny_world_dir: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["--set", "model.kind=dnn", "--set", "model.dropout=0.1", *TINY]
    assert main(["train", "demo", "--data", str(tiny_world_dir), "--run", str(run), *words]) == 0
    _, _, text = (run / "config.toml").read_text().partition("\n\n")  # without the line that names the run
    (run / "config.toml").write_text(text.replace("\ndropout = ", "\ndropout_frac = "))
    with pytest.warns(FutureWarning, match="model.dropout_frac = 0.1 is an old name"):
        assert main(["train", "--resume", "--run", str(run), "--set", "stop.max_steps=5"]) == 0
    assert "\ndropout = 0.1" in (run / "config.toml").read_text()
