"""Layers that a user's function builds, between the tables and the loss."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from recmill.errors import ConfigError
from recmill.models.parts.dropout import Stepped
from recmill.models.parts.mlp import layer_stream
from recmill.seeds import stream_key
from recmill.settings.clicks import TrainConfig
from recmill.settings.columns import Schema

# Legend: B rows, N dense features, F categories, D dimension of the tables.

BuildLayers = Callable[[TrainConfig, Schema], nn.Module]  # its module takes (dense_BN, emb_BFD) and returns logits (B)
_SAMPLE_ROWS = 3


class OwnLayers(Stepped):
    """A user's module, whose logits may come as (B) or (B, 1).

    What it draws while training, for dropout for instance, depends on the seed, the step and the process alone, so that
    a resumed run draws the same.
    """

    def __init__(self, layers: nn.Module, seed: int) -> None:
        super().__init__()
        self.layers = layers
        self._seed = seed

    def forward(self, dense: Tensor, emb_BFD: Tensor) -> Tensor:
        """Dense features (B, N) and embeddings (B, F, D) → logits (B)."""
        with torch.random.fork_rng() if self.training else nullcontext():
            if self.training:
                rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
                torch.manual_seed(stream_key(self._seed, "own", self.step, rank) >> 1)
            logits: Tensor = self.layers(dense, emb_BFD)
        return logits.squeeze(1) if logits.dim() == 2 and logits.shape[1] == 1 else logits


def name_of(build: BuildLayers) -> str:
    """What a run records of the function."""
    function = getattr(build, "func", build)  # of a functools.partial, what it calls
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"


def build_own_layers(build: BuildLayers | None, config: TrainConfig, num_inputs: int) -> nn.Module:
    """What the function builds, its first values drawn by the seed of the run, and tried on a few rows."""
    if build is None:
        raise ConfigError(
            "model.kind = custom: the layers are built by a function, which settings cannot hold "
            f"({getattr(config.model, 'layers', '') or 'its name is not known'}); give it as model=FUNCTION to "
            "recmill.train or recmill.load, or on the command line with --layers FILE.py:FUNCTION"
        )
    schema = config.data.schema_of_rows
    with torch.random.fork_rng():
        torch.random.set_rng_state(layer_stream(config.seed, "own").get_state())
        try:
            layers = build(config, schema)
        except Exception as error:
            raise ConfigError(f"{name_of(build)} failed: {type(error).__name__}: {error}") from error
        if not isinstance(layers, nn.Module):
            raise ConfigError(f"{name_of(build)} returned {type(layers).__name__}; it must return a torch.nn.Module")
        own = OwnLayers(layers, config.seed)
        # lazy layers draw their first values here
        _try_out(own, name_of(build), num_inputs, len(schema.category_names), config.model.table_dim)
    return own


def _try_out(own: OwnLayers, name: str, num_inputs: int, num_categories: int, dim: int) -> None:
    """Complain about layers that do not take what they will be given, or do not return one logit per row."""
    dense, vectors = torch.zeros(_SAMPLE_ROWS, num_inputs), torch.zeros(_SAMPLE_ROWS, num_categories, dim)
    own.eval()
    given = f"dense features {tuple(dense.shape)} and embeddings {tuple(vectors.shape)}"
    try:
        with torch.no_grad():
            logits = own(dense, vectors)
    except Exception as error:
        raise ConfigError(
            f"the layers of {name} failed on {given}: {type(error).__name__}: {error}; "
            "they must take (rows, dense features) and (rows, categories, dimension)"
        ) from error
    if not isinstance(logits, Tensor) or logits.shape != (_SAMPLE_ROWS,):
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ConfigError(f"the layers of {name} made {found} of {given}; they must return one logit per row")
    own.train()
