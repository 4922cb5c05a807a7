"""Trained models of tiny worlds, to be asked."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import recmill as rm
from recmill.metrics import ClickMetrics
from recmill.serve.click_model import ClickModel
from recmill.settings.clicks import TrainConfig
from recmill.training.job import run_job, trained_task

TrainTiny = Callable[..., Path]


def click_model(run_dir: Path) -> ClickModel:
    model = rm.load(run_dir)
    assert isinstance(model, ClickModel)
    return model


@pytest.fixture
def train_tiny(tiny_config: TrainConfig, tmp_path: Path) -> TrainTiny:
    """Trains the tiny settings with some changes for a few steps; the run directory."""

    def train(name: str = "run", **changes: object) -> Path:
        settings = tiny_config.with_({"stop.max_steps": 6, **{k.replace("__", "."): v for k, v in changes.items()}})
        run_job(settings, tmp_path / name)
        return tmp_path / name

    return train


@pytest.fixture
def evaluated_logits(monkeypatch: pytest.MonkeyPatch) -> Callable[[TrainConfig, Path], NDArray[np.float32]]:
    """The logits that an evaluation on the test split works out."""

    def evaluate(config: TrainConfig, weights_dir: Path) -> NDArray[np.float32]:
        seen = list[NDArray[np.float32]]()
        with monkeypatch.context() as patch:
            patch.setattr(ClickMetrics, "update", lambda _self, logits, *_rest: seen.append(np.array(logits)))
            patch.setattr(ClickMetrics, "result", lambda _self: None)
            with trained_task(config, weights_dir) as task:
                task.evaluate("test")
        return np.concatenate(seen)

    return evaluate
