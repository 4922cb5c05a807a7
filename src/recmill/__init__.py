"""recmill trains recommendation models from raw logs. These are its public names; each is imported when first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recmill.data.batch import Batch
    from recmill.data.encode.transforms import Encoding
    from recmill.data.stream.stream import Order, Stream
    from recmill.data.synthetic.clicks import read_world, write_criteo
    from recmill.errors import RecmillError
    from recmill.metrics import ClickMetrics
    from recmill.recipes import find_recipe
    from recmill.settings.clicks import TrainConfig
    from recmill.settings.columns import Schema
    from recmill.training.click.assemble import assemble
    from recmill.training.click.evaluate import evaluate
    from recmill.training.click.inputs import Inputs
    from recmill.training.job import run_job
    from recmill.training.loop.run import Run

_HOME = {
    "Batch": "recmill.data.batch",
    "ClickMetrics": "recmill.metrics",
    "Encoding": "recmill.data.encode.transforms",
    "Inputs": "recmill.training.click.inputs",
    "Order": "recmill.data.stream.stream",
    "RecmillError": "recmill.errors",
    "Run": "recmill.training.loop.run",
    "Schema": "recmill.settings.columns",
    "Stream": "recmill.data.stream.stream",
    "TrainConfig": "recmill.settings.clicks",
    "assemble": "recmill.training.click.assemble",
    "evaluate": "recmill.training.click.evaluate",
    "find_recipe": "recmill.recipes",
    "read_world": "recmill.data.synthetic.clicks",
    "run_job": "recmill.training.job",
    "write_criteo": "recmill.data.synthetic.clicks",
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
