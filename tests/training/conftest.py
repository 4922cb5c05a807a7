"""A run of the tiny world, ready to be watched."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from recmill.observe.console import ProgressLine
from recmill.settings.clicks import TrainConfig
from recmill.settings.tree import from_tree, laid_over, parse_assignments
from recmill.training.click.task import ClickTask
from recmill.training.loop.run import RunWriter, create_run_dir

Resolve = Callable[..., TrainConfig]
ResolveModel = Callable[..., TrainConfig]
OpenRun = Callable[[ClickTask], RunWriter]


@pytest.fixture
def resolve(tiny_config: TrainConfig) -> Resolve:
    """The tiny settings with some `section.key=value` laid over them."""

    def resolved(*assignments: str) -> TrainConfig:
        return from_tree(
            TrainConfig, laid_over(tiny_config.model_dump(exclude_none=True), parse_assignments(assignments))
        )

    return resolved


@pytest.fixture
def resolve_model(tiny_config: TrainConfig) -> ResolveModel:
    """The tiny settings with a model of some kind and dimension 4, and its own settings."""

    def resolved(kind: str, *assignments: str) -> TrainConfig:
        tree = {**tiny_config.model_dump(exclude_none=True), "model": {"kind": kind, "embedding_dim": 4}}
        return from_tree(
            TrainConfig, laid_over(tree, parse_assignments([f"model.{assignment}" for assignment in assignments]))
        )

    return resolved


@pytest.fixture
def open_run(tmp_path: Path) -> OpenRun:
    """Opens a run directory, made at the first call."""

    def opened(task: ClickTask) -> RunWriter:
        run_dir = tmp_path / "run"
        if not run_dir.exists():
            create_run_dir(run_dir, task.config, overwrite=False)
        return RunWriter(run_dir, task, line=ProgressLine(Console(file=io.StringIO())))

    return opened
