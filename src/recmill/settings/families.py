"""The two families of models, clicks and sequences, and which of them settings are about."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from recmill.settings.click_models import CONFIGS
from recmill.settings.clicks import TrainConfig
from recmill.settings.reflect import setting_keys
from recmill.settings.sequence_models import SEQUENCE_CONFIGS
from recmill.settings.sequences import SequenceConfig
from recmill.settings.tree import Settings, flat_keys

AnyConfig = TrainConfig | SequenceConfig
FamilyName = Literal["click", "sequence"]


@dataclass(frozen=True)
class Family:
    """Models that share their settings, and are trained and evaluated alike."""

    name: FamilyName
    config: type[TrainConfig] | type[SequenceConfig]
    models: Mapping[str, type[Settings]]


CLICK = Family("click", TrainConfig, CONFIGS)
SEQUENCE = Family("sequence", SequenceConfig, SEQUENCE_CONFIGS)
FAMILIES = (CLICK, SEQUENCE)


def family_of(config: AnyConfig) -> Family:
    """The family that settings are of."""
    return SEQUENCE if isinstance(config, SequenceConfig) else CLICK


def family_of_tree(tree: Mapping[str, Any]) -> Family:
    """The family that plain data is about: by its kind of model, or else by the settings that only one family has."""
    model = tree.get("model")
    kind = model.get("kind") if isinstance(model, Mapping) else None
    for family in FAMILIES:
        if isinstance(kind, str) and kind in family.models:
            return family
    known = {family.name: set(setting_keys(family.config)) for family in FAMILIES}
    given = set(flat_keys(tree))
    num_only_sequence = len(given & known["sequence"] - known["click"])
    return SEQUENCE if num_only_sequence > len(given & known["click"] - known["sequence"]) else CLICK
