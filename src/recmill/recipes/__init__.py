"""Settings with a name: a recipe is a function that returns the settings of a job; its docstring describes it."""

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module

from recmill.errors import ConfigError
from recmill.settings.families import AnyConfig

RECIPES = {
    "auto": "recmill.recipes.auto",
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
    "sasrec": "recmill.recipes.sasrec",
    "bert4rec": "recmill.recipes.bert4rec",
    "goodreads": "recmill.recipes.goodreads",
    "tdfo": "recmill.recipes.tdfo",
}


def find_recipe(name: str) -> Callable[[], AnyConfig]:
    """The function behind the name of a recipe."""
    if name not in RECIPES:
        near = get_close_matches(name, RECIPES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(RECIPES)}"
        raise ConfigError(f"there is no recipe {name!r}; {hint}")
    build: Callable[[], AnyConfig] = import_module(RECIPES[name]).build
    return build
