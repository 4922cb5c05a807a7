"""Which weights of a run are meant: its best, its last, or those of a directory."""

import json
from dataclasses import dataclass
from pathlib import Path

from recmill.errors import RunError
from recmill.files import RESULTS
from recmill.training.checkpoint.checkpoint import MODEL
from recmill.training.checkpoint.saved_state import is_run, open_state


@dataclass(frozen=True)
class FoundWeights:
    """A directory of weights, what to call them, and the step after which they were saved."""

    directory: Path
    name: str  # best, last, or the path that was given
    step: int

    def describe(self) -> str:
        """In words."""
        return f"{self.name} weights (step {self.step:,})" if self.name in ("best", "last") else str(self.directory)


def find_weights(run_dir: Path, weights: str | Path) -> FoundWeights:
    """The weights of a run by name or path; `best` of a run that kept none are its last ones."""
    if weights not in ("best", "last"):
        path = Path(weights)
        if not path.is_dir() and (run_dir / path).is_dir():
            path = run_dir / path
        state = open_state(path)
        return FoundWeights(state.directory, str(path), state.step)
    if not (run_dir / RESULTS).is_file() or not (run_dir / MODEL).is_dir():
        raise RunError(
            f"{run_dir} has no {RESULTS}: the run is not finished; go on with --resume, or name one of its checkpoints "
            "with --weights PATH"
        )
    best = json.loads((run_dir / RESULTS).read_text())["best"]
    is_kept = best is not None and best["model"] not in (None, MODEL)
    if weights == "best" and is_kept:
        directory, name = run_dir / str(best["model"]), "best"
    else:
        is_best = weights == "best" and best is not None and best["model"] == MODEL
        directory, name = run_dir / MODEL, "best" if is_best else "last"
    return FoundWeights(directory, name, open_state(directory).step)


def run_of(path: Path) -> Path | None:
    """The run directory that a path is, or lies in; None of weights that were copied elsewhere."""
    return next((each for each in (path, *path.resolve().parents[:3]) if each.is_dir() and is_run(each)), None)
