"""Which models there are, and the settings of the one that `model.kind` names."""

from typing import Annotated

from pydantic import BeforeValidator

from recmill.errors import ConfigError
from recmill.models.click.dcn import DcnConfig
from recmill.models.click.dlrm import DlrmConfig
from recmill.models.click.dnn import DnnConfig
from recmill.models.click.finalmlp import FinalMlpConfig
from recmill.models.click.projection import ProjectionConfig
from recmill.models.click.settings import ModelSettings
from recmill.settings.tree import Tree, from_tree

CONFIGS: dict[str, type[ModelSettings]] = {
    "dlrm": DlrmConfig,
    "dcn": DcnConfig,
    "projection": ProjectionConfig,
    "finalmlp": FinalMlpConfig,
    "dnn": DnnConfig,
}
DEFAULT_KIND = "dlrm"


def resolve_model(given: object) -> object:
    """Plain data as settings of their kind, so that complaints speak of that kind's settings alone."""
    if isinstance(given, ModelSettings):
        return given
    if not isinstance(given, dict):
        raise ConfigError(f"model = {given!r} is not a section of settings; name a model with model.kind")
    kind = given.get("kind", DEFAULT_KIND)
    if kind not in list(CONFIGS):
        raise ConfigError(f"model.kind = {kind!r} is not a model; choose from {', '.join(CONFIGS)}")
    try:
        return from_tree(CONFIGS[kind], given, prefix="model.")
    except ConfigError as error:
        raise ConfigError(f"{error} (model.kind is {kind})") from None


ModelConfig = Annotated[
    DlrmConfig | DcnConfig | ProjectionConfig | FinalMlpConfig | DnnConfig, BeforeValidator(resolve_model)
]


def without_other_kind(tree: Tree, changes: Tree) -> Tree:
    """The settings of a recipe, without those of its model that the kind of model which the changes ask for has not."""
    model, wanted = tree.get("model"), changes.get("model")
    if not isinstance(model, dict) or not isinstance(wanted, dict):
        return tree
    kind = wanted.get("kind")
    if kind not in list(CONFIGS) or kind == model.get("kind", DEFAULT_KIND):
        return tree
    shared = {name: value for name, value in model.items() if name in CONFIGS[kind].model_fields}
    return {**tree, "model": {**shared, "kind": kind}}
