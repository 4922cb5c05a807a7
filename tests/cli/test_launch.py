import subprocess
import sys
from pathlib import Path

import pytest

from recmill.cli.main import main

TRAIN = ("train", "demo", "--data", "logs", "--run", "runs/first")


def test_a_dry_run_prints_what_would_be_submitted(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--on", "slurm", "--nodes", "2", "--procs", "4", "--time", "60", "--partition", "gpu", "--name", "first")
    assert main(["launch", *words, "--env", "WORD=some text", "--dry-run", "--", *TRAIN]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#!/bin/bash\n#SBATCH --job-name=first\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n")
    assert "#SBATCH --time=60\n" in script
    assert "\nexport WORD='some text'\n" in script
    # Slurm may queue it again, so the command is one that goes on
    assert f" {sys.executable} -m recmill {' '.join(TRAIN)} --start-or-resume &\n" in script


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--on", "torchrun", "--procs", "2"), f"--nproc-per-node 2 --max-restarts 0 {{}} {' '.join(TRAIN)}\n"),
        (("--on", "torchrun", "--max-restarts", "1"), f" {' '.join(TRAIN)} --start-or-resume\n"),
        (("--on", "mpi", "--mpi", "mpich", "--procs", "2"), f"mpiexec -n 2 -hosts localhost {{}} {' '.join(TRAIN)}\n"),
        (("--on", "torchx", "--procs", "2"), '"num_replicas": 1'),
    ],
)
def test_every_launcher_is_shown_without_being_there(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "torchx", None)
    assert main(["launch", *words, "--dry-run", "--", *TRAIN]) == 0
    shown = capsys.readouterr().out
    for part in expected.split("{}"):
        assert part in shown


@pytest.mark.parametrize("given", ["--resume", "--start-or-resume"])
def test_a_command_that_goes_on_by_itself_is_left_as_it_is(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--on", "slurm", "--dry-run", "--", *TRAIN, given]) == 0
    assert f"{' '.join(TRAIN)} {given} &\n" in capsys.readouterr().out


def test_what_does_not_train_runs_in_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("prepare", "--data", "logs", "--out", "rows")
    assert main(["launch", "--on", "slurm", "--dry-run", "--", *command]) == 0
    assert f" -m recmill {' '.join(command)} &\n" in capsys.readouterr().out
    assert main(["launch", "--on", "slurm", "--procs", "2", "--dry-run", "--", *command]) == 2
    assert "only train shares its work among processes; give prepare --nodes 1 --procs 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--on", "torchrun", "--procs", "0", "--", *TRAIN), "--procs 0: a job has at least 1"),
        (
            ("--on", "torchrun", "--partition", "gpu", "--", *TRAIN),
            "--partition is for --on slurm, and --on torchrun has",
        ),
        (
            ("--on", "mpi", "--max-restarts", "1", "--", *TRAIN),
            "--max-restarts is for --on torchrun or slurm or torchx",
        ),
        (("--on", "slurm", "--scheduler-option", "a=b", "--", *TRAIN), "--scheduler-option is for --on torchx"),
        (("--on", "torchrun"), "what is to be launched? Say it behind --"),
        (
            ("--on", "torchrun", "--", "trian"),
            "'trian' is not a command of recmill that can be launched; did you mean tr",
        ),
        (
            ("--on", "torchrun", "--", "ls", "-l"),
            "'ls' is not a command of recmill that can be launched; the verbs are",
        ),
        (
            ("--on", "torchrun", "--", "launch", "--on", "mpi"),
            "'launch' is not a command of recmill that can be launched",
        ),
        (("--on", "torchrun", "--", *TRAIN, "--procs", "2"), "--procs 2 stands behind --, where train would start its"),
        (("--on", "slurm", "--", *TRAIN, "--overwrite"), "--overwrite would throw the run away at every restart"),
        (("--on", "torchrun", "--env", "WORD", "--", *TRAIN), "--env 'WORD': write NAME=TEXT"),
        (("--on", "torchx", "--scheduler-option", "=x", "--", *TRAIN), "--scheduler-option '=x': write NAME=TEXT"),
        (("--on", "slurm", "--", *TRAIN), "--on slurm needs sbatch, which is not on PATH"),
        (("--on", "mpi", "--", *TRAIN), "--on mpi needs mpiexec, which is not on PATH"),
        (("--on", "mpi", "--mpi", "mpich", "--", *TRAIN), "--on mpi needs mpiexec, which is not on PATH"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["launch", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("recmill: ")
    assert complaint in told


def test_an_option_that_train_does_not_have_is_told_by_train(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["launch", "--on", "slurm", "--", *TRAIN, "--epochs", "3"])
    assert "recmill train: error: unrecognized arguments: --epochs 3" in capsys.readouterr().err


def test_a_command_is_launched_by_torchrun_and_its_status_is_ours(tmp_path: Path) -> None:
    words = ["launch", "--on", "torchrun", "--", "evaluate", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "recmill", *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert f"recmill: {tmp_path} is not a run directory" in done.stderr
    assert "Traceback" not in done.stderr
