"""A run with two checkpoints of rows in files, which no test changes."""

import shutil
from pathlib import Path

import pytest

from tests.laws.tiered_runs import TIERED, train


@pytest.fixture(scope="session")
def tiered_run(tiny_world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny_world_dir, tmp_path_factory.mktemp("tiered") / "run", *TIERED)


@pytest.fixture
def own_run(tiered_run: Path, tmp_path: Path) -> Path:
    """A copy, for a test that changes it."""
    return Path(shutil.copytree(tiered_run, tmp_path / "own_run"))
