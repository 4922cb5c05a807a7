import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recmill.errors import ConfigError
from recmill.launch.job import Job
from recmill.launch.slurm import SlurmOptions, plan, submit
from tests.launch.golden import assert_golden, make_job


def test_the_script_of_many_hosts_and_of_one_process() -> None:
    options = SlurmOptions("gpu", "2-12:00:00", cpus_per_proc=8, max_restarts=3, further=("--account=ads",))
    assert_golden("slurm_many.sh", plan(make_job(nodes=4, procs=8, NCCL_DEBUG="WARN now"), options))
    assert_golden("slurm_one.sh", plan(make_job(procs=1), SlurmOptions()))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"time": "tomorrow"}, "--time 'tomorrow': write minutes, hours:minutes:seconds or days-hours"),
        ({"cpus_per_proc": 0}, "--cpus-per-proc 0: a process needs at least 1"),
        ({"max_restarts": -1}, "--max-restarts -1"),
        ({"further": ("account=ads",)}, "--sbatch 'account=ads': give one option of sbatch, e.g. --sbatch=--account"),
    ],
)
def test_what_sbatch_would_not_understand_is_refused(options: dict[str, int], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        SlurmOptions(**options)  # type: ignore[arg-type]


def test_without_slurm_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"--on slurm needs sbatch, which is not on PATH; .* --dry-run"):
        submit(plan(make_job(), SlurmOptions()))


def test_sbatch_gets_the_script_on_its_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_program(tmp_path / "sbatch", f"cat > {tmp_path}/script; exit 7")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    submission = plan(make_job(), SlurmOptions())
    assert submit(submission) == 7
    assert (tmp_path / "script").read_text() == submission.script


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def start_script(
    cluster_dir: Path, program: str, max_restarts: int = 0, preempted: str = "None"
) -> subprocess.Popen[str]:
    """The script, where `srun` is a process of this machine which forwards signals, and `scontrol` notes its words."""
    write_program(cluster_dir / "srun", 'shift; exec "$@"')
    answers = f"""echo "$@" >> {cluster_dir}/scontrol.log
        case "$2" in
            hostnames) echo rack1; echo rack2;;
            job) echo "   PreemptEligibleTime=2026-11-16T06:15:03 PreemptTime={preempted}";;
        esac"""
    write_program(cluster_dir / "scontrol", answers)
    job = Job("test", sys.executable, ("-c", program, str(cluster_dir)))
    words = {
        **os.environ,
        "PATH": f"{cluster_dir}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "20017",
        "SLURM_JOB_NODELIST": "rack[1-2]",
        "requeue": "yes",  # a word of the user's own, which is exported to the job
    }
    script = cluster_dir / "script"
    script.write_text(plan(job, SlurmOptions(max_restarts=max_restarts)).script)
    return subprocess.Popen(["bash", script], env=words, stdout=subprocess.PIPE, text=True)


COUNTING = """
import pathlib, sys
log = pathlib.Path(sys.argv[1], "starts")
log.write_text(log.read_text() + "." if log.exists() else ".")
sys.exit(0 if len(log.read_text()) > 2 else 5)
"""


@pytest.mark.parametrize(("max_restarts", "status", "starts"), [(0, 5, 1), (1, 5, 2), (2, 0, 3), (9, 0, 3)])
def test_a_step_that_fails_is_started_again(max_restarts: int, status: int, starts: int, tmp_path: Path) -> None:
    with start_script(tmp_path, COUNTING, max_restarts) as script:
        told = script.communicate(timeout=60)[0]
    assert script.returncode == status
    assert len((tmp_path / "starts").read_text()) == starts
    assert told.count("starting it again") == starts - 1
    assert "requeue" not in (tmp_path / "scontrol.log").read_text()


def test_a_job_whose_hosts_are_taken_away_is_queued_again_at_once(tmp_path: Path) -> None:
    """Slurm tells the processes only, and would take the script's end for the end of the job."""
    with start_script(tmp_path, COUNTING, max_restarts=4, preempted="2026-11-16T06:15:06") as script:
        script.communicate(timeout=60)
    assert len((tmp_path / "starts").read_text()) == 1
    assert (tmp_path / "scontrol.log").read_text().splitlines()[-1] == "requeue 20017"


WAITING = """
import os, pathlib, signal, sys, time
def told(number, frame):
    time.sleep(0.2)  # to save
    pathlib.Path(sys.argv[1], "told").write_text(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
    sys.exit(3)
signal.signal(signal.SIGUSR1, told)
pathlib.Path(sys.argv[1], "ready").touch()
time.sleep(60)
"""


def test_the_warning_reaches_the_processes_and_the_job_is_queued_again(tmp_path: Path) -> None:
    with start_script(tmp_path, WAITING, max_restarts=4) as script:
        while not (tmp_path / "ready").exists():
            assert script.poll() is None
            time.sleep(0.05)
        script.send_signal(signal.SIGUSR1)
        script.communicate(timeout=60)
    assert (tmp_path / "told").read_text() == "rack1:29417"
    assert (tmp_path / "scontrol.log").read_text().splitlines()[-1] == "requeue 20017"


def test_a_job_that_is_cancelled_is_not_started_again(tmp_path: Path) -> None:
    with start_script(tmp_path, WAITING, max_restarts=4) as script:
        while not (tmp_path / "ready").exists():
            assert script.poll() is None
            time.sleep(0.05)
        script.send_signal(signal.SIGTERM)
        step = int(Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text())
        os.kill(step, signal.SIGTERM)  # Slurm tells the processes itself
        told = script.communicate(timeout=60)[0]
    assert script.returncode == 128 + signal.SIGTERM
    assert "starting it again" not in told
