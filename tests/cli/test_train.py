"""`recmill train` as launchers use it: the same words start a run and go on with it, in one process or in several."""

import json
import sys
from pathlib import Path

import pytest

from recmill.cli.main import main
from recmill.launch import torchrun
from recmill.launch.job import Submission
from tests.cli.command import TINY


class Killed(BaseException):
    """Ends a run as a kill would: nothing is written afterwards."""


def test_the_same_words_start_a_run_and_go_on_with_it(
    tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    words = ["train", "demo", "--data", str(tiny_world_dir), "--run", str(run_dir), "--start-or-resume", *TINY]
    words += ["--set", "stop.max_steps=6", "--set", "cadence.save_every_steps=2"]

    def die_at_the_end(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("recmill.training.loop.run.RunWriter.finish", die_at_the_end)
        with pytest.raises(Killed):
            main(words)
    assert not (run_dir / "results.json").exists()
    assert main(words) == 0
    assert f"resumed from {run_dir}/checkpoints/step_0000000006" in capsys.readouterr().err
    assert json.loads((run_dir / "results.json").read_text())["step"] == 6
    assert main([*words, "--set", "stop.max_steps=8"]) == 0
    assert json.loads((run_dir / "results.json").read_text())["step"] == 8
    assert main([*words, "--set", "dense.lr=9"]) == 2
    assert f"in {run_dir} and cannot become 9.0: it would be another run" in capsys.readouterr().err
    assert main([word for word in words if word != "demo"]) == 2
    assert "name a recipe" in capsys.readouterr().err


def test_a_run_without_a_checkpoint_yet_is_gone_on_with_too(tiny_world_dir: Path, tmp_path: Path) -> None:
    words = ["train", "demo", "--data", str(tiny_world_dir), *TINY, "--set", "stop.max_steps=2"]
    assert main([*words, "--run", str(tmp_path / "left_alone")]) == 0
    started = tmp_path / "started"
    started.mkdir()
    (started / "config.toml").write_bytes((tmp_path / "left_alone" / "config.toml").read_bytes())
    assert main([*words, "--run", str(started), "--start-or-resume"]) == 0
    for name in ("dense.safetensors", "tables.safetensors"):
        assert (started / "model" / name).read_bytes() == (tmp_path / "left_alone" / "model" / name).read_bytes()


def test_processes_are_given_the_same_words_but_for_their_number(
    tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[Submission] = []

    def note(submission: Submission) -> int:
        submitted.append(submission)
        return 7

    monkeypatch.setattr(torchrun, "submit", note)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    words = ["--data", str(tiny_world_dir), "--run", str(tmp_path / "run"), "--start-or-resume", *TINY]
    assert main(["train", "--procs=2", "demo", "--max-res", "4", *words]) == 7
    (submission,) = submitted
    assert submission.argv[: submission.argv.index("--signals-to-handle")] == (
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", "2", "--max-restarts", "4"),
    )
    assert submission.argv[-len(words) - 5 :] == ("-m", "--", "recmill", "train", "demo", *words)
    assert submission.environment == {"OMP_NUM_THREADS": "3", "NUMBA_NUM_THREADS": "3"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--procs", "0"), "--procs 0: a job has at least 1"),
        (("--max-restarts", "2"), "--max-restarts 2 is about the processes that --procs N starts; give it too"),
        (("--procs", "2", "--max-restarts", "2"), "must go on where it was; give --start-or-resume too"),
        (("--procs", "2", "--max-restarts", "-1", "--start-or-resume"), "--max-restarts -1"),
        (("--procs", "2", "--set", "dense.lr=high"), "dense.lr"),
    ],
)
def test_mistakes_are_told_once_and_not_by_every_process(
    words: tuple[str, ...],
    complaint: str,
    tiny_world_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "demo", "--data", str(tiny_world_dir), "--run", str(tmp_path / "run"), *TINY, *words]) == 2
    assert complaint in capsys.readouterr().err


def test_a_process_of_a_launcher_starts_no_others(
    tiny_world_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, text)
    words = ("--data", str(tiny_world_dir), "--run", str(tmp_path / "run"), *TINY)
    assert main(["train", "demo", "--procs", "2", *words]) == 2
    assert "--procs 2: this is process 1 of 2 that a launcher has started" in capsys.readouterr().err
