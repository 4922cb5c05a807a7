"""Settings with a name. A recipe is a function that returns a `TrainConfig`; its docstring is its description."""

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module

from recmill.errors import ConfigError
from recmill.train.config import TrainConfig

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


def find_recipe(name: str) -> Callable[[], TrainConfig]:
    """The function behind a name."""
    if name not in RECIPES:
        near = get_close_matches(name, RECIPES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(RECIPES)}"
        raise ConfigError(f"there is no recipe {name!r}; {hint}")
    build: Callable[[], TrainConfig] = import_module(RECIPES[name]).build
    return build
