"""A trained model, loaded: a click model that predicts, or a sequence model that recommends."""

from pathlib import Path
from typing import TYPE_CHECKING

from recmill.errors import ConfigError, RunError
from recmill.files import has_manifest
from recmill.recipes.resolve import apply_overrides, read_config_tree, read_run_config
from recmill.serve.click_model import ClickModel
from recmill.serve.sequence_model import SequenceModel
from recmill.serve.weights import FoundWeights, find_weights, refuse_strange
from recmill.settings.clicks import TrainConfig
from recmill.settings.families import AnyConfig
from recmill.settings.sequences import SequenceConfig
from recmill.training.checkpoint.saved_state import is_run, open_state

if TYPE_CHECKING:
    from recmill.models.click.own import BuildLayers


def load(
    path: str | Path, *, weights: str | Path = "best", model: "BuildLayers | None" = None
) -> ClickModel | SequenceModel:
    """The model of a run, of a checkpoint or of exported weights.

    Of a run the weights are the best on validation if it kept them, or else the last ones; `weights` may name others.
    `model` is the function that built the layers, if they are your own.
    """
    config, found = open_weights(Path(path), weights)
    if isinstance(config, SequenceConfig):
        if model is not None:
            raise ConfigError(
                f"{path} is a run of {config.model.kind}, which has no layers of your own; leave out model"
            )
        return SequenceModel(config, found)
    return ClickModel(config, found, model)


def load_click_model(
    path: str | Path,
    *,
    weights: str | Path = "best",
    model: "BuildLayers | None" = None,
    is_own_data: bool = False,
) -> ClickModel:
    """The click model of a run; a run of a sequence model is rejected with the verb to use.

    With `is_own_data` it is to look at the data that it was trained on, which has to be what it was.
    """
    config, found = open_weights(Path(path), weights)
    if not isinstance(config, TrainConfig):
        raise RunError(
            f"{path} is a run of {config.model.kind}, which ranks items and predicts no clicks; use `recmill recommend`"
        )
    return ClickModel(config, found, model, is_own_data=is_own_data)


def load_sequence_model(
    path: str | Path, *, weights: str | Path = "best", data: str | Path | None = None
) -> SequenceModel:
    """The sequence model of a run, which a run of clicks is not; `data` are prepared sequences in place of its own."""
    config, found = open_weights(Path(path), weights)
    if not isinstance(config, SequenceConfig):
        raise RunError(
            f"{path} is a run of {config.model.kind}, which predicts clicks and ranks no items; use `recmill predict`"
        )
    return SequenceModel(apply_overrides(config, (), data=data), found, is_own_data=data is None)


def open_weights(path: Path, weights: str | Path) -> tuple[AnyConfig, FoundWeights]:
    """The settings and the weights that a path stands for."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise RunError(f"{path} {what}; give a run directory, a checkpoint or exported weights")
    if is_run(path):
        found = find_weights(path, weights)
        settings = open_state(found.directory).settings()
        config = read_run_config(path) if settings is None else read_config_tree(settings, str(found.directory))
        return config, found
    if not has_manifest(path):
        raise RunError(
            f"{path} is no run directory (it has no config.toml), no checkpoint and no exported weights (it has no "
            "manifest.json); give one of these, such as runs/NAME"
        )
    if weights != "best":
        raise ConfigError(
            f"{path} holds one set of weights; leave out weights = {str(weights)!r}, or give its run directory"
        )
    state = open_state(path)
    refuse_strange(state.directory)
    settings = state.settings()
    if settings is None:
        raise RunError(f"{path} has no config.toml beside its weights, so that nothing tells what they are of")
    return read_config_tree(settings, str(path)), FoundWeights(state.directory, str(path), state.step)
