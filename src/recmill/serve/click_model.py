"""A trained click model that predicts new rows."""

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from recmill.errors import ConfigError
from recmill.serve.weights import FoundWeights
from recmill.settings.clicks import TrainConfig
from recmill.training.checkpoint.checkpoint import read_model
from recmill.training.click.assemble import assemble

if TYPE_CHECKING:
    from recmill.models.click.own import BuildLayers


class ClickModel:
    """Predicts the probability of a click."""

    def __init__(self, config: TrainConfig, weights: FoundWeights, build_layers: "BuildLayers | None" = None) -> None:
        self.config, self.weights = config, weights
        self._state = assemble(config, build_layers)
        read_model(weights.directory, self._state)
        self._state.model.eval()

    @property
    def torch(self) -> nn.Module:
        """The layers: dense features (B, N) and embeddings (B, F, D) to logits (B)."""
        return self._state.model

    def table(self, name: str) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """The embeddings of a category column (rows, dimension)."""
        names = [spec.name for spec in self._state.tables.specs]
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise ConfigError(f"there is no table {name!r}; {hint}")
        return np.array(self._state.tables.weights(name))

    def __repr__(self) -> str:
        return f"ClickModel({self.config.model.kind}, {self.weights.describe()})"
