"""Tiny worlds for all tests; the environment is scrubbed of launchers' words."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # tests share the cores: threads that spin keep others from them

from collections.abc import Iterator
from pathlib import Path

import pytest

from recmill.data.synthetic.clicks import write_criteo
from recmill.settings.click_models import DlrmConfig
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import DataConfig
from recmill.settings.optimizers import DenseOptimizer, TableOptimizer
from recmill.settings.run import Cadence
from recmill.settings.synthetic import SynthSpec

LAUNCHER_WORDS = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_",
    "SLURM_",
    "OMPI_",
    "PMI_",
    "MPI_LOCAL",
)


@pytest.fixture(autouse=True, scope="session")
def _scrubbed_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for name in list(os.environ):
            if name.startswith(LAUNCHER_WORDS):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def tiny_world_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of 1,000 rows each."""
    out_dir = tmp_path_factory.mktemp("world") / "data"
    write_criteo(SynthSpec(rows=3000, days=3, seed=7, scale=0.0001), out_dir)
    return out_dir


@pytest.fixture
def tiny_config(tiny_world_dir: Path) -> TrainConfig:
    """A model small enough for hundreds of steps a second."""
    return TrainConfig(
        data=DataConfig(
            dir=str(tiny_world_dir),
            table_rows=(50,) * 26,
            global_batch=100,
            eval_batch=300,
            num_lanes=4,
            block_bytes=9000,
        ),
        model=DlrmConfig(embedding_dim=4, bottom=(8, 4), top=(8, 1)),
        tables=TableOptimizer(kind="rowwise_adagrad", lr=0.05),
        dense=DenseOptimizer(kind="adagrad", lr=0.02),
        cadence=Cadence(log_every_steps=5),
    )
