"""Law *kill*: killed at random moments and resumed, a run ends with the same bytes as one that was left alone."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def model_bytes(run_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run_dir / "model").glob("*.safetensors"))}


def train_under_fire(words: Sequence[str], run_dir: Path, *, num_kills: int, rng: random.Random) -> int:
    """Run `recmill train` with these words, killing it `num_kills` times while it trains; how often it was killed."""
    command = [sys.executable, "-m", "recmill", "train", "--run", str(run_dir)]
    num_killed = 0
    resume = False
    while True:
        process = subprocess.Popen(
            [*command, *(["--resume"] if resume else words)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        lines_to_live = rng.randint(1, 4) if num_killed < num_kills else None
        seen = []
        for line in process.stderr:
            seen.append(line)
            is_training = [text for text in seen if text.startswith("step ")]
            if lines_to_live is not None and len(is_training) >= lines_to_live:
                os.kill(process.pid, signal.SIGKILL)
                num_killed += 1
                break
        process.stderr.close()
        status = process.wait()
        if status == 0:
            return num_killed
        assert status == -signal.SIGKILL, "".join(seen)
        resume = (run_dir / "config.toml").exists()
