"""recmill trains recommendation models from raw logs. These are its public names; each is imported when first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recmill.data.batch import Batch
    from recmill.data.encode import Encoding
    from recmill.data.schema import Schema
    from recmill.data.stream import Order, Stream
    from recmill.data.synthetic import read_world, write_criteo
    from recmill.errors import RecmillError
    from recmill.metrics import ClickMetrics
    from recmill.recipes import find_recipe
    from recmill.train.assemble import assemble
    from recmill.train.config import TrainConfig
    from recmill.train.evaluate import evaluate
    from recmill.train.inputs import Inputs
    from recmill.train.job import run_job
    from recmill.train.run import Run

_HOME = {
    "Batch": "recmill.data.batch",
    "ClickMetrics": "recmill.metrics",
    "Encoding": "recmill.data.encode",
    "Inputs": "recmill.train.inputs",
    "Order": "recmill.data.stream",
    "RecmillError": "recmill.errors",
    "Run": "recmill.train.run",
    "Schema": "recmill.data.schema",
    "Stream": "recmill.data.stream",
    "TrainConfig": "recmill.train.config",
    "assemble": "recmill.train.assemble",
    "evaluate": "recmill.train.evaluate",
    "find_recipe": "recmill.recipes",
    "read_world": "recmill.data.synthetic",
    "run_job": "recmill.train.job",
    "write_criteo": "recmill.data.synthetic",
}

__all__ = [
    "Batch",
    "ClickMetrics",
    "Encoding",
    "Inputs",
    "Order",
    "RecmillError",
    "Run",
    "Schema",
    "Stream",
    "TrainConfig",
    "assemble",
    "evaluate",
    "find_recipe",
    "read_world",
    "run_job",
    "write_criteo",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'recmill' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
