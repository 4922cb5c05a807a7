"""recmill trains recommendation models from raw logs.

    import recmill as rm

    run = rm.train("demo", data="data", run="runs/first")
    run.results.test.auroc
    rm.load("runs/first").predict("new_rows.tsv")

What the verbs of the command line do with data and models, functions do here. Names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recmill.api.audit import audit
    from recmill.api.calibrate import Calibrated, calibrate
    from recmill.api.data import prepare, prepare_events, sort, synth
    from recmill.api.evaluate import Evaluated, evaluate
    from recmill.api.plan import RunPlan, plan
    from recmill.api.predict import predict, recommend
    from recmill.api.results import Results, SplitResult
    from recmill.api.run import Run
    from recmill.api.train import train
    from recmill.errors import ConfigError, DataError, FailureError, MissingExtra, RecmillError, RunError, UserError
    from recmill.recipes.resolve import config
    from recmill.serve.click_model import ClickModel
    from recmill.serve.model import load
    from recmill.serve.sequence_model import Recommended, SequenceModel
    from recmill.settings.clicks import TrainConfig
    from recmill.settings.columns import Schema
    from recmill.settings.sequences import SequenceConfig

_HOME = {
    "Calibrated": "recmill.api.calibrate",
    "ClickModel": "recmill.serve.click_model",
    "ConfigError": "recmill.errors",
    "DataError": "recmill.errors",
    "Evaluated": "recmill.api.evaluate",
    "FailureError": "recmill.errors",
    "MissingExtra": "recmill.errors",
    "RecmillError": "recmill.errors",
    "Recommended": "recmill.serve.sequence_model",
    "Results": "recmill.api.results",
    "Run": "recmill.api.run",
    "RunError": "recmill.errors",
    "RunPlan": "recmill.api.plan",
    "Schema": "recmill.settings.columns",
    "SequenceConfig": "recmill.settings.sequences",
    "SequenceModel": "recmill.serve.sequence_model",
    "SplitResult": "recmill.api.results",
    "TrainConfig": "recmill.settings.clicks",
    "UserError": "recmill.errors",
    "audit": "recmill.api.audit",
    "calibrate": "recmill.api.calibrate",
    "config": "recmill.recipes.resolve",
    "evaluate": "recmill.api.evaluate",
    "load": "recmill.serve.model",
    "plan": "recmill.api.plan",
    "predict": "recmill.api.predict",
    "prepare": "recmill.api.data",
    "prepare_events": "recmill.api.data",
    "recommend": "recmill.api.predict",
    "sort": "recmill.api.data",
    "synth": "recmill.api.data",
    "train": "recmill.api.train",
}

__all__ = [
    "Calibrated",
    "ClickModel",
    "ConfigError",
    "DataError",
    "Evaluated",
    "FailureError",
    "MissingExtra",
    "RecmillError",
    "Recommended",
    "Results",
    "Run",
    "RunError",
    "RunPlan",
    "Schema",
    "SequenceConfig",
    "SequenceModel",
    "SplitResult",
    "TrainConfig",
    "UserError",
    "audit",
    "calibrate",
    "config",
    "evaluate",
    "load",
    "plan",
    "predict",
    "prepare",
    "prepare_events",
    "recommend",
    "sort",
    "synth",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'recmill' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
