"""Which weights of a run are meant: its best, its last, or those of a directory."""

from dataclasses import dataclass
from pathlib import Path

from recmill.errors import RunError
from recmill.files import CONFIG, RESULTS
from recmill.recipes.resolve import read_config_tree
from recmill.run_stamp import read_results, read_run_settings
from recmill.training.checkpoint.identity import refuse_foreign_state
from recmill.training.checkpoint.saved_state import is_run, open_state
from recmill.training.checkpoint.snapshot import MODEL


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
        refuse_strange(state.directory)
        return FoundWeights(state.directory, str(path), state.step)
    if not (run_dir / RESULTS).is_file() or not (run_dir / MODEL).is_dir():
        raise RunError(
            f"{run_dir} has no {RESULTS}: the run is not finished; go on with --resume, or name one of its checkpoints "
            "with --weights PATH"
        )
    best = read_results(run_dir)["best"]
    is_kept = best is not None and best["model"] not in (None, MODEL)
    if weights == "best" and is_kept:
        directory, name = run_dir / str(best["model"]), "best"
    else:
        is_best = weights == "best" and best is not None and best["model"] == MODEL
        directory, name = run_dir / MODEL, "best" if is_best else "last"
    state = open_state(directory)
    expected = best["step"] if name == "best" and best is not None else None
    if expected is not None and state.step != expected:
        raise RunError(
            f"{directory} was saved after step {state.step:,}, and {run_dir / RESULTS} says {expected:,}: the run was "
            "killed at its end, or one of them is of another run; go on with --resume"
        )
    refuse_strange(directory)
    return FoundWeights(directory, name, state.step)


def refuse_strange(directory: Path) -> None:
    """Complain about weights in a run directory that are not of that run; elsewhere they may be of any."""
    run_dir = run_of(directory)
    if run_dir is not None:
        settings = read_run_settings(run_dir)
        config = read_config_tree(settings.tree, str(run_dir / CONFIG))
        refuse_foreign_state(directory, settings.run_id, config)


def run_of(path: Path) -> Path | None:
    """The run directory that a path is, or lies in; None of weights that were copied elsewhere."""
    return next((each for each in (path, *path.resolve().parents[:3]) if each.is_dir() and is_run(each)), None)
