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
    """When a run is killed, and who of it; and when one of its processes is stopped for a while before that."""

    lines_to_live: int  # how many lines about steps it may print
    in_a_save: bool  # then: not before it has begun to write a state
    single: bool  # one process of several, or all at once
    line_of_stop: int  # after how many lines a process is stopped, if any is to be


@dataclass
class Fire:
    """What has hit a run, by sort."""

    killed_all: int = 0
    killed_one: int = 0
    stopped: int = 0  # for some seconds, and continued

    @property
    def kills(self) -> int:
        """All of them."""
        return self.killed_all + self.killed_one


def shots(rng: random.Random) -> Iterator[Shot]:
    """Endless, and the same for the same seed."""
    while True:
        lines_to_live = rng.randint(1, 4)
        yield Shot(lines_to_live, rng.random() < 0.5, rng.random() < 0.5, rng.randint(1, lines_to_live))


def train_under_fire(
    words: Sequence[str],
    run_dir: Path,
    *,
    num_kills: int,
    rng: random.Random,
    procs: Sequence[int] = (1,),
    max_restarts: int = 0,
    stop_s: float = 0.0,
) -> Fire:
    """Run `recmill train` with these words, killing it `num_kills` times while it trains; what has hit it.

    Each start has the next number of processes. With restarts single processes are killed, and not who starts them.
    With `stop_s` one process of every second start is stopped for so long (SIGSTOP, SIGCONT) before the run is killed.
    """
    command = [sys.executable, "-m", "recmill", "train", *words, "--run", str(run_dir), "--start-or-resume"]
    command += ["--max-restarts", str(max_restarts)] if max_restarts else []
    aim, fire = shots(rng), Fire()
    for start, size in enumerate(itertools.cycle(procs)):
        shot = next(aim) if fire.kills < num_kills else None
        if shot and max_restarts:
            shot = replace(shot, single=True)
        with subprocess.Popen(
            [*command, *(["--procs", str(size)] if size > 1 else [])],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            seen, was_shot = _watch(process, shot, run_dir, fire, stop_s if start % 2 == 0 else 0.0)
        _bury(process.pid)
        if process.returncode == 0:
            return fire
        if not was_shot:
            raise RuntimeError(f"the run failed by itself with status {process.returncode}:\n{seen}")
        if "Traceback" in seen or "internal error" in seen:
            raise RuntimeError(f"a process that was left did not say whom it has lost:\n{seen}")
    raise ValueError("a run needs a number of processes")


def _watch(
    process: subprocess.Popen[str], shot: Shot | None, run_dir: Path, fire: Fire, stop_s: float
) -> tuple[str, bool]:
    """Read what a run says, and shoot when its time has come; what it said, and whether it was hit."""
    assert process.stderr is not None
    seen, num_steps, was_shot = list[str](), 0, False
    for line in process.stderr:
        seen.append(line)
        num_steps += line.startswith("step ")
        if shot and stop_s and num_steps >= shot.line_of_stop:
            fire.stopped += stop_for_a_while(process, stop_s)
            stop_s = 0.0
        if shot and not was_shot and num_steps >= shot.lines_to_live:
            was_shot = _shoot(process, shot, run_dir, fire)
    return "".join(seen), was_shot


def _shoot(process: subprocess.Popen[str], shot: Shot, run_dir: Path, fire: Fire) -> bool:
    while shot.in_a_save and process.poll() is None and not any((run_dir / "checkpoints").glob(".step_*")):
        time.sleep(_POLL_S)
    if process.poll() is not None:
        return False
    workers = workers_of(process)
    if shot.single and workers:
        workers[shot.lines_to_live % len(workers)].kill()
        fire.killed_one += 1
    else:
        os.killpg(process.pid, signal.SIGKILL)
        fire.killed_all += 1
    return True


def stop_for_a_while(process: subprocess.Popen[str], stop_s: float) -> bool:
    """Stop one process of a run, the last one of several, and let it go on; whether it was there for that."""
    try:
        stopped = [psutil.Process(process.pid), *workers_of(process)][-1]
        stopped.suspend()
        time.sleep(stop_s)
        stopped.resume()
    except psutil.Error:
        return False
    return True


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that torchrun has started, by rank; none of a run in one process."""
    workers = [each for each in psutil.Process(process.pid).children(recursive=True) if _is_worker(each)]
    return sorted(workers, key=lambda worker: int(worker.environ()["RANK"]))


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
