"""Small runs whose tables lie in files of rows, for tests of what is saved of them."""

from pathlib import Path

from recmill.cli.main import main

TINY = (
    *("threads=1", "data.reader_threads=1", "data.global_batch=100", "data.eval_batch=300", "data.num_lanes=4"),
    *("data.table_rows=" + str([50] * 26), "model.embedding_dim=4", "model.bottom=[8, 4]", "model.top=[8, 1]"),
    *("baselines.enabled=false", "cadence.save_every_steps=3", "cadence.log_every_steps=3"),
)
TIERED = ("store.kind=cached_ssd", "store.cache_memory=80KiB")  # of 1,300 rows some 700 have room


def train(data_dir: Path, run_dir: Path, *settings: str) -> Path:
    """Start a run and finish it; its directory."""
    words = [word for setting in (*TINY, "stop.max_steps=6", *settings) for word in ("--set", setting)]
    assert main(["train", "demo", "--data", str(data_dir), "--run", str(run_dir), *words]) == 0
    return run_dir


def resume(run_dir: Path, *settings: str) -> Path:
    """Go on with a run."""
    words = [word for setting in settings for word in ("--set", setting)]
    assert main(["train", "--run", str(run_dir), "--resume", *words]) == 0
    return run_dir


def checkpoint_of(run_dir: Path, step: int) -> Path:
    """The state after a step."""
    return run_dir / "checkpoints" / f"step_{step:010}"


def flip_byte(path: Path, place: int) -> None:
    """Another bit in one byte."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.unlink()  # hard links of the file stay as they are
    path.write_bytes(content)
