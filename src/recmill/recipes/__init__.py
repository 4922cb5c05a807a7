"""Settings with a name. A recipe is a function that returns a `TrainConfig`, or a `SequenceConfig` for sequence models;
its docstring is its description.
"""

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module

from recmill.errors import ConfigError
from recmill.settings.clicks import TrainConfig
from recmill.settings.sequences import SequenceConfig

RECIPES = {
    "demo": "recmill.recipes.demo",
    "small": "recmill.recipes.small",
    "criteo-small": "recmill.recipes.criteo_small",
    "mlperf": "recmill.recipes.mlperf",
    "mlperf-v1": "recmill.recipes.mlperf_v1",
    "mlperf-dcnv2": "recmill.recipes.mlperf_dcnv2",
    "torchrec-kaggle": "recmill.recipes.torchrec_kaggle",
    "oneflow": "recmill.recipes.oneflow",
    "polaris": "recmill.recipes.polaris",
    "ray": "recmill.recipes.ray",
}
SEQUENCE_RECIPES = {
    "sasrec": "recmill.recipes.sasrec",
    "bert4rec": "recmill.recipes.bert4rec",
    "goodreads": "recmill.recipes.goodreads",
    "tdfo": "recmill.recipes.tdfo",
}


def find_recipe(name: str) -> Callable[[], TrainConfig]:
    """The function behind the name of a recipe for click models."""
    if name not in RECIPES:
        raise _complaint(name)
    build: Callable[[], TrainConfig] = import_module(RECIPES[name]).build
    return build


def find_sequence_recipe(name: str) -> Callable[[], SequenceConfig]:
    """The function behind the name of a recipe for sequence models."""
    if name not in SEQUENCE_RECIPES:
        raise _complaint(name)
    build: Callable[[], SequenceConfig] = import_module(SEQUENCE_RECIPES[name]).build
    return build


def _complaint(name: str) -> ConfigError:
    known = [*RECIPES, *SEQUENCE_RECIPES]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
    return ConfigError(f"there is no recipe {name!r}; {hint}")
