"""Slurm: a batch script that starts the processes by `srun`, and again when they were stopped on the way.

1. `--signal` warns the script before its time is over; it tells the processes, which save and end, and has itself put
   back into the queue. When another job needs the hosts, Slurm itself does both.
2. A step that failed otherwise is started again at once, on the same hosts, as often as `--max-restarts` says.
3. The command is the same every time: it starts the run or goes on with it.
"""

import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass

from recmill.errors import ConfigError
from recmill.launch.job import Job, Submission, refuse_negative_restarts
from recmill.world import DEFAULT_PORT, PORTS_OF_JOBS

# The forms that sbatch understands: minutes, minutes:seconds, hours:minutes:seconds, and days before any of them.
_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}")


@dataclass(frozen=True)
class SlurmOptions:
    """What is asked of the cluster."""

    partition: str | None = None
    time: str | None = None
    cpus_per_proc: int | None = None
    max_restarts: int = 0
    warning_s: int = 90
    further: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse_negative_restarts(self.max_restarts)
        if self.time is not None and not _TIME.fullmatch(self.time):
            raise ConfigError(f"--time {self.time!r}: write minutes, hours:minutes:seconds or days-hours, as 2-12")
        if self.cpus_per_proc is not None and self.cpus_per_proc < 1:
            raise ConfigError(f"--cpus-per-proc {self.cpus_per_proc}: a process needs at least 1")
        for option in self.further:
            if not option.startswith("-") or "\n" in option:
                raise ConfigError(f"--sbatch {option!r}: give one option of sbatch, e.g. --sbatch=--account=ads")


def plan(job: Job, options: SlurmOptions) -> Submission:
    """The batch script, for the standard input of sbatch."""
    return Submission(("sbatch",), script="\n".join([*_head(job, options), *_body(job, options)]) + "\n")


def _head(job: Job, options: SlurmOptions) -> list[str]:
    asked = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.procs}",
        f"--partition={options.partition}" if options.partition else "",
        f"--time={options.time}" if options.time else "",
        f"--cpus-per-task={options.cpus_per_proc}" if options.cpus_per_proc else "",
        f"--output={job.name}-%j.log",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{options.warning_s}",
        *options.further,
    ]
    return ["#!/bin/bash", *(f"#SBATCH {word}" for word in asked if word)]


def _body(job: Job, options: SlurmOptions) -> list[str]:
    step = shlex.join(["srun", "--kill-on-bad-exit=1", *job.argv])
    return [
        "",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"export MASTER_PORT=$(({DEFAULT_PORT} + SLURM_JOB_ID % {PORTS_OF_JOBS}))",
        "export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}  # srun does not take it from sbatch by itself",
        "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$SRUN_CPUS_PER_TASK}",
        "export NUMBA_NUM_THREADS=${NUMBA_NUM_THREADS:-$OMP_NUM_THREADS}",
        *(f"export {name}={shlex.quote(text)}" for name, text in job.environment.items()),
        "",
        "# told to stop, the processes save and end; when Slurm takes the hosts away it tells them itself",
        "trap 'requeue=yes; kill -USR1 $step' USR1",
        "trap 'stop=yes' TERM",
        "",
        f"requeue= stop= restarts_left={options.max_restarts}",
        "while true; do",
        f"    {step} &",
        "    step=$!",
        "    wait $step; status=$?",
        "    while kill -0 $step 2>/dev/null; do wait $step; status=$?; done  # a signal ends only the waiting",
        "    [ $status -eq 0 ] && exit 0",
        "    scontrol show job $SLURM_JOB_ID | grep -q ' PreemptTime=[0-9]' && requeue=yes",
        '    [ "$requeue" ] && exec scontrol requeue $SLURM_JOB_ID',
        '    [ "$stop" ] || [ $restarts_left -eq 0 ] && exit $status',
        "    restarts_left=$((restarts_left - 1))",
        '    echo "the step ended with status $status; starting it again, $restarts_left more times are left"',
        "done",
    ]


def submit(submission: Submission) -> int:
    """Hand the script over; sbatch says the number of the job."""
    if shutil.which(submission.argv[0]) is None:
        raise ConfigError(
            "--on slurm needs sbatch, which is not on PATH; run this where jobs are submitted, "
            "or see the script with --dry-run"
        )
    return subprocess.run(submission.argv, input=submission.script, text=True).returncode
