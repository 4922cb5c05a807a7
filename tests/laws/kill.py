"""Law *kill*: killed at random moments and resumed, a run ends with the same bytes as one that was left alone.

`train_under_fire` kills a training command again and again and starts it anew each time until it is through;
`compare.py` compares what it leaves with what a run leaves that was left alone.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

_POLL_S = 0.002


@dataclass(frozen=True)
class Shot:
    """When a run is killed, and who of it."""

    lines_to_live: int  # how many lines about steps it may print
    in_a_save: bool  # then: not before it has begun to write a state
    single: bool  # one process of several, or all at once


def shots(rng: random.Random) -> Iterator[Shot]:
    """Endless, and the same for the same seed."""
    while True:
        yield Shot(rng.randint(1, 4), rng.random() < 0.5, rng.random() < 0.5)


def train_under_fire(
    words: Sequence[str],
    run_dir: Path,
    *,
    num_kills: int,
    rng: random.Random,
    procs: Sequence[int] = (1,),
    max_restarts: int = 0,
) -> int:
    """Run `recmill train` with these words, killing it `num_kills` times while it trains; how often it was killed.

    Each start has the next number of processes. With restarts single processes are killed, and not who starts them.
    """
    command = [sys.executable, "-m", "recmill", "train", *words, "--run", str(run_dir), "--start-or-resume"]
    command += ["--max-restarts", str(max_restarts)] if max_restarts else []
    aim, num_killed = shots(rng), 0
    for size in itertools.cycle(procs):
        shot = next(aim) if num_killed < num_kills else None
        if shot and max_restarts:
            shot = replace(shot, single=True)
        with subprocess.Popen(
            [*command, *(["--procs", str(size)] if size > 1 else [])],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            seen, was_shot = _watch(process, shot, run_dir)
        _bury(process.pid)
        num_killed += was_shot
        if process.returncode == 0:
            return num_killed
        if not was_shot:
            raise RuntimeError(f"the run failed by itself with status {process.returncode}:\n{seen}")
    raise ValueError("a run needs a number of processes")


def _watch(process: subprocess.Popen[str], shot: Shot | None, run_dir: Path) -> tuple[str, bool]:
    """Read what a run says, and shoot when its time has come; what it said, and whether it was hit."""
    assert process.stderr is not None
    seen, num_steps, was_shot = list[str](), 0, False
    for line in process.stderr:
        seen.append(line)
        num_steps += line.startswith("step ")
        if shot and not was_shot and num_steps >= shot.lines_to_live:
            was_shot = _shoot(process, shot, run_dir)
    return "".join(seen), was_shot


def _shoot(process: subprocess.Popen[str], shot: Shot, run_dir: Path) -> bool:
    while shot.in_a_save and process.poll() is None and not any((run_dir / "checkpoints").glob(".step_*")):
        time.sleep(_POLL_S)
    if process.poll() is not None:
        return False
    workers = [each for each in psutil.Process(process.pid).children(recursive=True) if _is_worker(each)]
    if shot.single and workers:
        workers[shot.lines_to_live % len(workers)].kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    return True


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "RANK" in process.environ() and "recmill" in process.cmdline()
    except psutil.Error:
        return False


def _bury(group: int) -> None:
    """Wait until nobody of a killed group is left who might still write."""
    while any(_group_of(each) == group for each in psutil.pids()):
        time.sleep(_POLL_S)


def _group_of(pid: int) -> int | None:
    try:
        return None if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else os.getpgid(pid)
    except (psutil.Error, ProcessLookupError):
        return None


def model_bytes(run_dir: Path) -> dict[str, bytes]:
    """All weights that a run has left behind, by file."""
    return {path.name: path.read_bytes() for path in sorted((run_dir / "model").glob("*.safetensors"))}
