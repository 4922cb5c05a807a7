"""Law *kill*: killed at random moments and resumed, a run ends with the same bytes as one that was left alone."""

from pathlib import Path

from benchmarks.under_fire import train_under_fire

__all__ = ["model_bytes", "train_under_fire"]


def model_bytes(run_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run_dir / "model").glob("*.safetensors"))}
